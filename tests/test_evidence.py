"""Inline evidence: the grammar, exhaustively over short strings, and every fault's boundary."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence, Fault, SyntaxFault, faults, parse
from tests.long_forms import IS_LONG

ALPHABET = "%<>()[] a"

# Text in which marks, and what is almost a mark, are common.
marked_text = st.lists(
    st.one_of(st.sampled_from([*evidence.MARKS, *ALPHABET, "\n", "é"]), st.characters()),
    max_size=12,
).map("".join)
plain_text = marked_text.filter(lambda text: not evidence.holds_mark(text))
triples = st.builds(Evidence, claim=plain_text, title=plain_text, quote=plain_text)

PAGE = Document(
    id="ormsby",
    title="Ormsby",
    text="Ormsby is a small town.\nIts lighthouse was built in 1874 by Ada Fenwick.",
)
OTHER = Document(id="ilse", title="Ilse (river)", text="The Ilse is 40 km long. Straße 9 %< x.")


def write(claim: str = "In 1874.", title: str = "Ormsby", quote: str = "was built in 1874") -> str:
    return f"%<{claim}>%({title})%[{quote}]%"


# --- parse and format ---


def test_the_papers_example() -> None:
    text = "%<A Great Dane dog.>%(Scooby-Doo)%[their talking Great Dane named Scooby-Doo.]%"
    expected = Evidence(
        "A Great Dane dog.", "Scooby-Doo", "their talking Great Dane named Scooby-Doo."
    )
    assert parse(text) == (expected,)
    assert evidence.format(expected) == text


@given(st.lists(triples, min_size=1, max_size=4))
def test_parse_inverts_format(written: list[Evidence]) -> None:
    assert parse(evidence.format(*written)) == tuple(written)


@given(st.lists(triples, min_size=1, max_size=3), plain_text, st.sampled_from(["", " ", "\n\t "]))
def test_space_before_and_text_after_are_ignored(
    written: list[Evidence], rest: str, space: str
) -> None:
    text = space + evidence.format(*written)
    if not rest.startswith("<"):  # `]%<` begins another triple
        assert parse(text + rest) == tuple(written)


@given(marked_text, marked_text, marked_text)
def test_format_refuses_exactly_the_fields_that_hold_a_mark(
    claim: str, title: str, quote: str
) -> None:
    if any(mark in field for mark in evidence.MARKS for field in (claim, title, quote)):
        with pytest.raises(ValueError, match="reserved mark"):
            evidence.format(Evidence(claim, title, quote))
    else:
        assert parse(evidence.format(Evidence(claim, title, quote))) == (
            Evidence(claim, title, quote),
        )


@pytest.mark.parametrize("field", ["claim", "title", "quote"])
def test_every_short_field_of_mark_characters_comes_back(field: str) -> None:
    """All strings of up to four characters of the marks' alphabet, in each field, twice.

    In the long form up to five. A mark has two or three.
    """
    accepted = 0
    for length in range(6 if IS_LONG else 5):
        for characters in itertools.product(ALPHABET[:-1], repeat=length):
            value = "".join(characters)
            if evidence.holds_mark(value):
                continue
            triple = Evidence(**{"claim": "a", "title": "a", "quote": "a", field: value})
            assert parse(evidence.format(triple, triple)) == (triple, triple)
            accepted += 1
    assert accepted > (20_000 if IS_LONG else 2_000)


def test_all_short_fields_together_come_back() -> None:
    fields = ["".join(f) for n in range(3) for f in itertools.product("%<>()[]", repeat=n)]
    fields = [field for field in fields if not evidence.holds_mark(field)]
    for claim, title, quote in itertools.product(fields, repeat=3):
        assert parse(evidence.format(Evidence(claim, title, quote))) == (
            Evidence(claim, title, quote),
        )


def test_what_parses_can_be_written_again() -> None:
    """All texts of seven marks and fragments: malformed, or the same when written again."""
    pieces = [*evidence.MARKS, "<", "%", " "]
    parsed = 0
    for chosen in itertools.product(pieces, repeat=7):
        text = "".join(chosen)
        try:
            found = parse(text)
        except SyntaxFault:
            continue
        parsed += 1
        if not any(evidence.holds_mark(triple.quote) for triple in found):
            assert parse(evidence.format(*found)) == found
    assert parsed > 1_000


def test_neighbouring_triples_may_share_their_percent_sign() -> None:
    first, second = Evidence("a", "t", "q"), Evidence("b", "u", "r")
    for between in ("%<", "%%<", "% %<", "%\n\n%<"):
        assert parse(f"%<a>%(t)%[q]{between}b>%(u)%[r]%") == (first, second)


def test_fields_keep_their_spaces_and_near_marks() -> None:
    triple = Evidence(" 50% > 40%>", "f(x)", "[1] 9%]")
    assert evidence.format(triple) == "%< 50% > 40%>>%(f(x))%[[1] 9%]]%"
    assert parse(evidence.format(triple)) == (triple,)


def test_format_wants_evidence() -> None:
    with pytest.raises(ValueError, match="at least one"):
        evidence.format()


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "expected '%<'"),
        ("  ", 2, "expected '%<'"),
        ("The answer: %<a>%(t)%[q]%", 0, "expected '%<'"),
        ("%<a", 3, "the claim is not closed by '>%('"),
        ("%<a>%(t", 7, "the title is not closed by ')%['"),
        ("%<a>%(t)%[q", 11, "the quote is not closed by ']%'"),
        ("%<a)%[q]%", 3, "')%[' inside the claim"),
        ("%<a%<b>%(t)%[q]%", 3, "'%<' inside the claim"),
        ("%<a>%(t>%(u)%[q]%", 7, "'>%(' inside the title"),
        ("%<a>%(t]%", 7, "']%' inside the title"),
        ("%<a>%(t)%[q]% and %<b>%(t)%[q]%", 18, "'%<' after text that follows a quote"),
        ("%<a>%(t)%[q]% ]%", 14, "']%' after text that follows a quote"),
        ("%<a>%(t)%[q]%<br>", 17, "the claim is not closed"),
    ],
)
def test_malformed_text_is_located(text: str, position: int, message: str) -> None:
    with pytest.raises(SyntaxFault, match=re.escape(message)) as raised:
        parse(text)
    assert raised.value.position == position
    assert faults(text, [PAGE]) == {Fault.MALFORMED}


# --- faults ---


@given(marked_text, st.lists(st.builds(Document, st.just("d"), marked_text, marked_text)))
def test_faults_never_raises(text: str, documents: list[Document]) -> None:
    found = faults(text, documents)
    try:
        parse(text)
    except SyntaxFault:
        assert found == {Fault.MALFORMED}
    else:
        assert Fault.MALFORMED not in found


@pytest.mark.parametrize("text", ["\ud800", "%<\udfff>%(\x00)%[\U0010ffff]%", "%<" * 100_000])
def test_faults_takes_any_string(text: str) -> None:
    assert faults(text, [PAGE])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (write(), set()),
        (" " + write() + " and so on.", set()),
        (write() + write(title="Ilse (river)", quote="40 km long"), set()),
        # Claims are the model's own words.
        (write(claim=""), {Fault.EMPTY_CLAIM}),
        (write(claim=" \n"), {Fault.EMPTY_CLAIM}),
        (write(claim="."), set()),
        # Titles are exact.
        (write(title="ormsby"), {Fault.WRONG_TITLE}),
        (write(title="Ormsby "), {Fault.WRONG_TITLE}),
        (write(title=""), {Fault.WRONG_TITLE}),
        # Quotes are runs of the named document, up to the case of ASCII letters.
        (write(quote="WAS BUILT IN 1874"), set()),
        (write(quote="town.\nIts"), set()),
        (write(quote="town. Its"), {Fault.WRONG_QUOTE}),
        (write(quote="was built in 1875"), {Fault.WRONG_QUOTE}),
        (write(quote="The Ilse is 40 km"), {Fault.WRONG_QUOTE}),
        (write(title="Ilse (river)", quote="STRAßE 9"), set()),
        (write(title="Ilse (river)", quote="STRASSE 9"), {Fault.WRONG_QUOTE}),
        (write(quote=PAGE.text), set()),
        (write(quote=PAGE.text + " "), {Fault.WRONG_QUOTE}),
        # A title that names nothing is one fault; the quote is sought everywhere.
        (write(title="Nowhere"), {Fault.WRONG_TITLE}),
        (write(title="Nowhere", quote="never said"), {Fault.WRONG_TITLE, Fault.WRONG_QUOTE}),
        # Lengths count characters.
        (write(quote=""), {Fault.EMPTY_QUOTE, Fault.SHORT_QUOTE}),
        (write(quote=" "), {Fault.EMPTY_QUOTE, Fault.SHORT_QUOTE}),
        (write(quote="     "), {Fault.EMPTY_QUOTE, Fault.WRONG_QUOTE}),
        (write(quote="1874"), {Fault.SHORT_QUOTE}),
        (write(quote="1874 "), set()),
        (write(title="Ilse (river)", quote="aße 9"), set()),
        (write(title="Ilse (river)", quote="ße 9"), {Fault.SHORT_QUOTE}),
        # A quote that was not closed runs on to the next `]%`.
        (write(title="Ilse (river)", quote="9 %< x."), {Fault.RESERVED_SYNTAX}),
        (
            write(quote="was built" + write()[:-2]),
            {Fault.RESERVED_SYNTAX, Fault.WRONG_QUOTE},
        ),
        # What holds for one triple holds for the response.
        (write() + write(claim="") + write(title="x"), {Fault.EMPTY_CLAIM, Fault.WRONG_TITLE}),
    ],
)
def test_each_fault_at_its_boundary(text: str, expected: set[Fault]) -> None:
    assert faults(text, [PAGE, OTHER]) == expected


def test_faults_of_a_window_are_of_what_it_shows() -> None:
    start = PAGE.text.index("Its")
    window = Window(PAGE, start, len(PAGE.text))
    assert faults(write(), [window]) == set()
    assert faults(write(quote="a small town"), [window]) == {Fault.WRONG_QUOTE}


def test_a_quote_may_come_from_any_document_of_that_title() -> None:
    twin = Document(id="ormsby-2", title="Ormsby", text="Another Ormsby lies in the north.")
    assert faults(write(quote="lies in the north"), [PAGE, twin]) == set()


def test_a_page_is_folded_once_however_many_quotes_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of 100 kB took 10 milliseconds for each of a hostile answer's triples."""
    page, fold, folded = Document("l", "L", "é" * 500), evidence.fold_case, list[str]()
    monkeypatch.setattr(evidence, "fold_case", lambda text: folded.append(text) or fold(text))
    answer = "".join(write(title=title, quote="ê" * 9) for title in ("L", "M") * 20)
    assert Fault.WRONG_QUOTE in faults(answer, [page, OTHER])
    assert folded.count(page.text) == folded.count(OTHER.text) == 1


def test_without_documents_nothing_can_be_quoted() -> None:
    assert faults(write(), []) == {Fault.WRONG_TITLE, Fault.WRONG_QUOTE}


def test_the_minimum_length_is_a_setting() -> None:
    assert faults(write(quote="1874"), [PAGE], minimum_quote_length=4) == set()


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("Ormsby is [...] built in 1874", set()),
        ("BUILT in 1874 [...] ormsby", set()),  # in whatever order
        ("Ormsby is  [...]  small town", set()),  # further spaces are the runs'
        ("Ormsby is[...] small town", {Fault.WRONG_QUOTE}),
        ("Ormsby is […] small town", {Fault.WRONG_QUOTE}),
        ("Ormsby is [...] 40 km long", {Fault.WRONG_QUOTE}),  # of another page
        ("Ormsby is [...] lighthouse [...] built in 1874", {Fault.WRONG_QUOTE}),  # one too many
        ("Ormsby is [...] 1874", {Fault.SHORT_QUOTE}),
        ("Ormsby is [...] ", {Fault.EMPTY_QUOTE, Fault.SHORT_QUOTE}),
        (" [...] Ormsby is", {Fault.EMPTY_QUOTE, Fault.SHORT_QUOTE}),
        ("Ormsby is [...] .\n", {Fault.EMPTY_QUOTE, Fault.SHORT_QUOTE}),  # a dot says nothing
    ],
)
def test_omissions_are_judged_run_by_run(quote: str, expected: set[Fault]) -> None:
    assert faults(write(quote=quote), [PAGE, OTHER], maximum_omissions=1) == expected
    assert Fault.WRONG_QUOTE in faults(write(quote=quote), [PAGE, OTHER])


def test_an_omission_of_the_page_itself() -> None:
    page = Document("1", "Ormsby", "He said [...] that it was lit.")
    whole, short = write(quote="He said [...] that it"), write(quote="said [...] that it")
    for text in (whole, short):
        assert faults(text, [page]) == set()
    assert faults(whole, [page], maximum_omissions=1) == set()
    assert faults(short, [page], maximum_omissions=1) == {Fault.SHORT_QUOTE}


@given(st.text(), st.text())
def test_folding_keeps_lengths_and_touches_ascii_only(left: str, right: str) -> None:
    folded = evidence.fold_case(left)
    assert len(folded) == len(left)
    assert all(
        a == b or (a.isascii() and a.lower() == b) for a, b in zip(left, folded, strict=True)
    )
    assert evidence.is_verbatim(left, right + left + right)
    assert evidence.is_verbatim(evidence.fold_case(left), left)

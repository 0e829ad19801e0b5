"""What becomes of a quote when its page changes."""

import dataclasses
import gc
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.answering.pages import index_in_memory
from gophercite.answering.verification import (
    Check,
    Match,
    Pages,
    Verdict,
    check,
    in_documents,
    in_index,
    on_the_web,
    verify,
)
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.extraction.extractor import Extractor
from gophercite.records.answers import Answer, Citation, cite

TEXT = "Ormsby is a town. Its lighthouse was built in 1874 by Anna Vell. It is tall."
QUOTE = "Its lighthouse was built in 1874 by Anna Vell."
PAGE = Document("o", "Ormsby", TEXT, "https://ormsby.example/")
CITATION = cite(Evidence("In 1874.", "Ormsby", QUOTE), PAGE, TEXT.index(QUOTE))
ANSWER = Answer("When?", "tiny", citations=(CITATION,))


RUNS = ("Ormsby is a town.", "built in 1874")
JOINED = cite(Evidence("In 1874.", "Ormsby", " [...] ".join(RUNS)), PAGE, 0, TEXT.index(RUNS[1]))


def checked(*texts: str) -> Check:
    (result,) = checked_runs(CITATION, *texts)
    return result


def checked_runs(citation: Citation, *texts: str) -> list[Check]:
    return check(citation, Pages([dataclasses.replace(PAGE, text=text) for text in texts]))


@pytest.mark.parametrize(
    ("text", "verdict", "found"),
    [
        (TEXT, Verdict.EXACT, QUOTE),
        (TEXT + " It rains.", Verdict.EXACT, QUOTE),
        ("News! " + TEXT, Verdict.MOVED, QUOTE),
        (QUOTE, Verdict.MOVED, QUOTE),
        (TEXT.replace("1874", "1875"), Verdict.CHANGED, QUOTE.replace("1874", "1875")),
        (TEXT.replace("Its", "The"), Verdict.CHANGED, None),
        ("It is all about bees now, and how they dance.", Verdict.MISSING, None),
        ("", Verdict.MISSING, None),
    ],
)
def test_verdicts(text: str, verdict: Verdict, found: str | None) -> None:
    result = checked(text)
    assert result.verdict is verdict
    assert result.holds == (verdict in (Verdict.EXACT, Verdict.MOVED))
    assert result.page_changed == (text != TEXT)
    if found is not None:
        assert result.found == found
    if result.start is not None:
        assert text[result.start : result.end] == result.found


def test_what_is_changed_elsewhere_is_said() -> None:
    assert checked(TEXT).detail == ""
    assert checked(TEXT + " It rains.").detail == "other parts of the page have changed"


def test_the_nearest_place_of_a_quote_that_was_moved() -> None:
    length = len(QUOTE) + 1
    for shift, nearest in ((0, 0), (5, 5), (20, 20), (-18, length - 18), (-40, length - 40)):
        text = (" " * shift + f"{QUOTE} {QUOTE} {QUOTE}")[max(0, -shift) :]
        assert checked(text).start == nearest


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_quote_that_is_in_the_page_is_found(before: str, after: str) -> None:
    page = dataclasses.replace(PAGE, text=f"{before}\n{QUOTE}\n{after}")
    (result,) = check(CITATION, Pages([page]))
    assert result.holds
    assert result.found == QUOTE
    assert (result.verdict is Verdict.EXACT) == (result.start == CITATION.start)


def test_the_best_of_several_pages_counts() -> None:
    assert checked("Bees.", TEXT, "News! " + TEXT).verdict is Verdict.EXACT
    assert check(CITATION, Pages([], "gone")) == [Check(CITATION, QUOTE, Verdict.MISSING, "gone")]


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        (TEXT, (Verdict.EXACT, Verdict.EXACT)),
        ("News! " + TEXT, (Verdict.MOVED, Verdict.MOVED)),
        (TEXT.replace("a town", "a city"), (Verdict.CHANGED, Verdict.EXACT)),
        (TEXT.replace("built in 1874", "here"), (Verdict.EXACT, Verdict.MISSING)),
        ("built in 1874: it is all about bees now.", (Verdict.MISSING, Verdict.MOVED)),
    ],
    ids=["same", "shifted", "first changed", "second gone", "first gone"],
)
def test_each_run_of_a_joined_quote_is_checked(text: str, verdicts: tuple[Verdict, ...]) -> None:
    checks = checked_runs(JOINED, text)
    assert tuple(each.verdict for each in checks) == verdicts
    assert tuple(each.quote for each in checks) == RUNS
    assert all(each.found == each.quote for each in checks if each.holds)


def test_all_runs_of_a_joined_quote_are_sought_in_one_page() -> None:
    only_first, only_second = "Ormsby is a town.", "It was built in 1874"
    verdicts = [each.verdict for each in checked_runs(JOINED, only_first, only_second)]
    assert verdicts == [Verdict.EXACT, Verdict.MISSING]
    assert all(each.holds for each in checked_runs(JOINED, only_first, only_second, TEXT))
    assert verify(
        dataclasses.replace(ANSWER, citations=(CITATION, JOINED)), in_documents([], ANSWER)
    ) == [
        Check(citation, quote, Verdict.MISSING, "there is no such page")
        for citation, quote in ((CITATION, QUOTE), (JOINED, RUNS[0]), (JOINED, RUNS[1]))
    ]


def test_a_huge_page_and_a_huge_quote() -> None:
    quote = "The roads are closed. " * 10_000
    page = dataclasses.replace(PAGE, text=quote)
    citation = cite(Evidence("Closed.", "Ormsby", quote), page, 0)
    assert [each.verdict for each in check(citation, Pages([page]))] == [Verdict.EXACT]
    other = dataclasses.replace(page, text=quote.replace("closed", "opened"))
    assert [each.verdict for each in check(citation, Pages([other]))] == [Verdict.CHANGED]


def test_pages_are_found_by_id_or_address() -> None:
    other = Document("x", "X", "Bees.")
    moved = dataclasses.replace(PAGE, id="another")
    renamed = dataclasses.replace(PAGE, url=None)
    for page in (PAGE, moved, renamed):
        assert verify(ANSWER, in_documents([other, page], ANSWER))[0].verdict is Verdict.EXACT
        with index_in_memory([other, page]) as index:
            assert verify(ANSWER, in_index(index))[0].verdict is Verdict.EXACT
    assert verify(ANSWER, in_documents([other], ANSWER))[0].verdict is Verdict.MISSING
    with index_in_memory([other]) as index:
        (result,) = verify(ANSWER, in_index(index))
    assert (result.verdict, result.detail) == (
        Verdict.MISSING,
        "there is no such page in the index",
    )


def test_an_answer_does_not_get_files_of_this_machine_read(tmp_path) -> None:
    (tmp_path / "secret.txt").write_text(TEXT)
    citation = dataclasses.replace(CITATION, url=(tmp_path / "secret.txt").as_uri())
    answer = dataclasses.replace(ANSWER, citations=(citation,))
    with Extractor() as extractor:
        (result,) = verify(answer, on_the_web(answer, extractor))
    assert result.verdict is Verdict.MISSING
    assert "give the documents" in result.detail


def test_a_declined_answer_has_nothing_to_check() -> None:
    declined = Answer("When?", "tiny", reason="no page was found")
    assert verify(declined, in_documents([PAGE], declined)) == []


COPY = Document("file:///elsewhere/copy.txt", "copy", TEXT, "file:///elsewhere/copy.txt")
QUOTING = Document("q", "Quoting", f"It is said: {QUOTE} Who knows.")
OTHER = Document("x", "X", "Bees.")


def found_in(*pages: Document) -> list[Check]:
    """What is found among documents; the same as in an index of them."""
    (found,) = verify(ANSWER, in_documents(iter(pages), ANSWER))
    with index_in_memory(pages) as index:
        (indexed,) = verify(ANSWER, in_index(index))
    assert dataclasses.replace(indexed, detail=found.detail) == found
    return [found]


def test_a_copy_elsewhere_is_known_by_its_content() -> None:
    (found,) = found_in(OTHER, COPY)
    assert (found.verdict, found.matched_by, found.page) == (Verdict.EXACT, Match.CONTENT, COPY)
    assert (found.start, found.page_changed) == (CITATION.start, False)


def test_content_counts_before_the_name_and_the_name_before_the_quote() -> None:
    changed = dataclasses.replace(PAGE, text=TEXT.replace("1874", "1875"))
    at_address = dataclasses.replace(changed, id="another")
    (found,) = found_in(changed, QUOTING, COPY)
    assert (found.matched_by, found.verdict) == (Match.CONTENT, Verdict.EXACT)
    (found,) = found_in(QUOTING, changed)
    assert (found.matched_by, found.verdict) == (Match.ID, Verdict.CHANGED)
    (found,) = found_in(QUOTING, at_address)
    assert (found.matched_by, found.verdict) == (Match.ADDRESS, Verdict.CHANGED)
    (found,) = found_in(OTHER, QUOTING)
    assert (found.matched_by, found.verdict) == (Match.QUOTE, Verdict.MOVED)
    assert (found.start, found.detail) == (12, "it is in another page")
    (found,) = found_in(OTHER)
    assert (found.matched_by, found.verdict) == (None, Verdict.MISSING)


def test_another_page_must_hold_all_runs_of_a_quote() -> None:
    answer = dataclasses.replace(ANSWER, citations=(JOINED,))
    half = Document("h", "Half", f"{RUNS[0]} And that is all.")
    checks = verify(answer, in_documents([half], answer))
    assert [each.verdict for each in checks] == [Verdict.MISSING, Verdict.MISSING]
    whole = Document("w", "Whole", f"So {RUNS[1]}, they say: {RUNS[0]}")
    checks = verify(answer, in_documents([half, whole], answer))
    assert [(each.verdict, each.found) for each in checks] == [
        (Verdict.MOVED, RUNS[0]),
        (Verdict.MOVED, RUNS[1]),
    ]


def test_few_of_many_pages_are_kept() -> None:
    made: list[weakref.ref[Document]] = []

    def many() -> Iterator[Document]:
        for number in range(50):
            page = Document(str(number), "Q", f"{number} {QUOTE}" if number % 2 else "Bees.")
            made.append(weakref.ref(page))
            yield page
            del page

    find = in_documents(many(), ANSWER)
    gc.collect()
    assert sum(page() is not None for page in made) == 1
    assert verify(ANSWER, find)[0].matched_by is Match.QUOTE


def test_the_pages_of_a_pdf_are_those_of_the_quotes_place() -> None:
    page = dataclasses.replace(PAGE, page_starts=(0, TEXT.index("1874")))
    (found,) = verify(ANSWER, in_documents([page], ANSWER))
    assert found.pages == (1, 2)
    assert checked(TEXT).pages == ()

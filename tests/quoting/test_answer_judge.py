"""The judge of sampled answers: it shares nothing with the constraint, and misses no damage."""

import ast
import dataclasses
import pathlib
import random
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.documents import Document
from tests.quoting import answer_judge
from tests.quoting.answer_judge import MARKS, Page, Rules, Sampled, faults, faults_of_text
from tests.quoting.quote_worlds import hostile_documents

PAGES = [
    Page("Cats", "The cat sat on the mat.  It was ☃ warm there, and it slept until noon."),
    Page("Dogs", "A dog ran. It barked at [...] cats. ]So it did%, é and é."),
    Page("Dogs", "Another page of dogs, which is longer."),
    Page("Do", "Do not run."),
]
RULES = Rules(max_tokens=1000)


def answer(*triples):
    return " " + " ".join(f"%<{claim}>%({title})%[{quote}]%" for claim, title, quote in triples)


GOOD = answer(("It sat.", "Cats", "cat sat on the mat"))


@pytest.mark.parametrize("name", ["answer_judge", "tokenizer_files"])
def test_the_judge_shares_no_code_with_what_it_judges(name):
    path = pathlib.Path(answer_judge.__file__).with_name(f"{name}.py")
    imported = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Name):
            assert node.id not in {"__import__", "eval", "exec"}
    libraries = {"sentencepiece", "tokenizers"} if name == "tokenizer_files" else set()
    assert imported - libraries <= sys.stdlib_module_names - {"importlib"}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (GOOD, {}),
        (answer(("a", "Dogs", "It barked at [...] cats")), {}),
        (answer((" \n☃", "Do", "Do no")), {}),
        (answer(("a]b[c%d<e>", "Dogs", "]So it did%")), {}),
        (answer(("a", "Dogs", "longer."), ("b", "Cats", "mat.  It")), {"triples": 2}),
        (answer(("a", "Cats", "The cat [...] until noon")), {"omissions": 1}),
        (answer(("a", "Dogs", "longer [...] A dog")), {"omissions": 2}),
        (answer(("ab", "Cats", "cat")), {"minimum_quote": 3, "maximum_quote": 3}),
        (answer(("ab", "Cats", "cat sat")), {"minimum_claim": 2, "maximum_claim": 2}),
    ],
)
def test_legal_answers_have_no_fault(text, rules):
    assert faults_of_text(text, PAGES, dataclasses.replace(RULES, **rules)) == []


@pytest.mark.parametrize(
    ("text", "rules", "named"),
    [
        ("", {}, "no space"),
        (GOOD[1:], {}, "no space"),
        (" " + GOOD, {}, "where '%<'"),
        (GOOD + " ", {}, "where '%<'"),
        (GOOD + "\n", {}, "after a quote"),
        (GOOD + "%", {}, "after a quote"),
        (GOOD + GOOD[1:], {"triples": 2}, "after a quote"),
        (GOOD + "  " + GOOD[1:], {"triples": 2}, "where '%<'"),
        (GOOD + GOOD, {}, "2 triples"),
        (GOOD[:-1], {}, "quote has no end"),
        (GOOD[:-2], {}, "quote has no end"),
        (GOOD.replace(")%[", ")["), {}, "title has no end"),
        (GOOD.replace(">%(", "%("), {}, "claim has no end"),
        (answer(("", "Cats", "cat sat")), {}, "is empty"),
        (answer((" \u2003\n", "Cats", "cat sat")), {}, "is empty"),
        (answer(("a%<", "Cats", "cat sat")), {}, "claim 'a%<' holds"),
        (answer(("a)%[", "Cats", "cat sat")), {}, "holds ')%['"),
        (answer(("a]%", "Cats", "cat sat")), {}, "holds ']%'"),
        (answer(("ab", "Cats", "cat sat")), {"minimum_claim": 3}, "claim 'ab' is too short"),
        (answer(("ab", "Cats", "cat sat")), {"maximum_claim": 1}, "claim 'ab' is too long"),
        (answer(("a", "cats", "cat sat")), {}, "no page has the title"),
        (answer(("a", "Cat", "cat sat")), {}, "no page has the title"),
        (answer(("a", "Cats ", "cat sat")), {}, "no page has the title"),
        (answer(("a", "", "cat sat")), {}, "no page has the title"),
        (answer(("a", "Cats", "A dog ran")), {}, "on no page of the title 'Cats'"),
        (answer(("a", "Do", "A dog ran")), {}, "on no page of the title 'Do'"),
        (answer(("a", "Cats", "Cat sat")), {}, "on no page"),
        (answer(("a", "Cats", "mat. It was")), {}, "on no page"),
        (answer(("a", "Dogs", "did%, é and é.Another")), {}, "on no page"),
        (answer(("a", "Cats", "The cat [...] until noon")), {}, "on no page"),
        (answer(("a", "Cats", "cat ")), {}, "is too short"),
        (answer(("a", "Cats", "")), {}, "is too short"),
        (answer(("a", "Cats", "cat sat")), {"maximum_quote": 6}, "is too long"),
        (answer(("a", "Cats", "The cat [...] noon")), {"omissions": 1}, "'noon' is too short"),
        (
            answer(("a", "Cats", "The cat [...] noon.")),
            {"omissions": 1, "maximum_quote": 6},
            "long",
        ),
        (answer(("a", "Cats", "The cat [...] xnoon")), {"omissions": 1}, "on no page"),
        (answer(("a", "Cats", "The cat [...] cat sat [...] until")), {"omissions": 1}, "2 omiss"),
        (answer(("a", "Cats", " [...] until noon")), {"omissions": 1}, "'' is too short"),
    ],
)
def test_what_must_not_be_is_named(text, rules, named):
    found = faults_of_text(text, PAGES, dataclasses.replace(RULES, **rules))
    assert any(named in fault for fault in found), found


def test_quotes_of_white_space_and_of_dots_are_empty():
    pages = [Page("T", "a       b ..... c [..] d")]
    blank, dots = answer(("x", "T", "      ")), answer(("x", "T", " ..... "))
    assert "is empty" in str(faults_of_text(blank, pages, RULES))
    assert faults_of_text(dots, pages, RULES) == []
    assert "is empty" in str(faults_of_text(dots, pages, dataclasses.replace(RULES, omissions=1)))
    much = answer(("x", "T", "     b"))
    assert faults_of_text(much, pages, RULES) == []
    limited = dataclasses.replace(RULES, maximum_quote=20)
    assert "much white space" in str(faults_of_text(much, pages, limited))
    assert faults_of_text(answer(("x", "T", "    b")), pages, limited) == []
    brackets = answer(("x", "T", "[[[[["))
    assert "is empty" in str(
        faults_of_text(brackets, [Page("T", "a[[[[[")], dataclasses.replace(RULES, omissions=1))
    )


def test_a_run_begins_and_ends_where_it_may_in_one_place():
    page = Page("T", "concat the cat", begins={0, 3, 7, 11}, ends={2, 6, 10, 14})

    def found(run, rules):
        return faults_of_text(answer(("x", "T", run)), [page], dataclasses.replace(RULES, **rules))

    short = {"minimum_quote": 1}
    assert found("cat the cat", {}) == found("cat", short) == found("co", short) == []
    for run in ("ncat the", "concat t", "n", "c", "at the cat", "conc"):
        assert found(run, short) == [f"the run {run!r} begins or ends where none may"], run
    both = {"omissions": 1, "minimum_quote": 3}
    assert found("cat [...] the", both) == []
    assert "'oncat' begins or ends" in str(found("cat [...] oncat", both))


def test_marks_of_a_page_are_never_quoted():
    pages = [
        Page("T", "one %< two >%( three )%[ four ]% five"),
        Page("a)%[", "another text"),
    ]
    for mark in MARKS[:3]:
        quote = pages[0][1][: pages[0][1].index(mark) + len(mark)]
        quote = quote[max(0, len(quote) - 8) :]
        assert "holds" in str(faults_of_text(answer(("a", "T", quote)), pages, RULES))
    assert faults_of_text(answer(("a", "a)%[", "another")), pages, RULES)


ROW = Sampled([7, 8, 9, 1, 0, 0], 4, end=1, padding=0, silent=frozenset({0, 1, 2}), size=20)


@pytest.mark.parametrize(
    ("changed", "max_tokens", "named"),
    [
        ({}, 4, None),
        ({}, 3, "4 tokens, where 3 may be"),
        ({"length": 0}, 4, "0 tokens"),
        ({"length": 7}, 9, "7 tokens"),
        ({"length": 3}, 4, "ends with token 9"),
        ({"tokens": [7, 1, 9, 1, 0, 0]}, 4, "stands inside"),
        ({"tokens": [7, 2, 9, 1, 0, 0]}, 4, "token 2 is no text"),
        ({"tokens": [7, 20, 9, 1, 0, 0]}, 4, "token 20 is no text"),
        ({"tokens": [7, -1, 9, 1, 0, 0]}, 4, "token -1 is no text"),
        ({"tokens": [7, 8, 9, 1, 0, 1]}, 4, "something but padding"),
    ],
)
def test_tokens_that_must_not_be_are_named(changed, max_tokens, named):
    row, rules = dataclasses.replace(ROW, **changed), Rules(max_tokens)
    found = faults(row, GOOD.encode(), GOOD, PAGES, rules)
    assert (found == []) if named is None else any(named in fault for fault in found), found


def test_characters_broken_at_the_edges_of_tokens_are_found():
    text = answer(("a", "Cats", "It was ☃ warm"))
    broken = text.encode().replace("☃".encode(), "☃".encode()[:2])
    found = faults(ROW, broken, broken.decode(errors="replace"), PAGES, Rules(4))
    assert "no UTF-8" in str(found)
    assert "library says" in str(faults(ROW, text.encode(), text + " ", PAGES, Rules(4)))


def legal(rng, documents):
    """A legal answer about pages that can be quoted, or None."""
    for _ in range(20):
        document = rng.choice(documents)
        start = rng.randrange(max(1, len(document.text)))
        quote = document.text[start : start + rng.randrange(5, 20)]
        text = answer(("claim", document.title, quote))
        if not faults_of_text(text, plain(documents), RULES):
            return text
    return None


def plain(documents):
    return [Page(document.title, document.text) for document in documents]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 32))
def test_legal_answers_that_are_damaged_are_judged_as_evidence_judges_them(seed):
    rng = random.Random(seed)
    documents = hostile_documents(rng, 60)
    text = legal(rng, documents)
    assume(text is not None)
    place = rng.randrange(len(text))
    damaged = {
        "dropped": text[:place] + text[place + 1 :],
        "doubled": text[:place] + text[place] + text[place:],
        "changed": text[:place] + rng.choice("a%<>()[] \u2003é") + text[place + 1 :],
        "cut": text[:place],
        "two swapped": text[:place] + text[place + 1 : place + 2] + text[place] + text[place + 2 :],
    }[rng.choice(["dropped", "doubled", "changed", "cut", "two swapped"])]
    agrees(damaged, documents, 0)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 1 << 32), st.integers(0, 2))
def test_the_judge_agrees_with_what_the_faults_of_evidence_say(seed, omissions):
    """Two readings of the rules, written apart: on texts that are nearly answers."""
    rng = random.Random(seed)
    documents = hostile_documents(rng, 60)
    scraps = [*MARKS, " ", " %<", "a", "claim", "]", "%", " [...] ", "é"]
    scraps += [document.title for document in documents]
    for document in documents:
        start = rng.randrange(max(1, len(document.text)))
        scraps += [document.text[start : start + rng.randrange(3, 12)]] * 2
    quote = "".join(rng.choice(scraps) for _ in range(rng.choice([1, 1, 2, 3])))
    text = answer((rng.choice(scraps), rng.choice(documents).title, quote))
    if rng.random() < 0.3:
        text += rng.choice(["", " ", "x"]) + answer((rng.choice(scraps), "T", rng.choice(scraps)))
    agrees(text, documents, omissions)


def agrees(text: str, documents: list[Document], omissions: int) -> None:
    """`evidence.faults` folds case, and takes other white space between triples: nothing else."""
    rules = Rules(1000, triples=9, omissions=omissions)
    by_judge = not faults_of_text(text, plain(documents), rules)
    by_evidence = not evidence.faults(text, documents, maximum_omissions=omissions)
    exact = by_evidence and text == " " + evidence.format(*(parsed := evidence.parse(text)))
    exact = exact and all(
        any(run in document.text for document in documents if document.title == each.title)
        for each in parsed
        for run in evidence.runs_of(each.quote, omissions)
    )
    assert by_judge == exact, (
        text,
        plain(documents),
        faults_of_text(text, plain(documents), rules),
    )


def test_no_character_outside_the_claim_can_be_another():
    for place in [1, 2, *range(10, len(GOOD))]:
        for other in set("abcdefghijklmnop %<>()[]") - {GOOD[place]}:
            assert faults_of_text(GOOD[:place] + other + GOOD[place + 1 :], PAGES, RULES)

"""The baseline without a model."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.answering.extractive import BASELINE, extractive_answer, relevance
from gophercite.answering.pages import FoundPages
from gophercite.documents import Document
from gophercite.records.answers import Answer, LeftOut, answer_from_json, answer_to_json
from gophercite.retrieval.contexts import SearchResult

ORMSBY = Document(
    "o",
    "Ormsby",
    "Ormsby\n\nOrmsby is a fishing town. Its tall\nlighthouse was built by Ada Fenwick. It rains.",
    "https://ormsby.example/",
    "2026-11-21T09:30:00Z",
)


def ask(question: str, *pages: Document) -> Answer:
    return extractive_answer(question, FoundPages(tuple(map(SearchResult, pages))))


def test_the_nearest_sentence_is_quoted_and_claimed() -> None:
    answer = ask("Who built the lighthouse of Ormsby? site:ormsby.example", ORMSBY)
    (citation,) = answer.citations
    assert citation.claim == "Its tall lighthouse was built by Ada Fenwick."
    assert citation.quote == "Its tall\nlighthouse was built by Ada Fenwick."
    assert ORMSBY.text[citation.start : citation.end] == citation.quote
    assert (citation.url, citation.retrieved_at) == (ORMSBY.url, ORMSBY.retrieved_at)
    assert citation.sha256 == ORMSBY.sha256
    assert answer.question == "Who built the lighthouse of Ormsby?"
    assert (answer.is_baseline, answer.model) == (True, BASELINE)
    assert answer.score is not None
    assert 0 < answer.score < 1
    assert evidence.faults(answer.text, [ORMSBY]) == frozenset()


def test_a_heading_that_only_repeats_the_question_is_no_answer() -> None:
    (citation,) = ask("Ormsby?", ORMSBY).citations
    assert citation.quote == "Ormsby is a fishing town."


def test_the_first_page_that_can_be_quoted_is_taken() -> None:
    marked = Document("m", "A ]% title", "The lighthouse was built by a ghost.")
    silent = Document("s", "Silent", "The lighthouse ]% was built %< by a ghost")
    huge = Document("h", "Huge", "lighthouse " * 200_000)
    answer = ask("Who built the lighthouse?", marked, silent, huge, ORMSBY)
    assert answer.citations[0].document == "o"
    assert [page.document for page in answer.left_out] == ["m", "s", "h"]


def test_what_is_far_into_a_huge_page_is_found_by_its_snippet() -> None:
    text = "It rained again. " * 100_000 + ORMSBY.text + " It rained again." * 100_000
    page = Document("h", "Huge", text)
    found = FoundPages((SearchResult(page, "lighthouse was built by Ada"),))
    (citation,) = extractive_answer("Who built the lighthouse?", found).citations
    assert citation.quote == "Its tall\nlighthouse was built by Ada Fenwick."
    assert page.text[citation.start : citation.end] == citation.quote


scraps = st.sampled_from(
    ["The light", "built", " ", ". ", ".\n\n", "%<", ">%(", ")%[", "]%", "]", "%", "é", "\x1b["]
) | st.text(max_size=3)
texts = st.lists(scraps, max_size=30).map("".join)


@given(st.text(max_size=20) | texts, st.lists(st.tuples(texts, texts), max_size=3))
def test_whatever_the_pages_hold_the_quote_is_theirs(
    question: str, contents: list[tuple[str, str]]
) -> None:
    pages = [Document(str(i), title, text) for i, (title, text) in enumerate(contents)]
    answer = ask(f"Who built {question}", *pages)
    for citation in answer.citations:
        page = pages[int(citation.document)]
        assert page.text[citation.start : citation.end] == citation.quote
        assert evidence.faults(answer.text, [page]) == frozenset()
    assert answer_from_json(json.loads(json.dumps(answer_to_json(answer)))) == answer


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (FoundPages(()), "no page was found for the question"),
        (FoundPages((SearchResult(Document("e", "E", " ")),)), "the only page that was found"),
        (
            FoundPages((), (LeftOut("u", "status 404"), LeftOut("v", "status 500"))),
            "none of the 2 pages that were found can be read; the first: status 404",
        ),
    ],
)
def test_without_a_sentence_it_declines_with_the_reason(found: FoundPages, reason: str) -> None:
    answer = extractive_answer("Who built the lighthouse?", found)
    assert answer.declined
    assert answer.reason is not None
    assert answer.reason.startswith(reason)
    assert answer.citations == ()


def test_what_the_pages_say_nothing_of_is_declined() -> None:
    question = "Which singer won the Ormsby prize for opera in Vienna?"
    answer = ask(question, ORMSBY)
    assert answer.declined
    assert answer.reason is not None
    assert "17% of the question's words" in answer.reason
    assert [page.document for page in answer.left_out] == ["o"]
    found = FoundPages((SearchResult(ORMSBY),))
    assert not extractive_answer(question, found, least_relevance=0).declined
    # A page that says more is taken, though it was found later.
    other = Document("v", "Vienna", "The opera prize was won by Vera Lund, a singer from Kell.")
    assert ask(question, ORMSBY, other).citations[0].document == "v"


@pytest.mark.parametrize(
    ("question", "title", "text", "share"),
    [
        ("Who built the tower?", "", "The tower was built.", 1.0),
        ("Who built the tower?", "Towers", "It was built.", 1.0),
        ("Who builds towers?", "", "The tower was being built.", 0.5),
        ("Who built the tower?", "", "Bees.", 0.0),
        ("Who is it?", "", "It is Ada.", 2 / 3),
        ("?", "", "It is Ada.", 0.0),
        ("tower", "", "x " * 300 + "the tower" + " x" * 300, 0.0),
    ],
)
def test_the_share_of_a_question_that_is_around_a_quote(
    question: str, title: str, text: str, share: float
) -> None:
    assert relevance(question, Document("d", title, text), 0, 5) == pytest.approx(share)


@pytest.mark.parametrize("least", [-0.1, 1.0])
def test_a_threshold_out_of_range_is_refused(least: float) -> None:
    with pytest.raises(ValueError, match="least_relevance"):
        extractive_answer("Who?", FoundPages(()), least_relevance=least)

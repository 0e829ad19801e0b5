"""Judgements at their boundaries."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evaluation import metrics
from gophercite.evaluation.evidence_overlap import EvidenceOverlap, evidence_overlap
from gophercite.evidence import Evidence, Fault
from gophercite.records import Hit, Question, Span

TEXT = "Ormsby is a town. Its lighthouse was built in 1874 by Ada Fenwick. It stands there."
PAGE = Document("o", "Ormsby", TEXT)
OTHER = Document("i", "Ilse", "The Ilse is a river. A mill was built in 1874 beside it.")
SENTENCE = "Its lighthouse was built in 1874 by Ada Fenwick."
START = TEXT.index(SENTENCE)
QUESTION = Question(
    id="q",
    question="When was the lighthouse of Ormsby built?",
    source="test",
    documents=(OTHER, PAGE, Hit("h", "a snippet")),
    answers=("1874", "the year 1874"),
    evidence=(Span("o", START, START + len(SENTENCE)),),
)


def write(claim: str = "1874.", title: str = "Ormsby", quote: str = SENTENCE) -> str:
    return f" %<{claim}>%({title})%[{quote}]%"


def test_a_right_answer() -> None:
    judgement = metrics.judge(write(), QUESTION)
    assert judgement == metrics.Judgement(
        triples=(Evidence("1874.", "Ormsby", SENTENCE),),
        faults=frozenset(),
        well_formed=True,
        verbatim=True,
        claim_correct=True,
        claim_f1=1.0,
        claim_rouge_l=1.0,
        quote_contains_answer=True,
        supported=True,
        overlap=EvidenceOverlap(1.0, 1.0),
    )


@pytest.mark.parametrize(
    ("text", "well_formed", "verbatim", "correct", "contains", "supported"),
    [
        ("1874", False, False, False, False, False),
        (write(claim="1875"), True, True, False, True, False),
        (write(quote=SENTENCE[1:]), True, True, True, True, False),
        (write(quote=f"town. {SENTENCE} It"), True, True, True, True, True),
        (write(quote=TEXT), True, True, True, True, True),
        (write(quote=SENTENCE.upper()), True, False, True, False, False),
        (write(quote="Ormsby is a town."), True, True, True, False, False),
        (write(quote=" "), True, False, True, False, False),
        (write(quote=""), True, False, True, False, False),
        (write(title="ormsby"), True, False, True, False, False),
        (write(title="Ilse"), True, False, True, False, False),
        (write(title="Ilse", quote=OTHER.text), True, True, True, True, False),
        (write(title="h", quote="a snippet"), True, False, True, False, False),
        (write(claim="the year") + write(claim="1874"), True, True, True, True, True),
        (write() + write(quote="no such words"), True, False, False, True, False),
        (write() + " and more", True, True, True, True, True),
    ],
)
def test_each_judgement_at_its_boundary(
    text: str, well_formed: bool, verbatim: bool, correct: bool, contains: bool, supported: bool
) -> None:
    judgement = metrics.judge(text, QUESTION)
    assert judgement.well_formed == well_formed == (Fault.MALFORMED not in judgement.faults)
    assert judgement.verbatim == verbatim
    assert judgement.claim_correct == correct
    assert judgement.quote_contains_answer == contains
    assert judgement.supported == supported


@pytest.mark.parametrize(
    ("claim", "equal", "contains"),
    [
        ("1874.", True, True),
        ("It was built in 1874, they say.", False, True),
        ("It was built in 18745.", False, False),
        ("Nobody knows.", False, False),
    ],
)
def test_a_claim_may_have_to_equal_an_answer_or_to_contain_one(
    claim: str, equal: bool, contains: bool
) -> None:
    for rule, correct in (("equal", equal), ("contain", contains)):
        judgement = metrics.judge(write(claim=claim), QUESTION, claims=rule)
        assert judgement.claim_correct == judgement.supported == correct
        unproven = metrics.judge(write(claim=claim, title="Ilse"), QUESTION, claims=rule)
        assert (unproven.claim_correct, unproven.supported) == (correct, False)


def test_the_runs_of_a_quote_that_leaves_words_out_are_judged_one_by_one() -> None:
    text = write(quote=f"Ormsby is a town. [...] {SENTENCE}")
    judgement = metrics.judge(text, QUESTION, maximum_omissions=1)
    assert judgement.verbatim
    assert judgement.supported
    assert not judgement.faults
    assert not metrics.judge(text, QUESTION).verbatim
    elsewhere = write(quote="Ormsby is a town. [...] The Ilse is a river.")
    assert not metrics.judge(elsewhere, QUESTION, maximum_omissions=1).verbatim


def test_of_a_gold_passage_the_answering_sentence_suffices() -> None:
    passage = dataclasses.replace(QUESTION, evidence=(Span("o", 0, len(TEXT)),))
    assert metrics.judge(write(), passage).supported
    assert metrics.judge(write(quote=TEXT), passage).supported
    assert not metrics.judge(write(quote="It stands there."), passage).supported
    assert not metrics.judge(write(quote="built in 1874"), passage).supported


def test_any_occurrence_of_the_quote_counts() -> None:
    page = Document("o", "Ormsby", "It is so. It is so. Yes.")
    question = dataclasses.replace(
        QUESTION, documents=(page,), answers=("so",), evidence=(Span("o", 10, 19),)
    )
    assert metrics.judge(write(claim="so", quote="It is so."), question).supported


@pytest.mark.parametrize(
    ("quotes", "gold", "precision", "recall"),
    [
        (["cdef"], [(2, 6)], 1.0, 1.0),
        (["cdefghij"], [(4, 8)], 0.5, 1.0),
        (["cd"], [(2, 6)], 1.0, 0.5),
        (["ab"], [(2, 6)], 0.0, 0.0),
        (["cd", "no such"], [(2, 4)], 2 / 9, 1.0),
        (["cd", "ef"], [(2, 6)], 1.0, 1.0),
        (["cde", "def"], [(2, 6)], 4 / 6, 1.0),  # what is quoted twice is long, and covered once
        (["cdef"], [(0, 3), (2, 7)], 1.0, 0.8),  # spans are alternatives: the one that fits best
        (["xy"], [(12, 14)], 1.0, 1.0),  # its second occurrence
        ([""], [(2, 6)], 0.0, 0.0),
        (["abcd"], [(3, 4), (0, 8)], 1.0, 0.5),  # F1 2/3, where the first span's is 2/5
        (["xy"], [(2, 4)], 0.0, 0.0),
        (["a"], [(0, 1), (0, 2)], 1.0, 1.0),
        (["abcdef"], [(0, 10), (2, 5)], 1.0, 0.6),  # 3/4 and 2/3
        (["abcdefgh"], [(0, 2), (5, 9)], 3 / 8, 0.75),  # 2/5 and 1/2
    ],
)
def test_quotes_beside_gold_evidence(
    quotes: list[str], gold: list[tuple[int, int]], precision: float, recall: float
) -> None:
    page = Document("o", "Ormsby", "abcdefghijxyxy")
    other = Document("i", "Ilse", page.text)
    spans = tuple(Span("o", *place) for place in gold)
    question = dataclasses.replace(QUESTION, documents=(page, other), evidence=spans)
    text = "".join(write(quote=quote) for quote in quotes)
    judgement = metrics.judge(text, question)
    assert judgement.evidence_precision == pytest.approx(precision)
    assert judgement.evidence_recall == pytest.approx(recall)
    elsewhere = "".join(write(quote=quote, title="Ilse") for quote in quotes)
    assert metrics.judge(elsewhere, question).evidence_recall == 0


def test_a_quote_that_stands_in_no_page_overlaps_nothing() -> None:
    page = Document("o", "Ormsby", "abcdef")
    assert evidence_overlap([("zz", [page])], [Span("o", 0, 2)]) == EvidenceOverlap(0.0, 0.0)
    both = evidence_overlap([("zz", [page]), ("ab", [page])], [Span("o", 0, 2)])
    assert both == EvidenceOverlap(0.5, 1.0)


def test_white_space_around_the_gold_evidence_need_not_be_quoted() -> None:
    wide = Span("o", START - 1, START + len(SENTENCE) + 1)
    question = dataclasses.replace(QUESTION, answers=(), evidence=(wide,))
    assert metrics.judge(write(), question).supported


def test_what_the_record_does_not_say_is_not_judged() -> None:
    bare = dataclasses.replace(QUESTION, answers=(), evidence=())
    judgement = metrics.judge(write(), bare)
    assert judgement.verbatim
    assert judgement.claim_correct is judgement.claim_f1 is judgement.claim_rouge_l is None
    assert judgement.evidence_precision is judgement.evidence_recall is None
    assert judgement.quote_contains_answer is judgement.supported is None
    spans_only = dataclasses.replace(QUESTION, answers=())
    assert metrics.judge(write(claim="whatever"), spans_only).supported


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from([*evidence.MARKS, "Ormsby", "1874", " "])).map("".join))
def test_any_text_can_be_judged(text: str) -> None:
    judgement = metrics.judge(text, QUESTION)
    if judgement.supported:
        assert judgement.claim_correct
        assert judgement.well_formed

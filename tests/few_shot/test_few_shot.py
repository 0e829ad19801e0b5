"""Few-shot prompts, ROUGE-L, evidence by rule, and quotes that leave words out."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import vocabularies

from gophercite import evidence, prompts
from gophercite.documents import Document
from gophercite.few_shot import examples
from gophercite.few_shot.evidence_search import find_evidence
from gophercite.few_shot.prompting import (
    FewShotSettings,
    Style,
    few_shot_context,
    few_shot_prompt,
    first_answer,
)
from gophercite.few_shot.splices import parts, restore
from gophercite.retrieval.contexts import ContextError, SearchResult
from gophercite.text.rouge import rouge_l, words
from gophercite.text.sentences import sentence_spans

PAGE = Document(
    "m",
    "Mills",
    "Mills were built by rivers. Water turned the wheel. Flour dust is fine and dry. "
    "In the air it burns at once. So many a mill exploded. Today filters catch the dust.",
)


# --- Prompts ---


@pytest.mark.parametrize("example", examples.SHORT, ids=lambda example: example.title)
def test_short_examples_are_true_to_their_pages(example: examples.Example) -> None:
    (triple,) = evidence.parse(example.answer)
    assert triple.title == example.title
    assert evidence.format(triple) == example.answer
    span = restore(triple.quote, example.text)
    assert span is not None
    assert len(parts(triple.quote)) > 1 or example.text[slice(*span)] == triple.quote


def test_long_examples_are_claims_alone() -> None:
    assert len(examples.LONG) == len(examples.SHORT) == 5
    for example in examples.LONG:
        assert not evidence.holds_mark(example.answer)
        assert not evidence.holds_mark(example.text)


@pytest.mark.parametrize("style", Style)
def test_a_prompt_has_the_examples_and_then_the_question(style: Style) -> None:
    settings = FewShotSettings(style, examples=3)
    text = few_shot_prompt("Why?", [PAGE], settings, random.Random(1))
    assert text.endswith(prompts.prompt("Why?", [PAGE]))
    assert text.count("\nQuestion: ") == text.count("\nAnswer:") == 4
    assert text == few_shot_prompt("Why?", [PAGE], settings, random.Random(1))
    drawn = {few_shot_prompt("Why?", [PAGE], settings, random.Random(n)) for n in range(600)}
    assert len(drawn) == 60  # any three of five in any order
    for example in examples.SHORT if style is Style.SHORT else examples.LONG:
        assert any(f"Page: {example.title}\n{example.text}\n\n" in text for text in drawn)
    with pytest.raises(ValueError, match=r"examples is 6; it must be in 0 … 5"):
        FewShotSettings(style, examples=6)


@pytest.mark.parametrize("vocabulary", vocabularies().values(), ids=vocabularies())
def test_pages_are_cut_to_what_the_examples_leave(vocabulary) -> None:  # type: ignore[no-untyped-def]
    long = Document("l", "Long", "It was dry. " * 400 + "Flour dust burns. " + "It was dry. " * 400)
    results = [SearchResult(long, "Flour dust burns."), SearchResult(PAGE)]
    bare = len(prompts.encode_text(vocabulary, few_shot_prompt("Why?", [], _ONE, random.Random(2))))
    for room in (150, 400):
        context = few_shot_context("Why?", results, bare + room, vocabulary, _ONE, random.Random(2))
        assert len(context.tokens) <= bare + room
        assert "Flour dust burns." in context.windows[0].text
        written = few_shot_prompt("Why?", context.windows, _ONE, random.Random(2))
        assert list(context.tokens) == prompts.encode_text(vocabulary, written)
    with pytest.raises(ContextError, match="question and titles leave no room"):
        few_shot_context("Why?", results, bare // 2, vocabulary, _ONE, random.Random(2))


_ONE = FewShotSettings(Style.SHORT, examples=1)


@pytest.mark.parametrize(
    ("continuation", "answer"),
    [
        (" It burns.", "It burns."),
        (" It burns.\n\nPage: Mill\nA mill\n\nQuestion: Why?", "It burns."),
        ("It burns.\nAnd dust.\nQuestion: Why?\nAnswer: No.", "It burns.\nAnd dust."),
        ("\n\nPage: Mill", ""),
        (" See the Page: it says so.", "See the Page: it says so."),
    ],
)
def test_the_answer_ends_where_another_example_begins(continuation: str, answer: str) -> None:
    assert first_answer(continuation) == answer


# --- ROUGE-L ---


def by_the_book(one: list[str], other: list[str]) -> float:
    """ROUGE-L's F1 by the textbook's table of longest common subsequences."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, left in enumerate(one):
        for j, right in enumerate(other):
            longer = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if left == right else longer
    common = table[-1][-1]
    if not common:
        return 0.0
    precision, recall = common / len(one), common / len(other)
    return 2 * precision * recall / (precision + recall)


_WORDS = ("the", "mill", "burned", "down", "in", "a", "dry", "year")
sentences = st.lists(st.sampled_from(_WORDS), max_size=12)


@settings(deadline=None)
@given(sentences, sentences)
def test_rouge_l_is_the_textbooks(one: list[str], other: list[str]) -> None:
    found = rouge_l(" ".join(one), " ".join(other).upper())
    assert found == pytest.approx(by_the_book(one, other))


def test_rouge_l_of_the_papers_example() -> None:
    """Lin 2004, section 3.1: S2 and S3 have 3 and 2 of S1's 4 words in order."""
    assert rouge_l("police killed the gunman", "police kill the gunman") == 0.75
    assert rouge_l("police killed the gunman", "the gunman kill police") == 0.5
    assert rouge_l("", "police") == 0


# --- Evidence ---


def test_evidence_has_two_sentences_more_than_the_claim() -> None:
    other = Document("o", "Other", "Flour is white. Bread is brown.")
    found = find_evidence("Flour dust burns in the air and a mill exploded.", [other, PAGE])
    assert found is not None
    assert found.document is PAGE
    assert found.quote == (
        "Flour dust is fine and dry. In the air it burns at once. So many a mill exploded."
    )
    two = find_evidence("Flour dust is fine. It burns at once.", [PAGE])
    assert two is not None
    assert len(sentence_spans(two.quote)) == 4


@settings(deadline=None)
@given(st.lists(st.sampled_from(["Mills burn.", "Dust flies.", "It is dry."]), max_size=9))
def test_no_run_of_sentences_is_nearer(parts: list[str]) -> None:
    page = Document("p", "P", " ".join(parts))
    claim = "Dust burns mills. It is dry."
    found = find_evidence(claim, [page])
    runs = [" ".join(parts[i : i + 4]) for i in range(max(1, len(parts) - 3))] if parts else []
    if found is None:
        assert not runs
    else:
        assert found.quote in runs
        best = max(by_the_book(words(claim), words(run)) for run in runs)
        assert found.score == pytest.approx(best)


def test_evidence_can_be_written() -> None:
    marked = Document("a", "A", "Flour dust )%[burns. Water turned the wheel. It is dry.")
    assert find_evidence("Flour dust burns.", [marked]) is None
    titled = Document("b", "B >%( b", PAGE.text)
    assert find_evidence("Flour dust burns.", [titled]) is None


# --- Splices ---


def test_what_was_left_out_is_put_back() -> None:
    span = restore("Mills were [...] water turned […] dry.", PAGE.text)
    assert span is not None
    assert PAGE.text[slice(*span)] == (
        "Mills were built by rivers. Water turned the wheel. Flour dust is fine and dry."
    )
    text = "It rained. It rained, and then the river rose."
    span = restore("It rained [...] rose", text)
    assert span is not None
    assert text[slice(*span)] == "It rained, and then the river rose"  # the shortest such run


@pytest.mark.parametrize(
    "quote", ["the wheel [...] Mills were", "Flour [...] flour", "wheat", "", "[...]", " [...] "]
)
def test_parts_that_do_not_stand_there_in_order_are_refused(quote: str) -> None:
    assert restore(quote, PAGE.text) is None


@settings(deadline=None)
@given(st.data())
def test_any_splice_of_a_text_is_found(data: st.DataObject) -> None:
    text = PAGE.text
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), min_size=4, max_size=4)))
    first, second = text[cuts[0] : cuts[1]], text[cuts[2] : cuts[3]]
    if not first.strip() or not second.strip():
        return
    span = restore(f"{first.strip()} [...] {second.strip()}", text)
    assert span is not None
    run = evidence.fold_case(text[slice(*span)])
    assert run.startswith(evidence.fold_case(first.strip()))
    assert run.endswith(evidence.fold_case(second.strip()))
    assert len(run) <= cuts[3] - cuts[0]

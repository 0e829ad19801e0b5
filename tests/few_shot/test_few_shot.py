"""Few-shot prompts, ROUGE-L, evidence by rule, and quotes that leave words out."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import vocabularies

from data_pipelines import citations
from gophercite import evidence, prompts
from gophercite.documents import Document, Window
from gophercite.few_shot import examples
from gophercite.few_shot.evidence_search import find_evidence
from gophercite.few_shot.plain_citations import as_citation, find_citation
from gophercite.few_shot.prompting import (
    FewShotSettings,
    Style,
    few_shot_context,
    first_answer,
    preamble,
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


def few_shot_prompt(
    question: str, sources: Sequence[Window | Document], settings: FewShotSettings, seed: int
) -> str:
    return preamble(settings, random.Random(seed)) + prompts.prompt(question, sources)


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
    text = few_shot_prompt("Why?", [PAGE], settings, 1)
    assert text.endswith(prompts.prompt("Why?", [PAGE]))
    assert text.count("\nQuestion: ") == text.count("\nAnswer:") == 4
    assert text == few_shot_prompt("Why?", [PAGE], settings, 1)
    drawn = {few_shot_prompt("Why?", [PAGE], settings, n) for n in range(600)}
    assert len(drawn) == 60  # any three of five in any order
    for example in examples.LONG if style is Style.LONG else examples.SHORT:
        assert any(f"Page: {example.title}\n{example.text}\n\n" in text for text in drawn)
    with pytest.raises(ValueError, match=r"examples is 6; it must be from 0 to 5"):
        FewShotSettings(style, examples=6)


def test_without_examples_the_prompt_is_that_of_the_question() -> None:
    settings = FewShotSettings(Style.CITED, examples=0)
    text = few_shot_prompt("Why?", [PAGE], settings, 1)
    assert text == prompts.prompt("Why?", [PAGE])


@pytest.mark.parametrize("vocabulary", vocabularies().values(), ids=vocabularies())
def test_pages_are_cut_to_what_the_examples_leave(vocabulary) -> None:  # type: ignore[no-untyped-def]
    long = Document("l", "Long", "It was dry. " * 400 + "Flour dust burns. " + "It was dry. " * 400)
    results = [SearchResult(long, "Flour dust burns."), SearchResult(PAGE)]
    bare = len(prompts.encode_text(vocabulary, few_shot_prompt("Why?", [], _ONE, 2)))
    for room in (150, 400):
        context = few_shot_context("Why?", results, bare + room, vocabulary, _ONE, random.Random(2))
        assert len(context.tokens) <= bare + room
        assert "Flour dust burns." in context.windows[0].text
        written = few_shot_prompt("Why?", context.windows, _ONE, 2)
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


def test_what_is_evidence_as_a_whole_is_not_cut() -> None:
    """A claim can have lines of its own, and is bad then, but the answer is well formed."""
    written = " %<old\n\nPage: Ormsby>%(Ormsby)%[Built in 1874.]%"
    assert first_answer(written) == written.strip()
    assert first_answer(f"{written}\nQuestion: Why?") == "%<old"


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


# --- Citations in plain words ---

TOWN = Document("t", "Ilba", "Ilba lies on the Dusa. The mayor of Ilba is Ida Haroa. It is old.")
RIVER = Document("r", "River Dusa", "The Dusa is 12 km long. It was bridged in 1904.")


@pytest.mark.parametrize("style", citations.STYLES)
def test_every_style_of_the_pretraining_texts_is_read(style: str) -> None:
    sentence = "The mayor of Ilba is Ida Haroa."
    written = style.format(answer="Ida Haroa", title="Ilba", sentence=sentence)
    found = find_citation(first_answer(written), [RIVER, TOWN])
    assert found == evidence.Evidence("Ida Haroa", "Ilba", sentence)


def test_examples_with_citations_are_read_as_they_are_written() -> None:
    for example in examples.SHORT:
        (triple,) = evidence.parse(example.answer)
        span = restore(triple.quote, example.text)
        assert span is not None
        page = Document("p", example.title, example.text)
        prompt = few_shot_prompt("?", [], FewShotSettings(Style.CITED, 5), 0)
        start = prompt.index(f"Question: {example.question}\nAnswer:")
        answer = first_answer(prompt[start:].partition("Answer:")[2])
        found = find_citation(answer, [page])
        assert found is not None
        assert found.claim == triple.claim.rstrip(".")
        assert example.text[slice(*span)] in found.quote
        assert found.quote in example.text


@pytest.mark.parametrize(
    ("answer", "claim"),
    [
        ('Ida Haroa of Ilba (Ilba: "The mayor of Ilba is Ida Haroa.")', "Ida Haroa of Ilba"),
        ('"Ida" (see Ilba) "Ilba lies on the Dusa. The mayor of Ilba is Ida Haroa."', "Ida"),
        ("Ida. Source: Ilba. It is old.", "Ida"),
        ("Ida . \n Page:  Ilba. It is old.", "Ida"),
        ("“Ida's” (Ilba: It is old.)", "Ida's"),
        ("'Ida's' (Ilba: It is old.)", "Ida's"),
        ('She says "no" (Ilba: It is old.)', 'She says "no"'),
        ('"Ida" and "Ilba" (Ilba: It is old.)', '"Ida" and "Ilba"'),
        ("It is the dogs' (Ilba: It is old.)", "It is the dogs'"),
    ],
)
def test_a_claim_may_name_the_page_and_quotes_have_whole_sentences(answer: str, claim: str) -> None:
    found = find_citation(answer, [TOWN])
    assert found is not None
    assert found.claim == claim
    assert found.quote in TOWN.text
    assert found.quote in answer


@pytest.mark.parametrize(
    "answer",
    [
        "Ida Haroa",
        'Ida Haroa (Ilba: "The mayor is somebody else.")',  # no sentence of the page
        'Ida Haroa (Elba: "The mayor of Ilba is Ida Haroa.")',  # no page of that title
        '(Ilba: "The mayor of Ilba is Ida Haroa.")',  # no claim
        'Ida]% (Ilba: "The mayor of Ilba is Ida Haroa.")',  # a reserved mark
        'Ida Haroa, Ilba: "The mayor of Ilba is Ida Haroa."',  # the title is part of the claim
        "Ida.Source: Ilba. It is old.",  # likewise
        "1904."
        + 50_000 * "\n"
        + "Ilba. It is old.",  # and with the backtracking of a pattern, hours
    ],
)
def test_what_is_no_citation_is_not_read(answer: str) -> None:
    assert find_citation(answer, [RIVER, TOWN]) is None


@given(st.text(max_size=80), st.text(max_size=30), st.text(max_size=80))
def test_whatever_is_read_is_verbatim_and_can_be_written(a: str, title: str, b: str) -> None:
    page = Document("p", title or "T", b or ".")
    for answer in (a, f"{a} ({page.title}: {b}", f"{b} (see {page.title}) {a}{page.text}"):
        found = find_citation(answer, [page])
        if found is not None:
            assert found.quote in page.text
            assert found.title == page.title
            assert evidence.parse(evidence.format(found)) == (found,)


def test_citations_are_written_so_that_they_are_read() -> None:
    triple = evidence.Evidence("In 1904", "River Dusa", "It was bridged in 1904.")
    assert find_citation(as_citation(triple), [TOWN, RIVER]) == triple

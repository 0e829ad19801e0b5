"""Pages that are tokenised once give the windows and prompts that tokenising anew would give."""

import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabulary_fixtures import metaspace_json, split_json, splits_by, trained

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.tokenised_pages import TokenisedPage, TokenisedPages
from gophercite.retrieval.training_contexts import training_context
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import HuggingFaceVocabulary
from gophercite.vocabularies.hugging_face import LLAMA_3_WORDS

UNIGRAM = trained()
BPE = trained("bpe")
BYTES = HuggingFaceVocabulary(split_json(splits_by(LLAMA_3_WORDS)))
VOCABULARIES = pytest.mark.parametrize(
    "vocabulary", [UNIGRAM, BPE, BYTES], ids=["unigram", "bpe", "as Llama 3's"]
)

ODD = ["水車", "naïve", "a" * 90, "\u2581", "]%", "%<", "🏠", "\t", "."]
WORDS = st.sampled_from(["The", "mill", "of", "Ormsby", "burned.", "1812", "Dr.", *ODD])
SPACES = st.sampled_from([" ", " ", " ", "\n", "\n\n", "  ", "\u00a0", "\t", "\n ", ""])
TEXTS = st.lists(st.tuples(WORDS, SPACES), max_size=80).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)


def spans_of(data, text: str) -> tuple[int, int]:
    start = data.draw(st.integers(0, len(text)))
    return start, data.draw(st.integers(start, min(len(text), start + 60)))


@VOCABULARIES
@given(text=TEXTS, data=st.data())
def test_counts_are_those_of_the_tokenizer(vocabulary, text: str, data) -> None:
    document = Document("d", "D", text)
    start, end = spans_of(data, document.text)
    page = TokenisedPage(document, vocabulary)
    assert page.count(start, end) == len(vocabulary.encode(document.text[start:end]))
    assert len(page.plain) == len(document.text)


@VOCABULARIES
@given(text=TEXTS, budget=st.integers(0, 60), seed=st.integers(), data=st.data())
def test_a_window_holds_the_span_within_the_budget(vocabulary, text, budget, seed, data) -> None:
    document = Document("d", "D", text)
    span = spans_of(data, document.text)
    page = TokenisedPage(document, vocabulary)
    window = page.training_window(span, budget, random.Random(seed))
    if window is None:
        assert budget == 0 or len(vocabulary.encode(document.text[slice(*span)])) > budget
        return
    assert window.start <= span[0] <= span[1] <= window.end
    assert len(vocabulary.encode(window.text)) <= budget
    assert window == page.training_window(span, budget, random.Random(seed))


def test_every_legal_start_is_reached_and_no_word_more_fits() -> None:
    text = " ".join(f"Sentence number {number} says little." for number in range(40))
    document = Document("d", "D", text)
    page = TokenisedPage(document, UNIGRAM)
    start = text.index("number 20")
    span, budget = (start, start + 9), 120
    legal = {
        first
        for first, _ in sentence_spans(text)
        if first <= start and len(UNIGRAM.encode(text[first : span[1]])) <= budget
    }
    assert len(legal) > 3
    windows = [page.training_window(span, budget, random.Random(seed)) for seed in range(400)]
    assert {window.start for window in windows if window} == legal
    for window in windows:
        assert window is not None
        following = text[window.end :].split()[0]
        assert len(UNIGRAM.encode(f"{window.text} {following}")) > budget


@VOCABULARIES
@given(texts=st.lists(TEXTS, max_size=4), question_first=st.booleans(), data=st.data())
def test_a_prompt_has_the_tokens_of_its_text(vocabulary, texts, question_first, data) -> None:
    vocabulary = copy.copy(vocabulary)
    vocabulary.question_first = question_first
    pages = TokenisedPages(vocabulary, held_characters=200)
    documents = [Document(str(n), f"Page {n} ", text) for n, text in enumerate(texts)]
    shown = [Window(document, *spans_of(data, document.text)) for document in documents]
    for question in ("When?", "  When? "):
        expected = prompts.encode_prompt(vocabulary, question, shown)
        assert pages.encode_prompt(question, shown) == expected


def test_prompts_of_training_are_the_tokenizers_own() -> None:
    pages = TokenisedPages(UNIGRAM)
    documents = [
        Document(str(n), f"Town {n}", f"It has {n} mills. The river is old. Ships call. " * 60)
        for n in range(4)
    ]
    target, *rest = documents
    others = [SearchResult(page, "The <b>river</b> is old. Ships call … ") for page in rest]
    for seed in range(30):
        context = training_context("How many?", target, "It has 0 mills.", others, 300, UNIGRAM,
                                   random.Random(seed), pages=pages)  # fmt: skip
        assert len(context.tokens) <= 300
        expected = prompts.encode_prompt(UNIGRAM, "How many?", context.windows)
        assert list(context.tokens) == expected
        assert any("It has 0 mills." in window.text for window in context.windows)


def test_pages_are_held_and_replaced() -> None:
    pages = TokenisedPages(UNIGRAM, held_characters=25)
    first, second = Document("1", "A", "ten letters"), Document("2", "B", "eleven signs")
    held = pages.page(first)
    assert pages.page(Document("1", "A", "ten letters")) is held
    assert pages.page(second) is pages.page(second)
    assert pages.page(first) is held
    assert pages.page(Document("1", "A", "another")).document.text == "another"
    pages.page(Document("3", "C", "x" * 40))  # more than may be held, and held alone
    assert pages.page(second) is not held


def test_other_vocabularies_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens that span several words"):
        TokenisedPages(HuggingFaceVocabulary(metaspace_json("none")))

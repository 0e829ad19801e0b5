"""Windows: inside the page, around the span, within the budget, from a legal start."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import vocabularies

from gophercite.documents import Document, Window
from gophercite.retrieval.windows import (
    CHARACTERS_BEFORE,
    LONGEST_WORD,
    inference_window,
    training_window,
)
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary
from gophercite.vocabularies.word_store import Words

VOCABULARIES = vocabularies()
UNIGRAM = VOCABULARIES["unigram"]

SENTENCES = [
    "The lighthouse of Ormsby was built in 1874. ",
    "Was it lit with whale oil? ",
    "Dr. J. Fenwick knew no. 5 of them.\n",
    "Trade\n\n",
    "- salt\n- herring\n",
    "日本の灯台。",
    "Most families work in the harbour, e.g. in the salt yards! ",
    "    ",
    "é€5 “naïve” façades ",
]
pages = st.one_of(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=30).map("".join),
    st.text(max_size=200),
)
kinds = st.sampled_from(sorted(VOCABULARIES))


@st.composite
def spans(draw: st.DrawFn) -> tuple[Document, tuple[int, int]]:
    page = Document("p", "A page", draw(pages))
    start = draw(st.integers(0, len(page.text)))
    return page, (start, draw(st.integers(start, min(len(page.text), start + 80))))


def tokens(vocabulary: Vocabulary, text: str) -> int:
    return len(vocabulary.encode(text))


def check(window: Window | None, span: tuple[int, int], budget: int, vocabulary: Vocabulary):
    """What holds for windows of both kinds."""
    if window is None:
        return
    text = window.document.text
    assert window.text in text
    assert window.start <= span[0] <= span[1] <= window.end
    assert tokens(vocabulary, window.text) <= budget
    sentences = {start for start, _ in sentence_spans(text)} | {0}
    if window.start not in sentences:
        # Then no sentence start that can be seen from the span would have done, and it is the
        # start of a line or of a word, or the span's.
        assert max(start for start in sentences if start <= span[0]) < window.start
        assert window.start == span[0] or text[window.start - 1].isspace()
    cuts_a_word = window.end < len(text) and not text[window.end].isspace()
    assert not cuts_a_word or window.end == span[1] or not any(map(str.isspace, window.text[-40:]))


@given(spans(), st.integers(0, 120), kinds, st.integers(0, 9))
def test_training_windows_keep_their_promises(page_and_span, budget, kind, seed) -> None:
    page, span = page_and_span
    vocabulary = VOCABULARIES[kind]
    window = training_window(page, span, budget, vocabulary, random.Random(seed))
    check(window, span, budget, vocabulary)
    again = training_window(page, span, budget, vocabulary, random.Random(seed))
    assert window == again
    if budget > 0 and tokens(vocabulary, page.text[slice(*span)]) <= budget:
        assert window is not None


@given(spans(), st.integers(0, 120), kinds, st.sampled_from([0, 30, CHARACTERS_BEFORE]))
def test_inference_windows_keep_their_promises(page_and_span, budget, kind, before) -> None:
    page, span = page_and_span
    vocabulary = VOCABULARIES[kind]
    window = inference_window(page, span, budget, vocabulary, before=before)
    check(window, span, budget, vocabulary)
    if window is None:
        assert budget == 0 or tokens(vocabulary, page.text[slice(*span)]) > budget
    elif len(window.text) < len(page.text):
        assert span[0] - window.start <= before
        earlier = [
            start
            for start, _ in sentence_spans(page.text)
            if span[0] - before <= start < window.start
            and tokens(vocabulary, page.text[start : span[1]]) <= budget
        ]
        assert earlier == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(SENTENCES), min_size=8, max_size=40), st.data(), kinds)
def test_every_legal_start_is_reached_in_training(sentences, data, kind) -> None:
    page = Document("p", "A page", "".join(sentences))
    vocabulary = VOCABULARIES[kind]
    budget = data.draw(st.integers(20, 60))
    assume(tokens(vocabulary, page.text) > budget)
    start = data.draw(st.integers(0, len(page.text) - 1))
    span = (start, min(len(page.text), start + 20))
    begins = [begin for begin, _ in sentence_spans(page.text) if begin <= start]
    legal, also_legal = (
        {b for b in begins if any(tokens(vocabulary, page.text[b:end]) <= budget for end in ends)}
        for ends in (span[1:], range(span[1], span[1] + LONGEST_WORD))
    )
    windows = (
        training_window(page, span, budget, vocabulary, random.Random(seed)) for seed in range(150)
    )
    reached = {window.start for window in windows if window is not None}
    assert legal <= reached
    # Half a word, where the span ends, may have more tokens than the whole.
    assert not legal or reached <= also_legal


def test_starts_are_drawn_evenly() -> None:
    page = Document("p", "A page", "".join(f"This is sentence {i}. " for i in range(60)))
    place = page.text.index("sentence 30")
    counts: dict[int, int] = {}
    for seed in range(600):
        window = training_window(page, (place, place + 11), 90, UNIGRAM, random.Random(seed))
        assert window is not None
        counts[window.start] = counts.get(window.start, 0) + 1
    assert len(counts) > 3
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_window_far_into_a_long_page_is_as_if_the_page_were_short() -> None:
    filling = "A sentence of filling, such as Mr. J. Ilse wrote. " * 4000
    near = "".join(f"Here is sentence {i}. " for i in range(40))
    page = Document("p", "A page", filling + near + filling)
    assert len(page.text) > 400_000
    place = page.text.index("sentence 20")
    span = (place, place + 11)
    starts = {start for start, _ in sentence_spans(page.text)}
    for seed in range(20):
        window = training_window(page, span, 90, UNIGRAM, random.Random(seed))
        assert window is not None
        assert window.start in starts
        assert window.start <= span[0] < span[1] <= window.end
        assert 80 <= tokens(UNIGRAM, window.text) <= 90
    window = inference_window(page, span, 90, UNIGRAM, before=50)
    assert window is not None
    assert window.text.startswith("Here is sentence 18. Here is sentence 19. Here is sentence 20.")


class Counting(type(UNIGRAM)):  # type: ignore[misc]
    """A vocabulary that counts what it is given to tokenise."""

    characters = 0

    def encode(self, text: str) -> list[int]:
        self.characters += len(text)
        return super().encode(text)

    def words(self, text: str) -> Words:
        self.characters += len(text)
        return super().words(text)


def test_only_the_neighbourhood_of_the_span_is_tokenised(tmp_path) -> None:
    UNIGRAM.save(tmp_path)
    sentence = "The lighthouse of Ormsby was built in 1874. "
    costs = []
    for size in (2_000, 20_000):
        vocabulary = Counting.from_file(tmp_path / "vocabulary.model")
        page = Document("p", "A page", sentence * size)
        middle = len(sentence) * (size // 2)
        assert training_window(page, (middle, middle + 9), 100, vocabulary, random.Random(0))
        costs.append(vocabulary.characters)
    assert max(costs) < 100 * 40
    assert abs(costs[0] - costs[1]) < 100  # words are looked up in blocks, from another place


def test_a_span_outside_the_page_is_refused() -> None:
    page = Document("p", "A page", "Short.")
    for span in [(0, 7), (-1, 3), (4, 2)]:
        with pytest.raises(ValueError, match="outside document 'p', whose text has 6"):
            inference_window(page, span, 10, UNIGRAM)


@pytest.mark.parametrize("text", [" " * 50_000, "\n" * 50_000, "a. A. " * 9_000, "." * 50_000])
def test_hostile_pages_end(text: str) -> None:
    page = Document("p", "A page", text)
    for budget in (1, 40):
        span = (25_000, 25_001)
        check(inference_window(page, span, budget, UNIGRAM), span, budget, UNIGRAM)
        window = training_window(page, span, budget, UNIGRAM, random.Random(0))
        check(window, span, budget, UNIGRAM)

"""What is looked up once is what tokenising each part of a page anew gives."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import PIECES_OF_TEXT, split_json, splits_by, vocabularies

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.retrieval import word_tables
from gophercite.retrieval.new_pages import NewPages
from gophercite.retrieval.token_budgets import TokenBudget
from gophercite.retrieval.windows import inference_window, token_budget, training_window
from gophercite.retrieval.word_tables import WordTable
from gophercite.vocabularies import HuggingFaceVocabulary
from gophercite.vocabularies.hugging_face import LLAMA_3_WORDS, QWEN_WORDS
from tests.long_forms import IS_LONG

VOCABULARIES = {
    **vocabularies(),
    "as Llama 3's": HuggingFaceVocabulary(split_json(splits_by(LLAMA_3_WORDS))),
    "as Qwen's": HuggingFaceVocabulary(split_json(splits_by(QWEN_WORDS))),
}
SPLITTING = [name for name, each in VOCABULARIES.items() if each.splits_words]
WORDS = [
    *("The", "mill", "of", "Ormsby", "burned.", "1812", "Dr.", "Why?", "naïve"),
    *("antidisestablished", "水車小屋", "日本の灯台。", "🏠", "\u2581", "“It’s”", "a" * 90, "http://a.org/b?c=d"),
]  # fmt: skip
SPACES = [*[" "] * 9, "\n", "\n\n", "  ", "\xa0", "\t", "\n ", "", " \t", "\u3000", "     "]
KINDS_OF_TEXT = [
    *((WORDS[:8], [" "]), (WORDS, SPACES), (PIECES_OF_TEXT, SPACES)),
    (["harbour", "harbour", "harbour", "old."], [" "]),  # more characters a token than is usual
    (["a" * 20, "a" * 90, "mill"], [" "]),  # words of very many tokens
]
# For each of many kinds and sizes; each run draws others.
FEW = settings(max_examples=100 if IS_LONG else 12, deadline=None)


def some_text(draw: random.Random) -> str:
    words, spaces = draw.choice(KINDS_OF_TEXT)
    pairs = range(draw.choice((0, 3, 20, 100, 300)))
    text = "".join(draw.choice(words) + draw.choice(spaces) for _ in pairs)
    if draw.random() < 0.1:
        text += draw.choice((" ", "\n", "a", "水")) * draw.randrange(200) + text
    return text


@pytest.fixture(scope="module", params=[(16, 24), (64, 1024), (2048, 1024)], ids=str)
def sizes(request):
    """Of blocks, and of words that are searched for their ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_tables, "_BLOCK", request.param[0])
        patch.setattr(word_tables, "_SEARCHED", request.param[1])
        yield


@pytest.mark.parametrize("kind", VOCABULARIES)
@FEW
@given(seed=st.integers(0, 1 << 32))
def test_windows_are_those_of_tokenising_anew(sizes, kind: str, seed: int) -> None:
    draw, vocabulary = random.Random(seed), VOCABULARIES[kind]
    page = Document("p", "A page", some_text(draw))
    start = draw.randrange(len(page.text) + 1)
    span = (start, min(len(page.text), start + draw.choice((0, 5, 60))))
    budget = draw.choice((1, 3, 7, 20, 60, 150, 400))
    plain, known = TokenBudget(page.text, vocabulary), token_budget(page, vocabulary)
    for tokens in (vocabulary, known, known):  # the second time from what it knows
        window = training_window(page, span, budget, tokens, random.Random(seed))
        assert window == training_window(page, span, budget, plain, random.Random(seed))
        window = inference_window(page, span, budget, tokens, before=100)
        assert window == inference_window(page, span, budget, plain, before=100)


@pytest.mark.parametrize("kind", SPLITTING)
@FEW
@given(seed=st.integers(0, 1 << 32))
def test_answers_are_those_of_tokenising_anew(sizes, kind: str, seed: int) -> None:
    draw, vocabulary = random.Random(seed), VOCABULARIES[kind]
    page = Document("p", "A page", some_text(draw))
    text = page.text
    plain, table = TokenBudget(text, vocabulary), WordTable(text, vocabulary)
    for _ in range(4):
        start, least, end = sorted(draw.randrange(len(text) + 1) for _ in range(3))
        budget = draw.choice((1, 3, 7, 20, 60, 150))
        assert table.count(start, end) == plain.count(start, end)
        assert table.fits(start, end, budget) == plain.fits(start, end, budget)
        assert table.reach((start, least), budget) == plain.reach((start, least), budget)
        expected = plain.longest_end(start, least, budget)
        assert table.longest_end(start, least, budget) == expected
        head, ids, tail = table.pieces(Window(page, start, end))
        assert head + vocabulary.decode(ids) + tail == text[start:end]


@pytest.mark.parametrize("kind", VOCABULARIES)
@FEW
@given(seed=st.integers(0, 1 << 32))
def test_prompts_have_the_tokens_of_their_text(sizes, kind: str, seed: int) -> None:
    draw, vocabulary = random.Random(seed), VOCABULARIES[kind]
    pages = [Document(str(n), f"Page {n} ", some_text(draw)) for n in range(draw.randrange(4))]
    pages.append(Document("0", "Another with its id", some_text(draw)))
    known = NewPages(vocabulary)
    shown = []
    for page in pages:
        start, end = sorted(draw.randrange(len(page.text) + 1) for _ in range(2))
        known.inference_window(page, (start, start), 20, 100)
        shown.append(Window(page, start, end))
    with pytest.MonkeyPatch.context() as patch:
        for question_first in (False, True):
            patch.setattr(vocabulary, "question_first", question_first)
            expected = prompts.encode_prompt(vocabulary, "  When? ", shown)
            assert known.encode_prompt("  When? ", shown) == expected


def test_no_word_of_prose_is_tokenised_for_several_counts(monkeypatch) -> None:
    text = "The mill of Ormsby was old. It burned in 1812, and Dr. Fenwick knew why it did. " * 90
    page, place = Document("p", "A page", text), len(text) // 2
    vocabulary = VOCABULARIES["unigram"]
    asked: list[str] = []
    encode = vocabulary.encode
    monkeypatch.setattr(vocabulary, "encode", lambda text: asked.append(text) or encode(text))
    for budget, seed in itertools.product((60, 200, 700), range(5)):
        draw = random.Random(seed)
        assert training_window(page, (place, place + 9), budget, vocabulary, draw) is not None
    # What is left is words that a span or a window's start cuts.
    assert asked
    assert max(map(len, asked)) < 20

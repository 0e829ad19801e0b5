"""The words of long texts and their tokens are those that the tokenizer gives word by word."""

import concurrent.futures
import itertools
import re
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import (
    PIECES_OF_TEXT,
    metaspace_json,
    nfc_byte_level_json,
    split_json,
    splits_by,
    trained,
)

from gophercite.vocabularies import HuggingFaceVocabulary, Vocabulary, VocabularyError, word_store
from gophercite.vocabularies.hugging_face import LLAMA_3_WORDS
from gophercite.vocabularies.word_store import Words, WordStore

VOCABULARIES: dict[str, Vocabulary] = {
    "unigram": trained(),
    "bpe": trained("bpe"),
    "as Llama 3's": HuggingFaceVocabulary(split_json(splits_by(LLAMA_3_WORDS))),
    "NFC": HuggingFaceVocabulary(nfc_byte_level_json()),
}
PIECES = [*PIECES_OF_TEXT, " ", " ", "a" * 50, "\U0010ffff", "\x1c", "\u3000", "水車"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def check(words: Words, text: str, vocabulary: Vocabulary) -> None:
    """Compares with words that are cut and tokenised one by one."""
    expected = re.split(r"(?<=\S)(?= )", text) if text else []
    cut = itertools.pairwise(words.bounds.tolist())
    assert [text[start:end] for start, end in cut] == expected
    tokens = [vocabulary.encode(word) for word in expected]
    assert words.sums.tolist() == [0, *itertools.accumulate(map(len, tokens))]
    assert words.ids(0, len(tokens)) == vocabulary.encode(text)
    for first, last in itertools.combinations(range(min(len(tokens), 6)), 2):
        together = itertools.chain.from_iterable(tokens[first:last])
        assert words.ids(first, last) == list(together)


@pytest.mark.parametrize("kind", VOCABULARIES)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
@example(text="")
@example(text=" a  b\n c \n d\t e.  ")
def test_words_and_tokens_are_the_tokenizers(kind: str, text: str) -> None:
    check(VOCABULARIES[kind].words(text), text, VOCABULARIES[kind])


def test_white_space_is_what_python_has() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [c for c in characters if word_store._is_space(ord(c)) != c.isspace()] == []


def test_words_of_one_hash_are_told_apart(monkeypatch) -> None:
    vocabulary = VOCABULARIES["bpe"]
    monkeypatch.setattr(word_store, "_SEED", 0)
    store = WordStore(vocabulary.encode)
    for length in (2, 3, 1, 8, 2):  # by their lengths: 0 times any factor remains 0
        check(store.words("\0" * length), "\0" * length, vocabulary)
    store.words(" mill")
    (place,) = (store._table.records == ord("m")).nonzero()
    store._table.records[place] = ord("k")  # and by their characters
    check(store.words(" mill"), " mill", vocabulary)
    assert store._words == 6


@pytest.mark.parametrize("full", ["_WORDS", "_NUMBERS"])
def test_a_full_table_is_begun_anew(full: str, monkeypatch) -> None:
    vocabulary = VOCABULARIES["unigram"]
    monkeypatch.setattr(word_store, full, 8)
    store = WordStore(vocabulary.encode)
    kept = store.words("The mill of Ormsby")
    for text in ("The mill of Ormsby", " was old" * 3, "one two three four five six", "é" * 30):
        check(store.words(text), text, vocabulary)
    check(kept, "The mill of Ormsby", vocabulary)  # it keeps its own table
    long = " ".join(f"word{number}" for number in range(300))
    check(store.words(long), long, vocabulary)


def test_words_are_tokenised_once() -> None:
    met: list[str] = []
    store = WordStore(lambda word: met.append(word) or [1])  # type: ignore[func-returns-value]
    store.words(" a a bb  a")
    store.words(" bb a")
    assert met == [" a", " bb", "  a"]


def test_threads_share_a_store(monkeypatch) -> None:
    monkeypatch.setattr(word_store, "_WORDS", 64)
    vocabulary = VOCABULARIES["unigram"]
    store = WordStore(vocabulary.encode)
    texts = [" ".join(f"w{n * seed % 97}" for n in range(200)) for seed in range(1, 40)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for text, words in zip(texts, pool.map(store.words, texts), strict=True):
            check(words, text, vocabulary)


def test_what_has_no_words_or_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens that span several words"):
        HuggingFaceVocabulary(metaspace_json("none")).words("a b")
    with pytest.raises(VocabularyError, match=r"lone surrogate .* at character 3"):
        VOCABULARIES["bpe"].words("a b\ud800 c")

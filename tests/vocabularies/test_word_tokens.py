"""Texts are tokenised word by word where no token reaches over the end of a word."""

import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import BYTE_LEVEL, PIECES_OF_TEXT, split_json, splits_by, trained

from gophercite.vocabularies import HuggingFaceVocabulary
from gophercite.vocabularies.hugging_face import LLAMA_3_WORDS, QWEN_WORDS
from gophercite.vocabularies.vocabulary import WORD

PARTS = st.lists(st.sampled_from(["The", "mill", "\u2581", "]%", "%<", "é", " ", "\n", "  "]))


@settings(deadline=None)
@given(PARTS.map("".join))
def test_words_cover_a_text(text: str) -> None:
    words = WORD.findall(text)
    assert "".join(words) == text
    assert all(word.strip(" \n") for word in words[:-1])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@settings(deadline=None)
@given(before=PARTS.map("".join), behind=PARTS.map("".join))
def test_tokens_are_divided_where_a_word_ends(kind: str, before: str, behind: str) -> None:
    vocabulary = trained(kind)
    assert vocabulary.splits_words
    before = before.rstrip(" \n") + "x"
    text = f"{before} {behind}"
    assert vocabulary.encode(text) == vocabulary.encode(before) + vocabulary.encode(f" {behind}")
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_short_texts_have_the_models_own_tokens() -> None:
    vocabulary = trained()
    text = "The lighthouse of Ormsby was built in 1874 by the engineer Ada Fenwick.\nIt stands."
    assert vocabulary.encode(text) == vocabulary._tokenize(text)


def test_words_that_were_met_before_have_the_same_tokens() -> None:
    vocabulary = trained()
    first = vocabulary.encode("a word and a word")
    first.append(0)  # what a caller does with its list changes nothing
    again = vocabulary.encode("a word and a word")
    assert again == first[:-1]


def byte_level(splits: list[dict[str, object]], **changed: object) -> HuggingFaceVocabulary:
    """A byte-level tokenizer that splits texts so, with tokens for whatever is not split."""
    return HuggingFaceVocabulary(json.dumps(json.loads(split_json(splits)) | changed))


def added(content: str, **changed: bool) -> list[dict[str, object]]:
    """The end of sequence, and another added token."""
    plain = dict.fromkeys(["normalized", "single_word", "lstrip", "rstrip"], False)
    end = {"id": 0, "content": "<|endoftext|>", "special": True, **plain}
    return [end, {"id": 2000, "content": content, "special": False, **plain, **changed}]


DIGITS = {"type": "Digits", "individual_digits": True}
NFC = {"type": "NFC"}
KINDS: dict[str, Callable[[], HuggingFaceVocabulary]] = {
    "as GPT-2's": lambda: byte_level([BYTE_LEVEL]),
    "as SmolLM2's": lambda: byte_level([DIGITS, BYTE_LEVEL]),
    "as Llama 3's": lambda: byte_level(splits_by(LLAMA_3_WORDS)),
    "as Qwen's": lambda: byte_level(splits_by(QWEN_WORDS), normalizer=NFC),
}


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request: pytest.FixtureRequest) -> HuggingFaceVocabulary:
    return KINDS[request.param]()


@settings(deadline=None, max_examples=300)
@given(text=st.lists(st.sampled_from([*PIECES_OF_TEXT, "<|endoftext|>"]), max_size=12).map("".join))
@example(text="end.\n Next \t word")
def test_byte_level_tokenizers_have_their_own_tokens(
    vocabulary: HuggingFaceVocabulary, text: str
) -> None:
    assert vocabulary.splits_words
    text = unicodedata.normalize("NFC", text)
    assert vocabulary.encode(text) == vocabulary._encode_whole(text, text.encode())
    words = vocabulary.word.findall(text)
    assert "".join(words) == text


@pytest.mark.parametrize(
    ("splits", "changed"),
    [
        ([BYTE_LEVEL | {"use_regex": False}], {}),  # not split at all
        (splits_by(r"\p{L}+ ?|[^\p{L}]+"), {}),  # an unknown way
        ([{"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"}, BYTE_LEVEL], {}),
        ([BYTE_LEVEL], {"normalizer": {"type": "Lowercase"}}),
        ([BYTE_LEVEL], {"added_tokens": added("of the")}),
        ([BYTE_LEVEL], {"added_tokens": added("mill", rstrip=True)}),
    ],
)
def test_what_may_extend_over_a_space_is_tokenised_as_a_whole(
    splits: list[dict[str, object]], changed: dict[str, object]
) -> None:
    assert not byte_level(splits, **changed).splits_words


def test_added_tokens_that_are_words_change_nothing() -> None:
    assert byte_level([BYTE_LEVEL], added_tokens=added("  ")).splits_words

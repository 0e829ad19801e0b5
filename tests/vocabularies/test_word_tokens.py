"""Texts are tokenised word by word where no token reaches over the end of a word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import trained, vocabularies

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


def test_byte_level_tokenizers_keep_their_own_ways() -> None:
    others = [v for name, v in vocabularies().items() if "byte" in name]
    assert others
    assert not any(vocabulary.splits_words for vocabulary in others)

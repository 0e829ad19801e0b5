"""Where Unicode has word boundaries."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.text.word_boundaries import word_boundaries
from tests.text import word_breaks

# One or two characters of each Word_Break property, and what the rules name besides.
_OF_EACH_KIND = (
    "ab1 2.,:;'\"_-\n\r\t\x0b\x85\u2028\u2018\u2019\u05d0\u30ab\u30a2\u3042\u4e2d\u0e01\u0e33"
    "\u200d\u0301\ufe0f\xad\u200b\U0001f468\U0001f469\U0001f3fd\u24c2\U0001f1e6\U0001f1e7"
    "\u3000\xa0\u202f\xb7\u203f\uff0e\u0661\x1c\x00"
)
# Words of ASCII between others, where all rules apply only to parts of a text.
_SCRAPS = (
    " a",
    " 1",
    "a ",
    "  ",
    "b.c",
    "\n",
    "\r\n",
    " \u0301",
    "\xe9",
    "\u200d",
    "\U0001f1e6",
    "\x85",
)
texts = st.one_of(
    st.text(_OF_EACH_KIND),
    st.text("ab1.,:;'_ \r\n\t-"),
    st.lists(st.sampled_from(_SCRAPS)).map("".join),
    st.text(),
)


@settings(max_examples=1000)
@given(texts)
def test_boundaries_are_those_of_the_standard(text: str) -> None:
    assert np.flatnonzero(word_boundaries(text)).tolist() == word_breaks.boundaries(text)


def test_all_short_texts_of_ascii_and_of_other_scripts_agree() -> None:
    for kinds in ("a1.,:;'_ -\n", "\u05d0\u30ab1'\"\u200d\u24c2\u203f\xa0"):
        for characters in itertools.product(kinds, repeat=4):
            text = "".join(characters)
            assert np.flatnonzero(word_boundaries(text)).tolist() == word_breaks.boundaries(text)


@pytest.mark.parametrize(
    "words",
    [
        ["Sir", " ", "Thomas", " ", "Bloodworth", ",", " ", "3.14", "!"],
        ["can't", "  ", "O’Brien", ".", "\n", "\n", "e.g", ".", " ", "1,024"],
        ["state", "-", "of", "-", "the", "-", "art", " ", "snake_case", " ", "a1"],
        ["le\u0301a", " ", "l'objectif", " ", "na\u00efve"],
        ["中", "文", "、", "ひ", "ら", "カタカナ", "語"],
        ["ข", "อ", "ง", " ", "မြ", "န်", "မာ", " ", "ខ្", "មែ", "រ"],
        ["👩\u200d👩\u200d👧", " ", "🇫🇷", "🇩🇪", " ", "👍🏽", "a"],
        ["\r\n", "x", "\r", "\t", "\t"],
    ],
)
def test_words_stay_whole(words: list[str]) -> None:
    text = "".join(words)
    found = np.flatnonzero(word_boundaries(text))
    assert [text[a:b] for a, b in itertools.pairwise(found)] == words


def test_nothing_has_no_boundary() -> None:
    assert word_boundaries("").tolist() == [False]


@pytest.mark.parametrize(
    "scrap", ["a.", "a'", "\u200d", "א'", 'א\u200d"', " ", "🇫", "_", "a\u0301:", "1,", "\r"]
)
def test_long_runs_are_no_trouble(scrap: str) -> None:
    assert len(word_boundaries(scrap * 200_000)) == len(scrap) * 200_000 + 1

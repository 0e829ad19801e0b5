"""The best text by BM25, next to the formula itself."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.text import bm25

# No two of them have the same stem.
WORDS = ["salt", "river", "town", "lighthouse", "anchor", "hat"]


def scores(query, texts):
    """BM25 by Robertson's formula, with inverse frequencies of at least 1e-6, as in SQLite."""
    split = [re.findall(r"\w+", text.lower()) for text in texts]
    mean = sum(map(len, split)) / len(split)
    total = [0.0] * len(texts)
    for word in set(re.findall(r"\w+", query.lower())):
        having = sum(word in words for words in split)
        inverse = max(1e-6, math.log((len(texts) - having + 0.5) / (having + 0.5)))
        for i, words in enumerate(split):
            count = words.count(word)
            length = 1 - 0.75 + 0.75 * len(words) / mean
            total[i] += inverse * count * 2.2 / (count + 1.2 * length)
    return total


TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=8
)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join), TEXTS)
@settings(max_examples=60, deadline=None)
def test_the_best_text_has_the_highest_score(query, texts):
    expected = scores(query, texts)
    assert expected[bm25.best(query, texts)] >= max(expected) - 1e-9


def test_stems_and_accents_are_compared():
    texts = ["A town by a river.", "Cafés were opened here.", "It has a lighthouse."]
    assert bm25.best("Which cafe opens?", texts) == 1
    texts = ["Ankara lies inland.", "İstanbul lies on the Bosporus."]
    assert bm25.best("Where is İstanbul?", texts) == bm25.best("Where is ISTANBUL?", texts) == 1


def test_the_first_text_is_taken_where_nothing_matches():
    assert bm25.best("Who?", ["Salt.", "A hat."]) == 0
    assert bm25.best("?!", ["Salt.", "A hat."]) == 0
    assert bm25.best("hat", ["Salt.", "A hat.", "A hat."]) == 1
    assert bm25.best("hat", []) is None


@pytest.mark.parametrize(
    "query", ['"salt" OR NEAR(', "salt* -hat ^x", "NOT AND OR", "sa\0lt", "_ __", "²", ""]
)
def test_a_query_is_only_words(query):
    assert bm25.best(query, ["A hat.", "Salt.", "A river."]) in (0, 1)

"""Finds the text nearest to a query, by the cosine of TF-IDF vectors."""

import collections
import math
import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def nearest(query: str, texts: Sequence[str]) -> tuple[int, float] | None:
    """Returns the index of the text nearest to the query, and the cosine between them.

    Document frequencies are counted over `texts`. On a tie the first text is returned; None if
    there are no texts.
    """
    counts = [_count_words(text) for text in texts]
    frequency = collections.Counter(word for words in counts for word in words)
    inverse = {  # smoothed; words of the query that are in no text weigh the most
        word: math.log((1 + len(texts)) / (1 + frequency[word])) + 1
        for word in (*frequency, *_count_words(query))
    }
    vectors = [_unit_vector(words, inverse) for words in counts]
    target = _unit_vector(_count_words(query), inverse)
    cosines = [sum(weight * target.get(w, 0.0) for w, weight in v.items()) for v in vectors]
    if not cosines:
        return None
    best = max(cosines)
    return cosines.index(best), best


def words(text: str) -> set[str]:
    """Returns the words that are compared: runs of letters and digits, in lower case."""
    return set(_count_words(text))


def _count_words(text: str) -> collections.Counter[str]:
    # In lower case this letter alone becomes two characters, of which `\w` matches only the first.
    text = text.replace("İ", "i").lower()
    return collections.Counter(_WORD.findall(text))


def _unit_vector(words: collections.Counter[str], inverse: dict[str, float]) -> dict[str, float]:
    weights = {word: count * inverse[word] for word, count in words.items()}
    length = math.sqrt(sum(weight * weight for weight in weights.values()))
    return {word: weight / length for word, weight in weights.items()}

"""ROUGE-L (Lin 2004): how many of two texts' words occur in the same order."""

import re

from rapidfuzz.distance import LCSseq

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Returns the words of a text, in lower case."""
    return _WORD.findall(text.lower())


def rouge_l(one: str, other: str) -> float:
    """Returns ROUGE-L's F1 of two texts, in 0 … 1; 0 if one has no words."""
    return rouge_l_of_words(words(one), words(other))


def rouge_l_of_words(one: list[str], other: list[str]) -> float:
    """Returns ROUGE-L's F1 of two lists of words: their longest common subsequence's share."""
    if not one or not other:
        return 0.0
    return 2 * LCSseq.similarity(one, other) / (len(one) + len(other))

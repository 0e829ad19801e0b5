"""Whether two short answers are the same: SQuAD's normalisation, exact match and F1."""

import collections
import re
import string
import unicodedata
from collections.abc import Iterable, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Returns `text` as SQuAD compares answers (Rajpurkar et al. 2016).

    Lower case, without ASCII punctuation and English articles, with single spaces.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def says_something(answer: str) -> bool:
    """Whether `normalize_answer` leaves anything except punctuation that is not ASCII."""
    left = normalize_answer(answer).replace(" ", "")
    return any(unicodedata.category(character)[0] not in "PZC" for character in left)


def exact_match(prediction: str, answers: Iterable[str]) -> bool:
    """Whether a prediction equals one of the answers after `normalize_answer`."""
    return normalize_answer(prediction) in map(normalize_answer, answers)


def f1(prediction: str, answers: Iterable[str]) -> float:
    """Returns the best F1 of a prediction's words against one of the answers', 0 without answers.

    If one side has no words left, it is 1 if the other has none either, else 0 (SQuAD 2.0).
    """
    words = normalize_answer(prediction).split()
    return max((f1_of_words(words, normalize_answer(a).split()) for a in answers), default=0.0)


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether `text` contains the words of an answer in sequence, after `normalize_answer`."""
    padded = f" {normalize_answer(text)} "
    normalized = map(normalize_answer, answers)
    return any(f" {answer} " in padded for answer in normalized if answer)


def f1_of_words(prediction: Sequence[str], answer: Sequence[str]) -> float:
    """As `f1`, for the words of two normalized texts."""
    if not prediction or not answer:
        return float(prediction == answer)
    common = (collections.Counter(prediction) & collections.Counter(answer)).total()
    return 2 * common / (len(prediction) + len(answer))

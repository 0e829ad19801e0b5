"""Which of several answers to a question the others agree with.

A model that knows an answer says the same again when it is asked again. When it is wrong, or when
a page doesn't hold the answer, its samples differ. So the answer that agrees most with all samples
is a better choice than the most likely one: short, fluent and wrong texts are often likely. This is
minimum Bayes risk decoding (Kumar and Byrne 2004), or self-consistency (Wang et al. 2022) for
answers that need not be equal.
"""

import collections
from collections.abc import Sequence

import numpy as np

from gophercite.evidence import Evidence
from gophercite.text.answer_matching import f1_of_words, normalize_answer


def agreement(answers: Sequence[Sequence[Evidence]]) -> list[float]:
    """Returns how much each answer agrees with all of them, from 0 to 1.

    Two answers agree as much as the mean of two values of F1 (SQuAD's, over words): of their claims
    and of their quotes. An answer's value is the mean over all answers, itself included. So it is 1
    if all are the same, and at least 1 / n.

    Args:
      answers: several answers to a question; one without any claim agrees with none and gets 0.
    """
    said = [_words(answer) if answer else None for answer in answers]
    times = collections.Counter(words for words in said if words is not None)
    distinct = list(times)
    value = {
        one: sum(times[other] * _alike(one, other) for other in distinct) / len(said)
        for one in distinct
    }
    return [0.0 if words is None else value[words] for words in said]


_Words = tuple[tuple[str, ...], tuple[str, ...]]


def _words(answer: Sequence[Evidence]) -> _Words:
    """The words of all its claims, and those of all its quotes."""
    claims = " ".join(dict.fromkeys(triple.claim for triple in answer))
    quotes = " ".join(triple.quote for triple in answer)
    return tuple(normalize_answer(claims).split()), tuple(normalize_answer(quotes).split())


def _alike(one: _Words, other: _Words) -> float:
    return float(np.mean([f1_of_words(*pair) for pair in zip(one, other, strict=True)]))

"""Which of several answers to a question agrees most with the others, and is likely as well.

A model that knows the answer gives the same answer again when it is asked again. When it is wrong,
or when a page doesn't hold the answer, its samples differ. So the answer that agrees most with all
samples is a better choice than the most likely one: texts that are fluent but wrong are often
likely. This is minimum Bayes risk decoding (Kumar and Byrne 2004), or self-consistency (Wang et al.
2022) for answers that need not be equal. Samples that agree can still all be wrong, above all those
of a small model; their likelihood may then show it. The product of agreement and likelihood is
nearly as good as the better of the two, or better (docs/ask.md).

If each page has its own prompt, pages that don't hold the answer outnumber the one that does. So
the samples of a page share a weight that depends on the page's rank in the search: 1, 1/2, 1/3 …,
the reciprocal rank, as in rank fusion (Cormack et al. 2009).
"""

import collections
import itertools
import math
from collections.abc import Sequence

from gophercite.evidence import Evidence
from gophercite.text.answer_matching import f1_of_words, normalize_answer


def agreement(
    answers: Sequence[Sequence[Evidence]], weights: Sequence[float] | None = None
) -> list[float]:
    """Returns how much each answer agrees with all of them, from 0 to 1.

    The agreement of two answers is the mean of two F1 scores over words, as in SQuAD: that of their
    claims and that of their quotes. An answer's value is the weighted mean of its agreement with
    all answers, itself included, so it is 1 if all are the same.

    Args:
      answers: several answers to a question; an answer without any claim agrees with none and gets
        0.
      weights: each answer's weight, above 0; by default all are equal.
    """
    said = [_words(answer) if answer else None for answer in answers]
    weights = [1.0] * len(said) if weights is None else weights
    weight: dict[_Words, float] = collections.defaultdict(float)
    for words, own in zip(said, weights, strict=True):
        if words is not None:
            weight[words] += own
    value = weight.copy()  # each agrees with itself
    for one, other in itertools.combinations(weight, 2):
        alike = (f1_of_words(one[0], other[0]) + f1_of_words(one[1], other[1])) / 2
        value[one] += weight[other] * alike
        value[other] += weight[one] * alike
    return [0.0 if words is None else value[words] / sum(weights) for words in said]


def consensus(
    answers: Sequence[Sequence[Evidence]],
    mean_log_probs: Sequence[float],
    weights: Sequence[float] | None = None,
) -> list[float]:
    """Returns each answer's agreement times the model's confidence in it, from 0 to 1.

    Args:
      answers: as for `agreement`.
      mean_log_probs: mean log-probability of each answer's tokens, in nats. The confidence is its
        exponential, the geometric mean of the tokens' probabilities.
      weights: as for `agreement`.
    """
    agreed = agreement(answers, weights)
    return [agrees * math.exp(mean) for agrees, mean in zip(agreed, mean_log_probs, strict=True)]


def weights_by_rank(pages: Sequence[int]) -> list[float]:
    """Returns each sample's weight: its page's weight, divided evenly among the page's samples.

    Args:
      pages: rank of each sample's page in the search, from 0.
    """
    counts = collections.Counter(pages)
    return [1 / (1 + page) / counts[page] for page in pages]


_Words = tuple[tuple[str, ...], tuple[str, ...]]


def _words(answer: Sequence[Evidence]) -> _Words:
    """The words of all its claims, and those of all its quotes."""
    claims = " ".join(dict.fromkeys(triple.claim for triple in answer))
    quotes = " ".join(triple.quote for triple in answer)
    return tuple(normalize_answer(claims).split()), tuple(normalize_answer(quotes).split())

"""When to say "I don't know": a score threshold, with a guarantee for the answers above it.

An answer is given when its score, a reward or a log-probability, is above a global threshold
(GopherCite, section 2.9). Given answers labelled good or bad by people or by a gold standard, a
threshold can come with a guarantee that assumes nothing about the model or the scores.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float

from gophercite.text.counting import percent

# The candidate thresholds, by the share of labelled questions that they answer.
_COVERAGES = np.linspace(0.05, 1.0, 20)


class TooFewLabelsError(ValueError):
    """The labelled answers are too few, or too bad, to guarantee the quality at any threshold."""


@dataclasses.dataclass(frozen=True)
class Promise:
    """A threshold, and the guarantee for the answers that it lets through.

    Attributes:
      threshold: answers with a score above this are given; minus infinity gives all.
      quality: guaranteed share of good answers among those given.
      confidence: the probability that the guarantee holds, over the draw of the labelled questions.
      coverage: share of the labelled questions that were answered.
      observed_quality: share of those answers that were good.
      questions: number of labelled questions.
    """

    threshold: float
    quality: float
    confidence: float
    coverage: float
    observed_quality: float
    questions: int


def promise_quality(
    scores: Float[np.ndarray, " questions"],
    good: Bool[np.ndarray, " questions"],
    quality: float,
    confidence: float = 0.95,
) -> Promise:
    """Finds the threshold that lets most answers through while a given share of them is good.

    It tests twenty thresholds: the k-th highest score for rising k, and last minus infinity, at
    which all answers are given. Each test asks how likely it is to see so many good answers by
    chance if the true quality is below the one wanted (an exact binomial test, with the error
    divided among the twenty; Angelopoulos et al. 2021, "Learn then Test").
    Given the k-th highest score, the scores above it
    are independent draws from the distribution above it, whatever that is. That is why answers are
    given when their score is above the threshold, not at it. The guarantee assumes nothing about
    the model or the scores. It holds for questions like the labelled ones that are answered in the
    same way.

    Args:
      scores: scores of the answers, to questions that were not used to train the scorer.
      good: whether each answer is good.
      quality: the share of good answers wanted, between 0 and 1.
      confidence: the confidence wanted, between 0 and 1.

    Returns:
      The threshold and its guarantee.

    Raises:
      TooFewLabelsError: no threshold can be guaranteed. If there are too few labels, the message
        says how many it would take if all answers were good.
      ValueError: quality or confidence is not between 0 and 1, there is no answer, shapes differ,
        or a score is not a number.
    """
    from scipy import special  # takes 0.2 s, and few answers come with such a threshold

    for name, value in (("quality", quality), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} = {value}: must be between 0 and 1")
    scores, good = checked(scores, good)
    error = (1 - confidence) / len(_COVERAGES)
    falling = np.append(np.sort(scores)[::-1], -np.inf)
    places = np.ceil(_COVERAGES * len(scores)).astype(int)
    thresholds = falling[places]  # rising coverage
    answered = scores > thresholds[:, None]
    counts, right = answered.sum(axis=1), (answered & good).sum(axis=1)
    passed = (counts > 0) & (special.bdtrc(right - 1, counts, quality) <= error)
    if passed.any():
        most = int(np.flatnonzero(passed)[-1])
        return Promise(
            threshold=float(thresholds[most]),
            quality=quality,
            confidence=confidence,
            coverage=float(counts[most] / len(scores)),
            observed_quality=float(right[most] / counts[most]),
            questions=len(scores),
        )
    needed = math.ceil(math.log(error) / math.log(quality))
    if len(scores) < needed:
        raise TooFewLabelsError(
            f"{len(scores)} labelled answers are too few to promise {percent(quality)} good "
            f"answers with confidence {percent(confidence)}: even if all were good, it would take "
            f"{needed}"
        )
    raise TooFewLabelsError(
        f"no threshold on {len(scores)} labelled answers gives {percent(quality)} good ones with "
        f"confidence {percent(confidence)}; of all of them {good.mean():.0%} are good"
    )


def checked(
    scores: Float[np.ndarray, " questions"], good: Bool[np.ndarray, " questions"]
) -> tuple[Float[np.ndarray, " questions"], Bool[np.ndarray, " questions"]]:
    """Returns scores and labels as arrays of equal shape.

    Raises:
      ValueError: there is no answer, shapes differ, or a score is not a number.
    """
    scores, good = np.asarray(scores, float), np.asarray(good, bool)
    if scores.ndim != 1 or scores.shape != good.shape or not len(scores):
        raise ValueError(
            f"scores have shape {scores.shape}, labels {good.shape}: both must be [questions], "
            "with at least one question"
        )
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    return scores, good

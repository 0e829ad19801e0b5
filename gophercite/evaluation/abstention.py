"""When to say "I don't know": quality of the answers that are given, by how many are.

An answer is given when its score, a reward or a log-probability, reaches a threshold (GopherCite,
section 2.9). Every threshold gives some share of the questions an answer (coverage), and some share
of those answers is good (quality); section 3.3 and appendix G plot one against the other.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

# Thresholds that a promise may choose from, by the share of labelled questions that they answer.
_COVERAGES = np.linspace(0.05, 1.0, 20)


class TooFewLabelsError(ValueError):
    """No threshold can keep the promise with the labels at hand, or they are too few to tell."""


@dataclasses.dataclass(frozen=True)
class CoverageCurve:
    """Quality by coverage, one point for each number of answers that a threshold can give.

    Attributes:
      threshold: the lowest score that is answered.
      coverage: share of questions that are.
      quality: share of those answers that are good.
      low: of the quality's confidence band, at each point by itself (Clopper and Pearson 1934).
      high: likewise.
    """

    threshold: Float[np.ndarray, " points"]
    coverage: Float[np.ndarray, " points"]
    quality: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]

    @property
    def area(self) -> float:
        """Mean quality over all coverages from 0 to 1; before the first point it is the first's."""
        steps = np.diff(self.coverage, prepend=0.0)
        return float(np.sum(steps * self.quality))


def coverage_curve(
    scores: Float[np.ndarray, " questions"],
    good: Bool[np.ndarray, " questions"],
    confidence: float = 0.9,
) -> CoverageCurve:
    """Computes quality by coverage from labelled answers.

    Args:
      scores: of the answers; the higher, the surer.
      good: whether each is, by what counts (for the paper: plausible and supported).
      confidence: of the band.

    Returns:
      The curve, coverage rising. Answers with equal scores are given together.

    Raises:
      ValueError: there is no answer, shapes differ, or a score is not a number.
    """
    scores, good = _checked(scores, good)
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    last = np.append(falling[1:] < falling[:-1], True)  # of each group of equal scores
    answered = np.arange(1, len(scores) + 1)[last]
    right = np.cumsum(good[order])[last]
    low, high = clopper_pearson(right, answered, confidence)
    return CoverageCurve(falling[last], answered / len(scores), right / answered, low, high)


def clopper_pearson(
    successes: np.ndarray, trials: np.ndarray, confidence: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Exact confidence limits of shares, which hold whatever the share is.

    Args:
      successes: of each share.
      trials: at least 1 of each.
      confidence: of the interval; each end errs with half of what is left.

    Returns:
      The lower and the upper limits.
    """
    error = (1 - confidence) / 2
    low = stats.beta.ppf(error, successes, trials - successes + 1)
    high = stats.beta.ppf(1 - error, successes + 1, trials - successes)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)


@dataclasses.dataclass(frozen=True)
class Promise:
    """A threshold, and what is promised of the answers that it lets through.

    Attributes:
      threshold: answers with this score or more are given.
      quality: at least this share of them is good.
      confidence: with this probability over the draw of the labelled questions.
      coverage: share of the labelled questions that were answered.
      observed_quality: share of those answers that were good.
      questions: that were labelled.
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
    confidence: float = 0.9,
) -> Promise:
    """Finds the threshold with the most answers of which at least a given share is good.

    Twenty thresholds are tested, each the score that answers another share of the questions:
    whether quality under the wanted would have shown so many good answers by chance (an exact
    binomial test, the error divided among the twenty). The promise needs nothing of the model or
    the scores; it is for questions like the labelled ones (Angelopoulos et al. 2021, "Learn then
    Test").

    Args:
      scores: of the answers to questions that were not used to train what scores.
      good: whether each is.
      quality: what is wanted, between 0 and 1.
      confidence: with which it is to hold.

    Returns:
      The threshold and the promise.

    Raises:
      TooFewLabelsError: no threshold can be promised; says how many labels it would take were all
        good, when there are fewer.
      ValueError: quality or confidence is not between 0 and 1, or as `coverage_curve`.
    """
    for name, value in (("quality", quality), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} = {value}: must be between 0 and 1")
    scores, good = _checked(scores, good)
    error = (1 - confidence) / len(_COVERAGES)
    falling = np.sort(scores)[::-1]
    places = np.ceil(_COVERAGES * len(scores)).astype(int) - 1
    best = None
    for threshold in falling[places]:  # rising coverage
        answered = scores >= threshold
        count, right = int(answered.sum()), int(good[answered].sum())
        if stats.binom.sf(right - 1, count, quality) <= error:
            best = Promise(
                float(threshold), quality, confidence, count / len(scores), right / count,
                len(scores),
            )  # fmt: skip
    if best is not None:
        return best
    needed = math.ceil(math.log(error) / math.log(quality))
    if len(scores) < needed:
        raise TooFewLabelsError(
            f"{len(scores)} labelled answers are too few to promise {quality:.0%} good ones with "
            f"confidence {confidence:.0%}: were all of them good, it would take {needed}"
        )
    raise TooFewLabelsError(
        f"at no threshold do {len(scores)} labelled answers show {quality:.0%} good ones with "
        f"confidence {confidence:.0%}; over all of them {good.mean():.0%} are good"
    )


def _checked(scores: np.ndarray, good: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, good = np.asarray(scores, float), np.asarray(good, bool)
    if scores.ndim != 1 or scores.shape != good.shape or not len(scores):
        raise ValueError(
            f"scores have shape {scores.shape}, labels {good.shape}: both must be [questions], and "
            "at least one"
        )
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    return scores, good

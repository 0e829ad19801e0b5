"""The trade-off of declining to answer: quality of the given answers against their share.

An answer is given when its score, a reward or a log-probability, reaches a threshold (GopherCite,
section 2.9). Every threshold answers some share of the questions (coverage), and some share of
those answers is good (quality); section 3.3 and appendix G plot one against the other. For a
threshold with a guarantee, see `gophercite.decoding.abstention`.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from gophercite.decoding.abstention import checked


@dataclasses.dataclass(frozen=True)
class CoverageCurve:
    """Quality by coverage, one point for each number of answers that a threshold can give.

    Answers with equal scores are given together or not at all. Between two points, a coverage needs
    the threshold of the next one, which gives more answers: its quality holds there, in the area as
    in figures.

    Attributes:
      threshold: the lowest score that is answered.
      coverage: share of questions that are answered.
      quality: share of those answers that are good.
      low: lower end of the quality's confidence band, for each point by itself (Clopper and
        Pearson 1934).
      high: upper end, likewise.
    """

    threshold: Float[np.ndarray, " points"]
    coverage: Float[np.ndarray, " points"]
    quality: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]

    @property
    def area(self) -> float:
        """Mean quality over coverages from 0 to 1, each with the next point's (see above)."""
        steps = np.diff(self.coverage, prepend=0.0)
        return float(np.sum(steps * self.quality))


def coverage_curve(
    scores: Float[np.ndarray, " questions"],
    good: Bool[np.ndarray, " questions"],
    confidence: float = 0.9,
) -> CoverageCurve:
    """Computes quality by coverage from labelled answers.

    Args:
      scores: scores of the answers; higher means more certain.
      good: whether each answer is good by the chosen criterion (in the paper: plausible and
        supported).
      confidence: confidence level of the band.

    Returns:
      The curve, by rising coverage. Answers with equal scores are given together.

    Raises:
      ValueError: when there is no answer, shapes differ, or a score is not a number.
    """
    scores, good = checked(scores, good)
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    last = np.append(falling[1:] < falling[:-1], True)  # the last of each group of equal scores
    answered = np.arange(1, len(scores) + 1)[last]
    right = np.cumsum(good[order])[last]
    low, high = clopper_pearson(right, answered, confidence)
    return CoverageCurve(falling[last], answered / len(scores), right / answered, low, high)


def clopper_pearson(
    successes: np.ndarray, trials: np.ndarray, confidence: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Exact confidence limits of shares, valid for any true share.

    Args:
      successes: number of successes behind each share.
      trials: number of trials behind each share, at least 1.
      confidence: confidence level of the interval; each end errs with half of the remainder.

    Returns:
      The lower and the upper limits.
    """
    error = (1 - confidence) / 2
    low = special.betaincinv(successes, trials - successes + 1, error)
    high = special.betaincinv(successes + 1, trials - successes, 1 - error)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)

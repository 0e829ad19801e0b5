"""What "I don't know" is worth: quality of the answers that are given, by how many are.

An answer is given when its score, a reward or a log-probability, reaches a threshold (GopherCite,
section 2.9). Every threshold gives some share of the questions an answer (coverage), and some share
of those answers is good (quality); section 3.3 and appendix G plot one against the other. A
threshold with a promise is `gophercite.decoding.abstention`'s to find.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from gophercite.decoding.abstention import checked


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
    scores, good = checked(scores, good)
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
    low = special.betaincinv(successes, trials - successes + 1, error)
    high = special.betaincinv(successes + 1, trials - successes, 1 - error)
    return np.where(successes == 0, 0.0, low), np.where(successes == trials, 1.0, high)

"""The ROC curve: how many good and how many bad answers each threshold of a score accepts."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float


@dataclasses.dataclass(frozen=True)
class RocCurve:
    """One point for each threshold between different scores, from accepting none to all.

    Attributes:
      threshold: the lowest score that is accepted; infinity at the first point.
      false_positives: share of the bad answers that are accepted.
      true_positives: share of the good answers that are accepted.
    """

    threshold: Float[np.ndarray, " points"]
    false_positives: Float[np.ndarray, " points"]
    true_positives: Float[np.ndarray, " points"]

    @property
    def area(self) -> float:
        """Probability that a good answer scores higher than a bad one; ties count half."""
        return float(np.trapezoid(self.true_positives, self.false_positives))


def roc_curve(
    scores: Float[np.ndarray, " answers"], good: Bool[np.ndarray, " answers"]
) -> RocCurve:
    """Computes the curve.

    Args:
      scores: scores of the answers; higher means more certain.
      good: whether each answer is good by the chosen criterion.

    Raises:
      ValueError: shapes differ, a score is NaN, or all answers are good, or all bad.
    """
    scores, good = np.asarray(scores, float), np.asarray(good, bool)
    if scores.ndim != 1 or scores.shape != good.shape:
        raise ValueError(f"scores have shape {scores.shape}, labels {good.shape}")
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    if good.all() or not good.any():
        raise ValueError("a ROC curve needs both good and bad answers")
    order = np.argsort(-scores, kind="stable")
    falling, right = scores[order], good[order]
    last = np.append(falling[1:] < falling[:-1], True)  # the last of each group of equal scores

    def shares(counted: Bool[np.ndarray, " answers"]) -> Float[np.ndarray, " points"]:
        return np.append(0.0, np.cumsum(counted)[last] / counted.sum())

    return RocCurve(np.append(np.inf, falling[last]), shares(~right), shares(right))

"""The difference of two systems, with a confidence interval over questions or over seeds."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean difference of shares with its two-sided confidence interval (Student's t).

    Attributes:
      mean: mean of the differences; shares are numbers in [0, 1].
      low: lower end of the interval; minus infinity for a single difference, which does not tell
        how much others would vary.
      high: upper end of the interval.
      count: number of differences.
    """

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        """In percentage points: `+12.3 (+8.1 to +16.4)`."""
        if not math.isfinite(self.low):
            return f"{100 * self.mean:+.1f}"
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def mean_difference(differences: Sequence[float], confidence: float = 0.9) -> Difference:
    """Returns the mean of independent differences with its interval.

    Args:
      differences: at least one; for example one per question between two systems, or one per seed.
      confidence: confidence level of the interval.

    Raises:
      ValueError: when there is no difference.
    """
    count = len(differences)
    if count == 0:
        raise ValueError("an interval needs at least one difference")
    mean = float(np.mean(differences))
    if count == 1:
        return Difference(mean, -math.inf, math.inf, 1)
    quantile = float(special.stdtrit(count - 1, (1 + confidence) / 2))
    reach = quantile * float(np.std(differences, ddof=1)) / math.sqrt(count)
    return Difference(mean, mean - reach, mean + reach, count)

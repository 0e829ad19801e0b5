"""Shares with confidence intervals: Wilson's, and the normal one printed in the paper."""

import dataclasses
import math
from collections.abc import Sequence

_NORMAL_90 = 1.6449  # the standard normal's 95 % quantile: two-sided 90 %


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean in [0, 1] over `count` answers with its 90 % interval, Wilson's."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def reach(self) -> float:
        """Half the width of the paper's interval: z √(p (1 - p) / n) (table 1).

        It has no width at 0 and 1, where Wilson's interval is still valid.
        """
        return _NORMAL_90 * math.sqrt(self.mean * (1 - self.mean) / self.count)

    @property
    def as_in_paper(self) -> str:
        """In percent, with the paper's interval: `83.5 ± 5.7`."""
        return f"{100 * self.mean:.1f} ± {100 * self.reach:.1f}"

    def __str__(self) -> str:
        """In percent: `83.5 (77.0–88.4)`."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f}–{100 * self.high:.1f})"


def estimate(values: Sequence[float]) -> Estimate:
    """Returns the mean of `values` with its 90 % interval.

    The interval is Wilson's, which is valid near 0 and 1, where the normal one has no width. It is
    meant for yes and no. For other numbers in [0, 1], whose variance is lower for the same mean, it
    is conservative.

    Args:
      values: at least one number in [0, 1].
    """
    count = len(values)
    mean = sum(values) / count
    z = _NORMAL_90**2 / count
    centre = (mean + z / 2) / (1 + z)
    reach = math.sqrt(z * (mean * (1 - mean) + z / 4)) / (1 + z)
    # At 0 and 1 rounding may put an end on the wrong side of the mean.
    low, high = min(mean, centre - reach), max(mean, centre + reach)
    return Estimate(mean, max(0.0, low), min(1.0, high), count)

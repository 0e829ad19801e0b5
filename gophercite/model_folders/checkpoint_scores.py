"""How the checkpoints of a run are ranked by their evaluations."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Score:
    """What the evaluation of a checkpoint's state found.

    Attributes:
      value: the metric that checkpoints are compared by; may be NaN or infinite.
      metric: its name ("eval/nq/loss"); None in checkpoints that were saved before it was stored,
        which are compared with all others.
      best: whether the lowest or the highest value is the best.
      beyond: the limit that the state exceeds, in words, or None. Such a state is never the best.
    """

    value: float
    metric: str | None = None
    best: Literal["min", "max"] = "min"
    beyond: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON value to store; a value that is not finite is null."""
        value = self.value if math.isfinite(self.value) else None
        return {**dataclasses.asdict(self), "value": value}

    @classmethod
    def from_json(cls, stored: Any) -> "Score | None":
        """The inverse of `to_json`; a number is one for which low values are good.

        Raises:
          TypeError: it is not a score.
        """
        if stored is None:
            return None
        if isinstance(stored, int | float):
            return cls(float(stored))
        value = math.nan if stored["value"] is None else stored["value"]
        return cls(**{**stored, "value": value})

    def rank(self) -> float:
        """The value, turned so that the lowest is the best."""
        return self.value if self.best == "min" else -self.value


def ranking(scores: Mapping[int, Score]) -> list[int]:
    """The steps of comparable scores, from the best to the worst; of equal ones, the latest first.

    If a run changed its metric, only scores by the newest one's metric can be compared.

    Args:
      scores: by step.

    Returns:
      Steps whose score is finite, within the limits, and by that metric.
    """
    by = [(each.metric, each.best) for _, each in sorted(scores.items()) if each.metric is not None]
    ranks = {
        step: each.rank()
        for step, each in scores.items()
        if math.isfinite(each.value) and each.beyond is None
        if each.metric is None or (each.metric, each.best) == by[-1]
    }
    return sorted(ranks, key=lambda step: (ranks[step], -step))

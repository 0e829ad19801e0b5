"""A run's position, in addition to its state, and how an evaluation changes it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gophercite.training.early_stopping import Watch
from gophercite.training.settings import TrainSettings


@dataclasses.dataclass(frozen=True)
class Clock:
    """A run's position, in addition to its state; a checkpoint stores it as JSON.

    Attributes:
      step: number of updates so far, and of batches read: batch number n is for update n + 1.
      evaluated: whether the state of this step has been evaluated.
      watch: the state of early stopping.
      stopped: why the run ended before its last step, or None.
      environments: progress of the collector's environments, as JSON; None if there are none.
      times: how the time was spent so far, as JSON (`TimeAccount`); None in older checkpoints.
    """

    step: int = 0
    evaluated: bool = False
    watch: Watch = dataclasses.field(default_factory=Watch)
    stopped: str | None = None
    environments: Any = None
    times: Any = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Clock":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**value, "watch": Watch(**value["watch"])})


def judge(
    settings: TrainSettings, clock: Clock, results: Mapping[str, Mapping[str, float]]
) -> tuple[Clock, float | None]:
    """Applies an evaluation's results to the run's position.

    Args:
      settings: early stopping and the metric that scores checkpoints.
      clock: the position before the evaluation.
      results: metrics by evaluation set.

    Returns:
      The position after it (evaluated, perhaps stopped), and the state's score, lower is better;
      None if it has no finite score.
    """
    values = {name: value for of_set in results.values() for name, value in of_set.items()}
    rule = settings.early_stopping
    watch, stopped = clock.watch, clock.stopped
    beyond = None
    if rule:
        watch, beyond = watch.observe(rule, values), rule.beyond(values)
        stopped = stopped or beyond or watch.stopped(rule)
    name = settings.best_metric or next(
        iter(rule.metrics if rule else (n for n in values if n.endswith("/loss"))), None
    )
    score = values.get(name) if name else None
    if beyond or score is None or not math.isfinite(score):
        score = None  # a set without targets has no loss, so such a state can't be the best
    elif name is not None and settings.is_better_high(name):
        score = -score
    return dataclasses.replace(clock, evaluated=True, watch=watch, stopped=stopped), score

"""Where a run stands beside its state, and what an evaluation means for it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gophercite.training.early_stopping import Watch
from gophercite.training.settings import TrainSettings


@dataclasses.dataclass(frozen=True)
class Clock:
    """Where a run stands beside its state; a checkpoint keeps it as JSON.

    Attributes:
      step: updates done, and batches read: batch number n is that of update n + 1.
      evaluated: whether the state of this step has been evaluated.
      watch: what early stopping has seen.
      stopped: why the run is over before its last step, or None.
      environments: how far the collector's environments are, as JSON; None where there are none.
      times: where the time went so far, as JSON (`TimeAccount`); None in checkpoints from before.
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
    """What an evaluation means for the run.

    Args:
      settings: early stopping and the metric that scores checkpoints.
      clock: before.
      results: metrics by evaluation set.

    Returns:
      The clock after it (evaluated, perhaps stopped), and the state's score, less is better; None
      when it has none or one that is not finite.
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
        score = None  # a set without targets has no loss: such a state can't be the best
    elif rule and rule.higher_is_better and name in rule.metrics:
        score = -score
    return dataclasses.replace(clock, evaluated=True, watch=watch, stopped=stopped), score

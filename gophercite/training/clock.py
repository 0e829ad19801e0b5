"""A run's position, in addition to its state, and how an evaluation changes it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from gophercite.model_folders.checkpoint_scores import Score
from gophercite.training.early_stopping import EarlyStopping, UnknownMetricError, Watch
from gophercite.training.settings import TrainSettings


@dataclasses.dataclass(frozen=True)
class Clock:
    """A run's position, in addition to its state; a checkpoint stores it as JSON.

    Attributes:
      step: number of updates so far, and of batches read: batch number n is for update n + 1.
      evaluated: whether the state of this step has been evaluated.
      watch: the state of early stopping.
      stopped: why the run ended before its last step, or None.
      limited: the last evaluation's values of the metrics that have a limit; None in older
        checkpoints.
      environments: progress of the collector's environments, as JSON; None if there are none.
      times: how the time was spent so far, as JSON (`TimeAccount`); None in older checkpoints.
    """

    step: int = 0
    evaluated: bool = False
    watch: Watch = dataclasses.field(default_factory=Watch)
    stopped: str | None = None
    limited: Mapping[str, float] | None = None
    environments: Any = None
    times: Any = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Clock":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**value, "watch": Watch(**value["watch"])})

    def under(self, rule: EarlyStopping | None) -> "Clock":
        """The position when the run goes on under a rule: a stop holds if this rule has it, too."""
        if self.stopped is None:
            return self
        stopped = None
        if rule is not None:
            if self.limited is None and rule.limits:
                return self  # it is not known how far beyond its limit the state is
            values = self.limited or {}
            known = {name: limit for name, limit in rule.limits.items() if name in values}
            of_limits = dataclasses.replace(rule, limits=known).beyond(values)
            stopped = of_limits or self.watch.stopped(rule)
        return dataclasses.replace(self, stopped=stopped)


def judge(
    settings: TrainSettings, clock: Clock, results: Mapping[str, Mapping[str, float]]
) -> tuple[Clock, Score | None]:
    """Applies an evaluation's results to the run's position.

    Args:
      settings: early stopping and the metric that scores checkpoints.
      clock: the position before the evaluation.
      results: metrics by evaluation set.

    Returns:
      The position after it (evaluated, perhaps stopped), and the state's score; None if there is no
      metric to score it by.

    Raises:
      UnknownMetricError: the settings name a metric that is not in the results.
    """
    values = {name: value for of_set in results.values() for name, value in of_set.items()}
    rule = settings.early_stopping
    watch, stopped = clock.watch, clock.stopped
    beyond, limited = None, dict[str, float]()
    if rule:
        watch, beyond = watch.observe(rule, values), rule.beyond(values)
        stopped = stopped or beyond or watch.stopped(rule)
        limited = {name: values[name] for name in rule.limits}
    name = settings.best_metric or next(
        iter(rule.metrics if rule else (n for n in values if n.endswith("/loss"))), None
    )
    score = None
    if name is not None:
        if name not in values:
            raise UnknownMetricError("TrainSettings.best_metric", name, values)
        best: Literal["min", "max"] = "max" if settings.is_better_high(name) else "min"
        score = Score(values[name], name, best, beyond)
    after = dataclasses.replace(
        clock, evaluated=True, watch=watch, stopped=stopped, limited=limited
    )
    return after, score

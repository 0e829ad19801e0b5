"""Early stopping: when a validation metric has stopped improving, or has passed its limit."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Literal


class UnknownMetricError(ValueError):
    """A setting names a metric that evaluations don't report; only the first one can tell."""

    def __init__(self, setting: str, name: str, values: Collection[str]) -> None:
        """Says what was named, and what there is.

        Args:
          setting: where the metric is named ("EarlyStopping.metrics").
          name: the metric.
          values: names of the metrics that an evaluation reported.
        """
        known = ", ".join(sorted(values)) or "nothing, because there is no evaluation set"
        super().__init__(f"{setting} names {name!r}, but evaluations report {known}")


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stops a run when any one of its metrics stops improving.

    GopherCite (D.1) stops supervised fine-tuning when the validation perplexity stops improving on
    either of two sets, ELI5's and NaturalQuestions' good answers.

    Attributes:
      metrics: names of evaluation metrics ("eval/nq/loss"); each is watched separately.
      patience: number of consecutive evaluations without improvement after which a metric counts as
        stopped.
      min_delta: minimum gain over a metric's best value that counts as an improvement.
      higher_is_better: True for accuracies and rewards, False for losses and perplexities.
      limits: maximum values of evaluation metrics ("eval/nq/kl": KL divergence of a policy from its
        teacher, in nats). A state beyond a limit is never the best one, and ends the run.
    """

    metrics: tuple[str, ...]
    patience: int = 1
    min_delta: float = 0.0
    higher_is_better: bool = False
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses settings that would never stop, or always.

        Raises:
          ValueError: there is no metric, patience is below 1, or min_delta is negative.
        """
        object.__setattr__(self, "metrics", tuple(self.metrics))
        if not self.metrics:
            raise ValueError(
                "EarlyStopping.metrics is empty: name at least one metric, such as 'eval/SET/loss'"
            )
        if self.patience < 1 or self.min_delta < 0:
            raise ValueError(
                f"EarlyStopping.patience = {self.patience}, min_delta = {self.min_delta}: "
                "must be at least 1 and at least 0"
            )

    @property
    def best_mode(self) -> Literal["min", "max"]:
        """Which of a metric's values is the best one."""
        return "max" if self.higher_is_better else "min"

    def beyond(self, values: Mapping[str, float]) -> str | None:
        """The limit that an evaluation exceeds, in words, or None.

        Raises:
          UnknownMetricError: the evaluation lacks a limit's metric.
        """
        for name, limit in self.limits.items():
            if name not in values:
                raise UnknownMetricError("EarlyStopping.limits", name, values)
            if not values[name] <= limit:
                return f"{name} is {values[name]:.4g}, beyond its limit of {limit:.4g}"
        return None


@dataclasses.dataclass(frozen=True)
class Watch:
    """The state of early stopping.

    Attributes:
      best: each metric's best value.
      stale: number of consecutive evaluations without improvement on it.
    """

    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stale: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def observe(self, rule: EarlyStopping, values: Mapping[str, float]) -> "Watch":
        """Updates the state with one more evaluation.

        Args:
          rule: which metrics to watch, and how.
          values: the evaluation's metrics.

        Returns:
          A new watch. NaN counts as no improvement.

        Raises:
          UnknownMetricError: the evaluation lacks a metric of the rule.
        """
        best, stale = dict(self.best), dict(self.stale)
        for name in rule.metrics:
            if name not in values:
                raise UnknownMetricError("EarlyStopping.metrics", name, values)
            if name in best:
                sign = 1 if rule.higher_is_better else -1
                improved = sign * (values[name] - best[name]) > rule.min_delta
            else:
                improved = not math.isnan(values[name])
            if improved:
                best[name], stale[name] = values[name], 0
            else:
                stale[name] = stale.get(name, 0) + 1
        return Watch(best, stale)

    def stopped(self, rule: EarlyStopping) -> str | None:
        """Why to stop, in words, or None."""
        for name in rule.metrics:
            if self.stale.get(name, 0) >= rule.patience:
                best = f"{self.best[name]:.4g}" if name in self.best else "none, always NaN"
                return f"{name} has not improved for {self.stale[name]} evaluations (best: {best})"
        return None

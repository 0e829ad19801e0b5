"""When to stop: when a validation metric has stopped improving, or has passed its limit."""

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stops a run when any one of its metrics stops improving.

    GopherCite (D.1) stops supervised fine-tuning when the validation perplexity stops improving on
    either of two sets, ELI5's and NaturalQuestions' good answers.

    Attributes:
      metrics: names of evaluation metrics ("eval/nq/loss"); each is watched on its own.
      patience: evaluations in a row without improvement after which a metric has stopped.
      min_delta: what a metric must gain over its best value to count as improved.
      higher_is_better: for accuracies and rewards; losses and perplexities fall.
      limits: what evaluation metrics may reach at most ("eval/nq/kl": nats that a policy may have
        moved from its teacher). A state beyond a limit is never the best one, and ends the run.
    """

    metrics: tuple[str, ...]
    patience: int = 1
    min_delta: float = 0.0
    higher_is_better: bool = False
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses settings that could never stop, or always would.

        Raises:
          ValueError: no metric, patience below 1 or a negative min_delta.
        """
        object.__setattr__(self, "metrics", tuple(self.metrics))
        if not self.metrics:
            raise ValueError("EarlyStopping.metrics is empty: name at least one, 'eval/SET/loss'")
        if self.patience < 1 or self.min_delta < 0:
            raise ValueError(
                f"EarlyStopping.patience = {self.patience}, min_delta = {self.min_delta}: "
                "must be at least 1 and at least 0"
            )

    def beyond(self, values: Mapping[str, float]) -> str | None:
        """Which limit an evaluation has passed, in words, or None.

        Raises:
          ValueError: the evaluation does not have a limit's metric.
        """
        for name, limit in self.limits.items():
            if name not in values:
                raise ValueError(
                    f"EarlyStopping.limits names {name!r}; evaluations give "
                    f"{', '.join(sorted(values))}"
                )
            if not values[name] <= limit:
                return f"{name} is {values[name]:.4g}, beyond its limit of {limit:.4g}"
        return None


@dataclasses.dataclass(frozen=True)
class Watch:
    """What early stopping has seen so far.

    Attributes:
      best: each metric's best value.
      stale: evaluations in a row that did not improve on it.
    """

    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stale: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def observe(self, rule: EarlyStopping, values: Mapping[str, float]) -> "Watch":
        """What has been seen after one more evaluation.

        Args:
          rule: which metrics to watch, and how.
          values: the evaluation's metrics.

        Returns:
          A new watch. A value that is not a number counts as no improvement.

        Raises:
          ValueError: the rule names a metric that the evaluation doesn't have.
        """
        best, stale = dict(self.best), dict(self.stale)
        for name in rule.metrics:
            if name not in values:
                raise ValueError(
                    f"EarlyStopping.metrics names {name!r}; evaluations give "
                    f"{', '.join(sorted(values)) or 'nothing: there is no evaluation set'}"
                )
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
                best = f"{self.best[name]:.4g}" if name in self.best else "never a number"
                return f"{name} has not improved for {self.stale[name]} evaluations (best: {best})"
        return None

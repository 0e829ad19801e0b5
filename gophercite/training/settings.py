"""The length of a training run, and how often it logs, evaluates and saves."""

import dataclasses
import re
from collections.abc import Collection
from typing import Literal

from gophercite.monitoring.metrics import PROFILE, SAMPLES, TRAIN
from gophercite.storage.paths import is_storage
from gophercite.training.early_stopping import EarlyStopping

_TAKEN = {TRAIN, PROFILE, SAMPLES}


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """The length of a run, and how often it logs, evaluates and saves.

    Attributes:
      model_dir: the run's folder, created if missing; a run that finds checkpoints there resumes.
      total_steps: total number of updates.
      batch_size: number of rows in a global batch.
      seed: seed of parameters and of every draw in training, below 2**32; the input has its own.
      log_every: number of steps between lines of metrics.
      evaluate_every: number of steps between evaluations; also evaluates before the first step and
        after the last.
      save_every: number of steps between checkpoints; also saves after the last.
      keep_newest: number of newest checkpoints to keep; with 2 or more there is an older one to use
        if one is damaged.
      keep_best: number of checkpoints with the best scores to keep.
      best_metric: the metric that scores a checkpoint ("eval/SET/loss"); when None, early
        stopping's first metric, or the first evaluation set's loss.
      best_mode: whether the best checkpoint has the lowest ("min") or the highest ("max") score;
        when None, as early stopping has it if it watches the same metric, and "min" for losses and
        perplexities. For any other metric it has to be given.
      early_stopping: when to stop before `total_steps`; None never does.
      profile_step: the step to run under the profiler, to measure its phases; not the first step,
        in which buffers are new. None for no step.
      profiler_port: port on which each process serves TensorBoard's profile plugin, or another
        client that requests a trace, on its own host; None for no server.
      stalled_after: seconds without any progress (a step, an evaluation batch or anything else)
        after which the process ends and says why; compiling may take any time, a save three times
        as long, and the first batch eight times. None waits forever.
    """

    model_dir: str
    total_steps: int
    batch_size: int
    seed: int = 0
    log_every: int = 10
    evaluate_every: int = 100
    save_every: int = 100
    keep_newest: int = 2
    keep_best: int = 1
    best_metric: str | None = None
    best_mode: Literal["min", "max"] | None = None
    early_stopping: EarlyStopping | None = None
    profile_step: int | None = None
    profiler_port: int | None = None
    stalled_after: float | None = 1800.0

    def __post_init__(self) -> None:
        """Checks the settings.

        Raises:
          ValueError: a count is too low, the folder is nowhere that files can be kept, or settings
            contradict each other.
        """
        no_bucket = re.match("gs://(/|$)", self.model_dir)
        if not self.model_dir or no_bucket or not is_storage(self.model_dir):
            raise ValueError(
                f"TrainSettings.model_dir = {self.model_dir!r}: must be a folder on this machine "
                "or gs://BUCKET/NAME"
            )
        if self.model_dir.startswith("~"):
            raise ValueError(
                f"TrainSettings.model_dir = {self.model_dir!r}: the shell did not expand ~; write "
                "$HOME instead"
            )
        if not _can_name_checkpoints(self.model_dir):
            raise ValueError(
                f"TrainSettings.model_dir = {self.model_dir!r}: checkpoints need a name in UTF-8 "
                "without NUL"
            )
        counts = ["total_steps", "batch_size", "log_every", "evaluate_every", "save_every"]
        least = dict.fromkeys([*counts, "keep_newest"], 1) | {"keep_best": 0}
        if self.profile_step is not None:
            least["profile_step"] = 1
        for name, lowest in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < lowest:
                raise ValueError(
                    f"TrainSettings.{name} = {value!r}: must be a whole number, at least {lowest}"
                )
        if not (type(self.seed) is int and 0 <= self.seed < 2**32):  # JAX would drop other bits
            raise ValueError(
                f"TrainSettings.seed = {self.seed!r}: must be a whole number, 0 to {2**32 - 1}"
            )
        port = self.profiler_port
        if port is not None and not (type(port) is int and 0 < port < 2**16):
            raise ValueError(f"TrainSettings.profiler_port = {port!r}: must be 1 to 65535, or None")
        seconds = self.stalled_after
        if seconds is not None and not seconds > 0:
            raise ValueError(f"TrainSettings.stalled_after = {seconds!r}: must be above 0, or None")
        if self.best_mode not in ("min", "max", None):
            raise ValueError(
                f"TrainSettings.best_mode = {self.best_mode!r}: must be 'min' or 'max'"
            )
        rule = self.early_stopping
        watched = rule is not None and self.best_metric in rule.metrics
        if rule is not None and watched and self.best_mode not in (None, rule.best_mode):
            raise ValueError(
                f"TrainSettings.best_mode = {self.best_mode!r}, but EarlyStopping.higher_is_better "
                f"= {rule.higher_is_better} for the same metric, {self.best_metric!r}"
            )
        if self.best_metric is None or watched:
            return
        is_loss = self.best_metric.endswith(("/loss", "/perplexity"))
        if is_loss and self.best_mode == "max":
            raise ValueError(
                f"TrainSettings.best_metric = {self.best_metric!r} with best_mode = 'max': the "
                "highest loss is the worst"
            )
        if not is_loss and self.best_mode is None:
            raise ValueError(
                f"TrainSettings.best_metric = {self.best_metric!r}: set best_mode to 'max' if high "
                "values are good, else to 'min'"
            )

    def is_better_high(self, metric: str) -> bool:
        """Whether high values of the metric that scores checkpoints are good."""
        if self.best_mode is not None:
            return self.best_mode == "max"
        rule = self.early_stopping
        return rule is not None and rule.higher_is_better and metric in rule.metrics


def _can_name_checkpoints(folder: str) -> bool:
    """Whether Orbax, which writes checkpoints, can open a folder of this name."""
    try:
        return b"\0" not in folder.encode()
    except UnicodeEncodeError:  # bytes of a command line that are not UTF-8
        return False


def refuse_unknown_sets(settings: TrainSettings, evaluations: Collection[str]) -> None:
    """Refuses metrics of evaluation sets that a run doesn't have, before it starts.

    Args:
      settings: the settings with the names of metrics.
      evaluations: names of the sets.

    Raises:
      ValueError: a name is not "eval/SET/METRIC" with one of the sets, or a set has the name of
        other metrics of a run.
    """
    for taken in _TAKEN & set(evaluations):
        raise ValueError(
            f"an evaluation set is named {taken!r}, as other metrics of a run are: give it another "
            "name"
        )
    named = [("best_metric", settings.best_metric)] if settings.best_metric else []
    if settings.early_stopping:
        rule = settings.early_stopping
        named += [("early_stopping.metrics", name) for name in rule.metrics]
        named += [("early_stopping.limits", name) for name in rule.limits]
    for field, name in named:
        parts = name.split("/")
        if len(parts) < 3 or parts[0] != "eval" or "/".join(parts[1:-1]) not in evaluations:
            known = ", ".join(f"eval/{set_name}/loss" for set_name in evaluations)
            raise ValueError(
                f"TrainSettings.{field} names {name!r}: must be eval/SET/METRIC, with an "
                f"evaluation set of this run ({known or 'there are none'})"
            )

"""The one training loop: build, restore, evaluate, step, log, save.

A run that is stopped at any moment and started again ends with the same parameters, bit for bit,
as one that was not (same machine, devices and versions). What makes it so: all that the next step
depends on is in the checkpoint (state, key, input position, early stopping); batch n and step n's
random draws are functions of the seed and n alone; evaluation changes nothing; and a checkpoint is
whole or absent.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from gophercite.learning.state import Collected, Collector, HostBatch, Learner, TrainState, means
from gophercite.models.checkpoint_files import best_step
from gophercite.models.parameters import Params
from gophercite.partitioning import Partitioner
from gophercite.training.checkpoints import Checkpoints
from gophercite.training.early_stopping import EarlyStopping, Watch
from gophercite.training.evaluate import Evaluations, Evaluator
from gophercite.training.feed import Feed, put
from gophercite.training.metrics import MetricsWriter
from gophercite.training.phase_times import profiled
from gophercite.training.preemption import Preempted, Preemption
from gophercite.training.program import Initialisation, Program, evaluated_params, shapes_of
from gophercite.training.progress import Progress
from gophercite.training.run_folder import (
    draw_curves,
    parameter_table,
    report,
    trained_parts,
    versions_json,
    write_text,
)
from gophercite.training.run_lock import hold_run
from gophercite.training.step_log import StepLog
from gophercite.training.watchdog import Watchdog

_COLLECTED = 3  # what the run's key is folded with for a collector's draws
_PATIENCE = 3  # how much longer than a step a save or sample answers may take

Samples = Callable[[Params, int], tuple[str, Mapping[str, float]]]
Describe = Callable[[epath.Path], None]


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """How long a run goes and how often it logs, evaluates and saves.

    Attributes:
      model_dir: the run's folder, made when missing; a run that finds checkpoints there goes on.
      total_steps: updates in all.
      batch_size: rows of a global batch.
      seed: of parameters and of every draw in training; the input has its own.
      log_every: steps between lines of metrics.
      evaluate_every: steps between evaluations; also before the first step and after the last.
      save_every: steps between checkpoints; also after the last.
      keep_newest: newest checkpoints to keep; with 2 or more a damaged one has one before it.
      keep_best: checkpoints with the best score to keep.
      best_metric: what scores a checkpoint ("eval/SET/loss", lower is better); None is early
        stopping's first metric, or the first evaluation set's loss.
      early_stopping: when to stop before `total_steps`; None never does.
      profile_step: the step that is run under the profiler, to tell what its phases take; not the
        first, in which buffers are new. None is no step.
      stalled_after: seconds without a step, a batch of an evaluation or anything else that is done,
        until the process ends and says why; compiling takes what it takes, and a save may take
        three times as long. None waits for ever.
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
    early_stopping: EarlyStopping | None = None
    profile_step: int | None = None
    stalled_after: float | None = 1800.0

    def __post_init__(self) -> None:
        """Refuses counts that make no run.

        Raises:
          ValueError: a count is below 1.
        """
        counts = ["total_steps", "batch_size", "log_every", "evaluate_every", "save_every"]
        if self.profile_step is not None:
            counts.append("profile_step")
        for name in counts:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"TrainSettings.{name} = {value!r}: must be a whole number from 1")
        seconds = self.stalled_after
        if seconds is not None and not seconds > 0:
            raise ValueError(f"TrainSettings.stalled_after = {seconds!r}: must be above 0, or None")


@dataclasses.dataclass(frozen=True)
class Clock:
    """Where a run stands beside its state; a checkpoint keeps it as JSON.

    Attributes:
      step: updates done, and batches read: batch number n is that of update n + 1.
      evaluated: whether the state of this step has been evaluated.
      watch: what early stopping has seen.
      stopped: why the run is over before its last step, or None.
      environments: how far the collector's environments are, as JSON; None where there are none.
    """

    step: int = 0
    evaluated: bool = False
    watch: Watch = dataclasses.field(default_factory=Watch)
    stopped: str | None = None
    environments: Any = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Clock":
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**value, "watch": Watch(**value["watch"])})


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
      state: the last one.
      reason: why it ended, in words.
    """

    state: TrainState
    reason: str


def train(
    settings: TrainSettings,
    learner: Learner,
    initialisation: Initialisation,
    partitioner: Partitioner,
    batches: Callable[[int], Iterator[HostBatch]],
    evaluations: Evaluations,
    *,
    collector: Collector | None = None,
    samples: Samples | None = None,
    describe: Describe | None = None,
    stream: TextIO | None = sys.stderr,
) -> Outcome:
    """Trains until the last step, early stopping or preemption.

    Args:
      settings: how long and how often.
      learner: what is optimised.
      initialisation: where the first parameters come from; not asked when a run goes on.
      partitioner: mesh and axis rules.
      batches: this process's rows of the endless sequence of batches, from a given number on.
      evaluations: by name of the set, one pass over this process's rows of it.
      collector: what makes experience of each batch, between two device programs; None where
        batches are what is learnt from.
      samples: from parameters at a step, a Markdown table of sample answers and their rates as
        metrics.
      describe: writes into the run's folder what is known before the first step: configuration,
        and what inference needs beside checkpoints (vocabulary, architecture).
      stream: where progress goes; None is silent.

    Returns:
      The last state and why the run ended.

    Raises:
      Preempted: asked to stop; the state is saved.
      NonFiniteLossError: a loss was NaN or infinite; names the steps.
      CheckpointError: the folder's checkpoints are of another model, or none is whole.
      RunInUseError: another command trains in the folder.
    """
    refuse_unknown_sets(settings, evaluations)
    folder = epath.Path(settings.model_dir)
    first_process = jax.process_index() == 0
    progress = Progress(stream if first_process else None, settings.total_steps)
    # Nothing in the folder is touched, nor an interrupted save cleared, before it is this run's.
    with hold_run(folder, progress.note) as still_ours:
        # ---------------------------------------------------------------- build
        program = Program(learner, initialisation, partitioner)
        watchdog = Watchdog(settings.stalled_after)
        evaluate = Evaluator(program, evaluations, collector, watchdog.suspended)
        target = program.state_target()
        checkpoints = Checkpoints(
            folder,
            keep_newest=settings.keep_newest,
            keep_best=settings.keep_best,
            base=initialisation.base(),
        )

        # -------------------------------------------------------------- restore
        # A checkpoint is the state, where the run stands, and nothing else. Metrics after its step
        # are dropped: they will be written again.
        restored = checkpoints.restore(
            target, learner.init_state, partial(program.initial_parameters, settings.seed)
        )
        if restored is None:
            clock, state = Clock(), program.initial_state(settings.seed)
        else:
            clock, state = Clock.from_json(restored.progress), restored.state
            if collector is not None:
                collector.resume(clock.environments)
            for line in restored.passed_over:
                progress.note(line)
            progress.note(f"going on from checkpoint {clock.step} of {folder}")
        writer = MetricsWriter(
            folder, clock.step, keep_evaluation=clock.evaluated, enabled=first_process
        )
        log = StepLog(writer, progress, settings.log_every)
        overview = parameter_table(target.params, trained_parts(target))
        write_text(folder, {"versions.json": versions_json(), "parameters.txt": overview})
        if describe and first_process:
            describe(folder)
        progress.note(overview.splitlines()[-1])

        # By shapes, of which nearly all batches have one.
        updates: dict[Any, jax.stages.Compiled] = {}
        score: float | None = None
        feed = Feed(batches(clock.step), partitioner if collector is None else None)
        with (
            Preemption() as preemption,
            closing(feed),
            closing(writer),
            watchdog,
            closing(checkpoints),
        ):

            def asked_to_stop() -> bool:
                watchdog.alive(f"an evaluation or a collection at step {clock.step}")
                return preemption.requested()

            while True:
                last = clock.step >= settings.total_steps or clock.stopped is not None
                preempted = preemption.requested()

                # ---------------------------------------------------- evaluate
                due = last or clock.step % settings.evaluate_every == 0
                if due and not clock.evaluated and not preempted:
                    log.catch_up()
                    results = evaluate(state, asked_to_stop)
                    if results is None:
                        preempted = True
                    else:
                        clock, score = judge(settings, clock, results)
                        if samples:
                            watchdog.alive(f"sample answers at step {clock.step}", _PATIENCE)
                            table, rates = samples(evaluated_params(state), clock.step)
                            write_text(folder, {f"samples/step_{clock.step}.md": table})
                            results["samples"] = dict(rates)
                        record(writer, progress, clock, results)
                        last = last or clock.stopped is not None
                    log.resume()

                # -------------------------------------------------------- save
                due = clock.step > 0 and clock.step % settings.save_every == 0
                if due or last or preempted:
                    log.catch_up()  # a step whose loss is not finite ends the run before its save
                    watchdog.alive(f"saving step {clock.step}", _PATIENCE)
                    still_ours()
                    checkpoints.save(state, dataclasses.asdict(clock), score)
                    log.resume()
                    watchdog.alive(f"finishing the save of step {clock.step}", _PATIENCE)
                if last or preempted:
                    break

                # -------------------------------------------------------- step
                batch, of_host = next(feed), {}
                if collector is not None:
                    key = jax.random.fold_in(jax.random.fold_in(state.key, _COLLECTED), clock.step)
                    begun = time.monotonic()
                    made = collector.collect(state.params, batch, key, asked_to_stop)
                    if made is None:
                        continue  # to the save of the state before
                    of_host = means_of_host(made, time.monotonic() - begun)
                    clock = dataclasses.replace(clock, environments=collector.environments())
                    batch = put(partitioner, made.experience)
                shapes = shapes_of(batch)
                if shapes not in updates:
                    with watchdog.suspended("compiling"):
                        updates[shapes] = program.compile_update(batch)
                    feed.take_wait()  # while it compiled: start-up, and no step's
                    log.resume()
                clock = dataclasses.replace(clock, step=clock.step + 1, evaluated=False)
                score = None
                watchdog.alive(f"step {clock.step}")
                if clock.step == settings.profile_step:
                    log.catch_up()
                    (state, metrics), seconds = profiled(updates[shapes], state, batch)
                    times = {f"time/phase/{name}": value for name, value in seconds.items()}
                    record(writer, progress, clock, {"profile": times})
                else:
                    state, metrics = updates[shapes](state, batch)
                metrics = {**metrics, **of_host}
                log.add(clock.step, metrics, next(iter(batch.values())).size, feed.take_wait())

        if preempted and not (last and clock.evaluated):
            raise Preempted(
                f"asked to stop: step {clock.step} is saved in {folder}; the same command goes on "
                "there"
            )
        # -------------------------------------------------------------- report
        reason = clock.stopped or f"all {settings.total_steps} steps are done"
        if first_process:
            lines = [f"ended at step {clock.step}: {reason}", overview.splitlines()[-1]]
            text = report(folder, lines, best_step(folder), draw_curves(folder))
            write_text(folder, {"report.md": text})
        progress.note(f"ended at step {clock.step}: {reason}")
        return Outcome(state, reason)


def means_of_host(collected: Collected, seconds: float) -> dict[str, jax.Array]:
    """What a collector measured, as metrics that wait with those of the device.

    Args:
      collected: what it made.
      seconds: that it took.

    Returns:
      The means of its totals that have a weight, and `time/collect`.
    """
    totals = {
        name: (np.asarray(total), np.asarray(weight))
        for name, (total, weight) in collected.totals.items()
    }
    known = {name: value for name, value in means(totals).items() if math.isfinite(value)}
    return {name: jnp.float32(value) for name, value in {**known, "time/collect": seconds}.items()}


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


def refuse_unknown_sets(settings: TrainSettings, evaluations: Collection[str]) -> None:
    """Refuses metrics of evaluation sets that a run doesn't have, before it starts.

    Args:
      settings: with the names of metrics.
      evaluations: names of the sets.

    Raises:
      ValueError: a name is not "eval/SET/METRIC" with one of the sets.
    """
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
                f"TrainSettings.{field} names {name!r}: must be eval/SET/METRIC of an evaluation "
                f"set of this run ({known or 'it has none'})"
            )


def record(
    writer: MetricsWriter,
    progress: Progress,
    clock: Clock,
    results: Mapping[str, Mapping[str, float]],
) -> None:
    """Writes an evaluation to the metrics and shows it.

    Args:
      writer: of `metrics.jsonl` and TensorBoard.
      progress: what people see.
      clock: where the run stands.
      results: metrics by evaluation set.
    """
    for name, values in results.items():
        if not values:
            continue
        writer.write(clock.step, name, values)
        shown = " · ".join(
            f"{metric.removeprefix(f'eval/{name}/')} {value:.4g}"
            for metric, value in values.items()
        )
        progress.note(f"step {clock.step} · {name} · {shown}")

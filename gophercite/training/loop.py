"""The one training loop: build, restore, evaluate, step, log, save.

A run that is stopped at any moment and restarted ends with bit-identical parameters to one that was
not stopped (on the same machine, devices and versions). The reasons: everything that the next step
depends on is in the checkpoint (state, key, input position, early stopping); batch n and step n's
random draws are functions of only the seed and n; evaluation changes nothing; and a checkpoint is
complete or absent.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from gophercite.learning.state import Collected, Collector, HostBatch, Learner, TrainState, means
from gophercite.model_folders.checkpoint_files import best_step
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.models.parameters import Params
from gophercite.monitoring.goodput import TimeAccount
from gophercite.monitoring.metrics import PROFILE, SAMPLES, MetricsWriter
from gophercite.monitoring.phase_times import profiled
from gophercite.monitoring.progress import Progress
from gophercite.monitoring.reminders import Reminders
from gophercite.monitoring.step_log import StepLog
from gophercite.partitioning import Partitioner
from gophercite.training.checkpoints import Checkpoints
from gophercite.training.clock import Clock, judge
from gophercite.training.evaluate import Evaluations, Evaluator
from gophercite.training.feed import DeviceBatch, Feed, put
from gophercite.training.preemption import Preempted, Preemption
from gophercite.training.program import Initialisation, Program, evaluated_params, shapes_of
from gophercite.training.run_folder import (
    draw_curves,
    parameter_table,
    report,
    trained_parts,
    versions_json,
    write_text,
)
from gophercite.training.run_lock import hold_run
from gophercite.training.settings import TrainSettings, refuse_unknown_sets
from gophercite.training.watchdog import Watchdog

_COLLECTED = 3  # folded into the run's key for a collector's draws
_PATIENCE = 3  # watchdog: a save or sample answers may take this many times longer than a step
_FIRST_BATCH = 8  # the same for the first batch, before which a dataset may be measured

Samples = Callable[[Params, int], tuple[str, Mapping[str, float]]]
Describe = Callable[[epath.Path], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
      state: the final state.
      reason: why the run ended, in words.
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
    quiet: bool = False,
) -> Outcome:
    """Trains until the last step, early stopping or preemption.

    Args:
      settings: number of steps, and how often to log, evaluate and save.
      learner: defines the objective and its update.
      initialisation: source of the initial parameters; not used when a run is resumed.
      partitioner: mesh and axis rules.
      batches: yields this process's rows of the endless sequence of batches, from a given number
        on.
      evaluations: by dataset name, one pass over this process's rows of the dataset.
      collector: turns each batch into experience, between two device programs; None to learn from
        the batches themselves.
      samples: maps parameters at a step to a Markdown table of sample answers, and their rates as
        metrics.
      describe: writes what is known before the first step into the run's folder: the configuration,
        and what inference needs besides checkpoints (vocabulary, architecture).
      quiet: writes no progress to stderr.

    Returns:
      The last state and why the run ended.

    Raises:
      Preempted: the run was asked to stop, and its state is saved.
      NonFiniteLossError: a loss was NaN or infinite; names the steps.
      CheckpointError: the folder's checkpoints are of another model, or none is intact.
      UnknownMetricError: the first evaluation does not report a metric that the settings name.
      OSError: the disk or the bucket refused a checkpoint.
      RunInUseError: another command trains in the folder.
    """
    entered = time.time()
    refuse_unknown_sets(settings, evaluations)
    folder = epath.Path(settings.model_dir)
    first_process = jax.process_index() == 0
    progress = Progress(sys.stderr if first_process and not quiet else None, settings.total_steps)
    # Don't touch anything in the folder, not even an interrupted save, before this run holds it.
    with hold_run(folder, progress.note) as still_ours, profiler_server(settings.profiler_port):
        program = Program(learner, initialisation, partitioner)
        target = program.state_target()
        checkpoints = Checkpoints(
            folder,
            keep_newest=settings.keep_newest,
            keep_best=settings.keep_best,
            base=initialisation.base(),
            say=progress.note,
        )
        clock, state = _start(program, settings, checkpoints, progress.note)
        if collector is not None:
            collector.resume(clock.environments)
        overview = parameter_table(target.params, trained_parts(target))
        write_text(folder, {"versions.json": versions_json(), "parameters.txt": overview})
        if describe and first_process:
            describe(folder)
        progress.note(overview.splitlines()[-1])

        times = TimeAccount(clock.times, entered)
        watchdog = Watchdog(settings.stalled_after)
        writer = MetricsWriter(
            folder, clock.step, keep_evaluation=clock.evaluated, enabled=first_process
        )
        feed = Feed(batches(clock.step), partitioner if collector is None else None)
        with (
            Preemption() as preemption,
            closing(feed),
            closing(writer),
            watchdog,
            Reminders(progress, watchdog.doing),
            closing(checkpoints),
        ):
            run = _Run(
                settings=settings,
                folder=folder,
                program=program,
                evaluate=Evaluator(program, evaluations, collector, watchdog.suspended),
                collector=collector,
                samples=samples,
                checkpoints=checkpoints,
                still_ours=still_ours,
                feed=feed,
                preemption=preemption,
                progress=progress,
                writer=writer,
                log=StepLog(writer, progress, settings.log_every, times),
                times=times,
                watchdog=watchdog,
                clock=clock,
                state=state,
            )
            is_done_already = run.is_over()
            run.go()

        clock = run.clock
        if not run.is_over():
            raise Preempted(
                f"stopped on request: step {clock.step} is saved in {folder}; run the same "
                "command again to go on from there"
            )
        reason = clock.stopped or f"all {settings.total_steps} steps are done"
        ended = f"ended at step {clock.step}: {reason}"
        if first_process and not (is_done_already and (folder / "report.md").exists()):
            lines = [ended, overview.splitlines()[-1]]
            curves = draw_curves(folder)
            text = report(folder, lines, best_step(folder), curves, times.table())
            write_text(folder, {"report.md": text})
        progress.note(ended)
        return Outcome(run.state, reason)


def _start(
    program: Program,
    settings: TrainSettings,
    checkpoints: Checkpoints,
    note: Callable[[str], None],
) -> tuple[Clock, TrainState]:
    """The position and state to start from: those of the newest intact checkpoint, or new ones.

    Metrics after a checkpoint's step are dropped, because they will be written again.
    """
    restored = checkpoints.restore(
        program.state_target(),
        program.learner.init_state,
        partial(program.initial_parameters, settings.seed),
    )
    if restored is None:
        return Clock(), program.initial_state(settings.seed)
    clock = Clock.from_json(restored.progress).under(settings.early_stopping)
    for line in restored.passed_over:
        note(line)
    note(f"resuming from checkpoint {clock.step} of {settings.model_dir}")
    return clock, restored.state


@dataclasses.dataclass
class _Run:
    """A run between its first step and its end; `clock` and `state` are its current position."""

    settings: TrainSettings
    folder: epath.Path
    program: Program
    evaluate: Evaluator
    collector: Collector | None
    samples: Samples | None
    checkpoints: Checkpoints
    still_ours: Callable[[], None]
    feed: Feed
    preemption: Preemption
    progress: Progress
    writer: MetricsWriter
    log: StepLog
    times: TimeAccount
    watchdog: Watchdog
    clock: Clock
    state: TrainState
    score: Score | None = None  # the state's score; None if it was not evaluated
    updates: dict[Any, jax.stages.Compiled] = dataclasses.field(default_factory=dict)  # by shapes

    def go(self) -> None:
        """Evaluates, saves and steps, until the end or until the run is asked to stop."""
        while True:
            preempted = self.preemption.requested()
            if not preempted and self._is_due(self.settings.evaluate_every):
                preempted = not (self.clock.evaluated or self._evaluate())
            is_last = self._is_last()
            to_save = self.clock.step > 0 and self.clock.step % self.settings.save_every == 0
            if to_save or is_last or preempted:
                self._save(last=is_last or preempted)
            if is_last or preempted:
                return
            self._step()

    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self._is_last() and self.clock.evaluated

    def _is_last(self) -> bool:
        return self.clock.step >= self.settings.total_steps or self.clock.stopped is not None

    def _is_due(self, every: int) -> bool:
        return self._is_last() or self.clock.step % every == 0

    def _asked_to_stop(self) -> bool:
        self.watchdog.alive(f"an evaluation or a collection at step {self.clock.step}")
        return self.preemption.requested()

    def _evaluate(self) -> bool:
        """Evaluates the state; returns False if the run was asked to stop in the meantime."""
        self.log.catch_up()
        with self.times.during("evaluating"):
            results = self.evaluate(self.state, self._asked_to_stop)
            if results is not None:
                self.clock, self.score = judge(self.settings, self.clock, results)
                step = self.clock.step
                if self.samples:
                    self.watchdog.alive(f"sample answers at step {step}", _PATIENCE)
                    table, rates = self.samples(evaluated_params(self.state), step)
                    write_text(self.folder, {f"samples/step_{step}.md": table})
                    results[SAMPLES] = dict(rates)
                record(self.writer, self.progress, self.clock, results)
        self.log.resume()
        return results is not None

    def _save(self, *, last: bool) -> None:
        self.log.catch_up()  # a step with a non-finite loss ends the run before its save
        with self.times.during("saving"):
            self.watchdog.alive(f"saving step {self.clock.step}", _PATIENCE)
            self.still_ours()
            clock = dataclasses.replace(self.clock, times=self.times.to_json())
            if self.collector is not None:
                clock = dataclasses.replace(clock, environments=self.collector.environments())
            self.checkpoints.save(self.state, dataclasses.asdict(clock), self.score, last=last)
        self.log.resume()
        self.watchdog.alive(f"finishing the save of step {self.clock.step}", _PATIENCE)

    def _step(self) -> None:
        """One update; none if the collector was interrupted."""
        if not self.updates:
            self.watchdog.alive("the first batch", _FIRST_BATCH)
        batch, of_host = next(self.feed), dict[str, jax.Array]()
        if self.collector is not None:
            collected = self._collect(self.collector, batch)
            if collected is None:
                return  # the caller saves the previous state
            batch, of_host = collected
        update = self._update_of(batch)
        self.times.at("training")
        step = self.clock.step + 1
        self.clock = dataclasses.replace(self.clock, step=step, evaluated=False)
        self.score = None
        self.watchdog.alive(f"step {step}")
        if step == self.settings.profile_step:
            self.log.catch_up()
            (self.state, metrics), seconds = profiled(update, self.state, batch)
            times = {f"time/phase/{name}": value for name, value in seconds.items()}
            record(self.writer, self.progress, self.clock, {PROFILE: times})
        else:
            self.state, metrics = update(self.state, batch)
        waited = self.feed.take_wait()
        self.times.move(waited, "input")
        self.log.add(step, {**metrics, **of_host}, next(iter(batch.values())).size, waited)

    def _collect(
        self, collector: Collector, batch: HostBatch
    ) -> tuple[DeviceBatch, dict[str, jax.Array]] | None:
        """Experience of a batch, and the host's metrics; None if interrupted."""
        key = jax.random.fold_in(self.state.key, _COLLECTED)
        key = jax.random.fold_in(key, self.clock.step)
        begun = time.monotonic()
        collected = collector.collect(self.state.params, batch, key, self._asked_to_stop)
        if collected is None:
            return None
        of_host = means_of_host(collected, time.monotonic() - begun)
        return put(self.program.partitioner, collected.experience), of_host

    def _update_of(self, batch: DeviceBatch) -> jax.stages.Compiled:
        """The compiled update for the batch's shapes, which nearly all batches share."""
        shapes = shapes_of(batch)
        if shapes not in self.updates:
            self.log.catch_up()
            with self.times.during("compiling"), self.watchdog.suspended("compiling"):
                self.updates[shapes] = self.program.compile_update(batch)
            self.times.move(self.feed.take_wait(), "input")  # not part of a step
            self.log.resume()
        return self.updates[shapes]


@contextmanager
def profiler_server(port: int | None) -> Iterator[None]:
    """Serves requests for profiler traces of the devices while the run is active.

    Args:
      port: port to listen on, at all of this host's addresses; None starts no server.
    """
    if port is None:
        yield
        return
    jax.profiler.start_server(port)
    try:
        yield
    finally:
        jax.profiler.stop_server()


def means_of_host(collected: Collected, seconds: float) -> dict[str, jax.Array]:
    """A collector's measurements as metrics, to be logged with the device's.

    Args:
      collected: the collector's result.
      seconds: the time it took.

    Returns:
      The means of its totals that have a weight, and `time/collect`.
    """
    totals = {
        name: (np.asarray(total), np.asarray(weight))
        for name, (total, weight) in collected.totals.items()
    }
    known = {name: value for name, value in means(totals).items() if math.isfinite(value)}
    return {name: jnp.float32(value) for name, value in {**known, "time/collect": seconds}.items()}


def record(
    writer: MetricsWriter,
    progress: Progress,
    clock: Clock,
    results: Mapping[str, Mapping[str, float]],
) -> None:
    """Writes an evaluation to the metrics and shows it.

    Args:
      writer: writes `metrics.jsonl` and TensorBoard.
      progress: shows progress to the user.
      clock: the run's position.
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

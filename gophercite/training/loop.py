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
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
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
from gophercite.training.clock import Clock, judge
from gophercite.training.evaluate import Evaluations, Evaluator
from gophercite.training.feed import DeviceBatch, Feed, put
from gophercite.training.goodput import TimeAccount
from gophercite.training.metrics import MetricsWriter
from gophercite.training.phase_times import profiled
from gophercite.training.preemption import Preempted, Preemption
from gophercite.training.program import Initialisation, Program, evaluated_params, shapes_of
from gophercite.training.progress import Progress
from gophercite.training.reminders import Reminders
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
from gophercite.training.step_log import StepLog
from gophercite.training.watchdog import Watchdog

_COLLECTED = 3  # what the run's key is folded with for a collector's draws
_PATIENCE = 3  # how much longer than a step a save or sample answers may take
_FIRST_BATCH = 8  # and the first batch, before which a set may have to be measured

Samples = Callable[[Params, int], tuple[str, Mapping[str, float]]]
Describe = Callable[[epath.Path], None]


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
    entered = time.time()
    refuse_unknown_sets(settings, evaluations)
    folder = epath.Path(settings.model_dir)
    first_process = jax.process_index() == 0
    progress = Progress(stream if first_process else None, settings.total_steps)
    # Nothing in the folder is touched, nor an interrupted save cleared, before it is this run's.
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
                f"asked to stop: step {clock.step} is saved in {folder}; the same command goes on "
                "there"
            )
        reason = clock.stopped or f"all {settings.total_steps} steps are done"
        if first_process and not (is_done_already and (folder / "report.md").exists()):
            lines = [f"ended at step {clock.step}: {reason}", overview.splitlines()[-1]]
            curves = draw_curves(folder)
            text = report(folder, lines, best_step(folder), curves, times.table())
            write_text(folder, {"report.md": text})
        progress.note(f"ended at step {clock.step}: {reason}")
        return Outcome(run.state, reason)


@dataclasses.dataclass
class _Run:
    """A run between its first step and its end; `clock` and `state` are where it stands."""

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
    score: float | None = None  # of the state, less is better; None where it has none
    updates: dict[Any, jax.stages.Compiled] = dataclasses.field(default_factory=dict)  # by shapes

    def go(self) -> None:
        """Evaluates, saves and steps, until the end or until it is asked to stop."""
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
        """Evaluates the state; False when it was asked to stop meanwhile."""
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
                    results["samples"] = dict(rates)
                record(self.writer, self.progress, self.clock, results)
        self.log.resume()
        return results is not None

    def _save(self, *, last: bool) -> None:
        self.log.catch_up()  # a step whose loss is not finite ends the run before its save
        with self.times.during("saving"):
            self.watchdog.alive(f"saving step {self.clock.step}", _PATIENCE)
            self.still_ours()
            clock = dataclasses.replace(self.clock, times=self.times.to_json())
            self.checkpoints.save(self.state, dataclasses.asdict(clock), self.score, last=last)
        self.log.resume()
        self.watchdog.alive(f"finishing the save of step {self.clock.step}", _PATIENCE)

    def _step(self) -> None:
        """One update; none where a collector was asked to stop."""
        if not self.updates:
            self.watchdog.alive("the first batch", _FIRST_BATCH)
        batch, of_host = next(self.feed), dict[str, jax.Array]()
        if self.collector is not None:
            collected = self._collect(self.collector, batch)
            if collected is None:
                return  # to the save of the state before
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
            record(self.writer, self.progress, self.clock, {"profile": times})
        else:
            self.state, metrics = update(self.state, batch)
        waited = self.feed.take_wait()
        self.times.move(waited, "input")
        self.log.add(step, {**metrics, **of_host}, next(iter(batch.values())).size, waited)

    def _collect(
        self, collector: Collector, batch: HostBatch
    ) -> tuple[DeviceBatch, dict[str, jax.Array]] | None:
        """Experience of a batch, and the host's metrics; None where it was asked to stop."""
        key = jax.random.fold_in(self.state.key, _COLLECTED)
        key = jax.random.fold_in(key, self.clock.step)
        begun = time.monotonic()
        made = collector.collect(self.state.params, batch, key, self._asked_to_stop)
        if made is None:
            return None
        of_host = means_of_host(made, time.monotonic() - begun)
        self.clock = dataclasses.replace(self.clock, environments=collector.environments())
        return put(self.program.partitioner, made.experience), of_host

    def _update_of(self, batch: DeviceBatch) -> jax.stages.Compiled:
        """The program of the batch's shapes, which nearly all batches share."""
        shapes = shapes_of(batch)
        if shapes not in self.updates:
            self.log.catch_up()
            with self.times.during("compiling"), self.watchdog.suspended("compiling"):
                self.updates[shapes] = self.program.compile_update(batch)
            self.times.move(self.feed.take_wait(), "input")  # no step's, but start-up's
            self.log.resume()
        return self.updates[shapes]


@contextmanager
def profiler_server(port: int | None) -> Iterator[None]:
    """Answers, while the run goes on, who asks for a trace of what the devices do.

    Args:
      port: to listen on, at all of this host's addresses; None does not.
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

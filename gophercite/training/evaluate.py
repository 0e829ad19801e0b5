"""Evaluation during training: means over validation sets, with one program per batch shape."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from gophercite.learning.state import Collector, HostBatch, TrainState
from gophercite.monitoring.pending import LATE
from gophercite.training.feed import put
from gophercite.training.program import Program, evaluated_params, shapes_of

Evaluations = Mapping[str, Callable[[], Iterator[HostBatch]]]


class Evaluator:
    """Evaluates a state on every validation set."""

    def __init__(
        self,
        program: Program,
        evaluations: Evaluations,
        collector: Collector | None = None,
        compiling: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ):
        """Does not compile anything yet.

        Args:
          program: the learner on its mesh.
          evaluations: by dataset name, one pass over this process's rows of the dataset.
          collector: turns batches into experience; None to evaluate the batches themselves.
          compiling: a context that is entered while a program is compiled.
        """
        self._program = program
        self._evaluations = evaluations
        self._collector = collector
        self._compiling = compiling
        self._compiled: dict[Any, jax.stages.Compiled] = {}

    def __call__(
        self, state: TrainState, interrupted: Callable[[], bool]
    ) -> dict[str, dict[str, float]] | None:
        """Metrics of all sets.

        Args:
          state: the state to evaluate.
          interrupted: polled between batches; returns True to stop.

        Returns:
          By set, `eval/SET/NAME` for each of the learner's metrics and, if there is a `loss`,
          `eval/SET/perplexity`; None if interrupted.
        """
        results = {}
        for name, batches in self._evaluations.items():
            totals = self._totals(state, batches(), interrupted)
            if totals is None:
                return None
            values = {
                f"eval/{name}/{metric}": value
                for metric, value in self._program.learner.summarise(totals).items()
            }
            if f"eval/{name}/loss" in values:
                with np.errstate(over="ignore"):
                    perplexity = float(np.exp(values[f"eval/{name}/loss"]))
                values[f"eval/{name}/perplexity"] = perplexity
            results[name] = values
        return results

    def _totals(
        self, state: TrainState, batches: Iterator[HostBatch], interrupted: Callable[[], bool]
    ) -> dict[str, tuple[np.ndarray, np.ndarray]] | None:
        """Sums over a set, in double precision, in the order of its batches."""
        parts: list[Any] = []
        for number, batch in enumerate(batches):
            if interrupted():
                return None
            if self._collector is not None:
                # The same random draws at every evaluation.
                key = jax.random.fold_in(jax.random.key(0), number)
                params = evaluated_params(state)
                collected = self._collector.rehearse(params, batch, key, interrupted)
                if collected is None:
                    return None
                batch = collected.experience
                parts.append(collected.totals)
            placed = put(self._program.partitioner, batch)
            shapes = shapes_of(placed)
            if shapes not in self._compiled:
                with self._compiling("compiling the evaluation"):
                    self._compiled[shapes] = self._program.compile_evaluate(placed)
            parts.append(self._compiled[shapes](state, placed))
            if len(parts) > LATE:  # the host must not run far ahead of the devices
                jax.block_until_ready(parts[-1 - LATE])
        sums: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for part in jax.device_get(parts):
            for metric, (total, weight) in part.items():
                new = np.asarray(total, np.float64), np.asarray(weight, np.float64)
                before = sums.get(metric)
                sums[metric] = (before[0] + new[0], before[1] + new[1]) if before else new
        return sums

"""Turns a step's metrics on the devices into lines of metrics and of progress."""

import time
from collections import deque
from collections.abc import Mapping

import jax
import numpy as np

from gophercite.monitoring.goodput import TimeAccount, memory_metrics
from gophercite.monitoring.metrics import TRAIN, MetricsWriter
from gophercite.monitoring.pending import PendingMetrics
from gophercite.monitoring.progress import Progress
from gophercite.monitoring.stragglers import input_waits, straggler

_REMEMBERED = 200  # number of steps that percentiles are over
_SHOWN = ("loss/total", "optimizer/learning_rate")


class StepLog:
    """Logs every n-th step and checks all steps for non-finite losses."""

    def __init__(
        self, writer: MetricsWriter, progress: Progress, log_every: int, account: TimeAccount
    ):
        """Starts the clock.

        Args:
          writer: writes `metrics.jsonl` and TensorBoard.
          progress: shows progress to the user.
          log_every: number of steps between lines.
          account: how the run spends its time.
        """
        self._writer = writer
        self._progress = progress
        self._every = log_every
        self._account = account
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._told: int | None = None  # the process last reported as holding up the others
        self._pending = PendingMetrics()
        self._of_step: dict[int, tuple[int, float]] = {}  # tokens, and the wait for the batch
        self.resume()

    def resume(self) -> None:
        """Restarts the clock, because time for evaluating and saving does not count for steps."""
        self._since = self._last = time.monotonic()
        self._steps = self._tokens = 0
        self._input = 0.0
        self._progress.pause()

    def add(
        self, step: int, metrics: Mapping[str, jax.Array], tokens: int, input_wait: float
    ) -> None:
        """Queues a step's metrics and logs those that have arrived.

        Args:
          step: number of updates so far.
          metrics: metrics on the devices.
          tokens: number of tokens in the global batch, including padding.
          input_wait: seconds that the step waited for its batch.

        Raises:
          NonFiniteLossError: see `PendingMetrics.arrived`.
        """
        self._of_step[step] = tokens, input_wait
        self._pending.add(step, metrics)
        self._log(wait=False)

    def catch_up(self) -> None:
        """Waits for all steps' metrics, logs them and flushes the files.

        Raises:
          NonFiniteLossError: see `PendingMetrics.arrived`.
        """
        self._log(wait=True)
        self._writer.flush()

    def _log(self, *, wait: bool) -> None:
        for step, values in self._pending.arrived(wait=wait):
            arrived = time.monotonic()
            self._seconds.append(arrived - self._last)
            self._last = arrived
            self._steps += 1
            tokens, input_wait = self._of_step.pop(step)
            self._tokens += tokens
            self._input += input_wait
            if step % self._every and step != 1:
                continue
            now = time.monotonic()
            passed = max(now - self._since, 1e-9)
            seconds, input_wait = passed / self._steps, self._input / self._steps
            times = {
                "time/step": seconds,
                "time/input_wait": input_wait,
                "time/input_wait_share": input_wait / seconds,
                "time/tokens_per_second": self._tokens / passed,
                **self._percentiles(),
                **self._account.metrics(),
                **self._waiting(input_wait, seconds),
                **memory_metrics(),
            }
            self._writer.write(step, TRAIN, {**values, **times})
            shown = {name.split("/")[-1]: values[name] for name in _SHOWN if name in values}
            self._progress.step(step, shown)
            self._since, self._steps, self._tokens, self._input = now, 0, 0, 0.0

    def _percentiles(self) -> dict[str, float]:
        """Percentiles of the seconds between the arrivals of the last steps' metrics."""
        shares = {"p50": 50, "p90": 90, "p99": 99}
        values = np.percentile(self._seconds, [*shares.values()])
        return {
            f"time/step_{name}": float(value) for name, value in zip(shares, values, strict=True)
        }

    def _waiting(self, input_wait: float, seconds: float) -> dict[str, float]:
        """Reports the process whose input holds up the others, whenever it is another one."""
        found = straggler(input_waits(input_wait), seconds)
        if found is None:
            return {}
        process, line = found
        if process != self._told:
            self._progress.note(line)
            self._told = process
        return {"time/slowest_process": float(process)}

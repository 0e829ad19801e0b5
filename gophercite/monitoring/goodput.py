"""How a run spent its time: the share of training, and the causes of the rest.

Time counts from the first start of the run. The account is stored in checkpoints, so that the time
lost between a checkpoint and the next start is known, too: it is all time not charged to another
cause.
"""

import contextlib
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import jax

Cause = Literal["training", "input", "compiling", "evaluating", "saving", "starting", "lost"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
_MEANING: dict[Cause, str] = {
    "training": "training steps: the only productive part",
    "input": "waiting for the next batch",
    "compiling": "compiling the training step",
    "evaluating": "evaluations (compiling them included) and sample answers",
    "saving": "waiting for checkpoints to be saved",
    "starting": "from the start of the process to the first step, restoring included",
    "lost": "steps done after the last checkpoint and lost, and time until the restart",
}


class TimeAccount:
    """Charges each second since a run began to one cause."""

    def __init__(
        self,
        kept: Mapping[str, Any] | None = None,
        start: float | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Begins an account, or continues one from a checkpoint.

        Args:
          kept: a result of `to_json`; None for a new run.
          start: when this process began to work for the run; None is now.
          now: seconds of a clock that runs on while no process runs.
        """
        self._now = now
        start = now() if start is None else start
        kept = kept or {"began": start, "spent": {}}
        self._began = float(kept["began"])
        self._spent = {cause: float(kept["spent"].get(cause, 0.0)) for cause in CAUSES}
        # This host's clock may be behind that of the host that began the run; then nothing was
        # lost.
        self._spent["lost"] += max(0.0, start - self._began - math.fsum(self._spent.values()))
        self._cause: Cause = "starting"
        self._since = start

    def at(self, cause: Cause) -> None:
        """Charges the time up to now to the present cause, and switches to another cause."""
        now = self._now()
        self._spent[self._cause] += max(0.0, now - self._since)
        self._cause, self._since = cause, now

    @contextlib.contextmanager
    def during(self, cause: Cause) -> Iterator[None]:
        """Charges the time within the block to another cause."""
        before = self._cause
        self.at(cause)
        try:
            yield
        finally:
            self.at(before)

    def move(self, seconds: float, cause: Cause) -> None:
        """Moves seconds from the present cause to another cause."""
        self._spent[self._cause] -= seconds
        self._spent[cause] += seconds

    def spent(self) -> dict[Cause, float]:
        """Seconds by cause up to now; their sum is the time since the run began."""
        self.at(self._cause)
        return dict(self._spent)

    def to_json(self) -> dict[str, Any]:
        """The account as JSON, to store in a checkpoint."""
        return {"began": self._began, "spent": self.spent()}

    def metrics(self) -> dict[str, float]:
        """`time/goodput`, the productive share of all time so far, and seconds by cause."""
        spent = self.spent()
        whole = math.fsum(spent.values())
        share = spent["training"] / whole if whole > 0 else 0.0
        seconds = {f"time/spent/{cause}": seconds for cause, seconds in spent.items()}
        return {"time/goodput": share, **seconds}

    def table(self) -> str:
        """A Markdown table of all causes with nonzero time, largest first."""
        spent = self.spent()
        whole = math.fsum(spent.values()) or 1.0
        rows = [
            f"| {cause} | {seconds:,.0f} s | {seconds / whole:.1%} | {_MEANING[cause]} |"
            for cause, seconds in sorted(spent.items(), key=lambda item: -item[1])
            if seconds >= 0.5
        ]
        return "\n".join(["| | time | share | meaning |", "|---|---:|---:|---|", *rows])


def memory_metrics() -> dict[str, float]:
    """Memory in GiB: this process's peak, and its fullest device's use if the device reports it.

    Returns:
      `memory/host_peak`; on accelerators also `memory/device`, `memory/device_peak` and
      `memory/device_peak_share`, the peak's share of what a program may use.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    found = {"memory/host_peak": peak / 2**30}
    of_devices = [each for device in jax.local_devices() if (each := device.memory_stats())]
    if of_devices:
        fullest = max(of_devices, key=lambda each: each.get("peak_bytes_in_use", 0))
        found["memory/device"] = fullest.get("bytes_in_use", 0) / 2**30
        found["memory/device_peak"] = fullest.get("peak_bytes_in_use", 0) / 2**30
        if limit := fullest.get("bytes_limit"):
            found["memory/device_peak_share"] = fullest.get("peak_bytes_in_use", 0) / limit
    return found

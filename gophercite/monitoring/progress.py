"""Shows a run's progress: one self-updating line on a terminal, plain lines elsewhere."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TextIO

# Rates are over about the last minute: long enough to be steady, short enough to follow changes.
_WINDOW_SECONDS = 60.0

_USUAL_COLUMNS = 80


class Progress:
    """Writes progress with rate and remaining time.

    Attributes:
      stream: where to write; None writes nothing (all processes except the first).
    """

    def __init__(
        self,
        stream: TextIO | None,
        total_steps: int,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "step",
    ):
        """Starts the clock.

        Args:
          stream: where to write.
          total_steps: number of steps in the run.
          clock: monotonic clock in seconds.
          unit: what to call a step.
        """
        self.stream = stream
        self._total = total_steps
        self._clock = clock
        self._unit = unit
        self._terminal = stream is not None and stream.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._open = False
        self._said = clock()

    def silent(self) -> float:
        """Seconds since the last output."""
        return self._clock() - self._said

    def note(self, text: str) -> None:
        """Writes a separate line."""
        if self.stream is None:
            return
        if self._open:
            self.stream.write("\n")
            self._open = False
        self._said = self._clock()
        self.stream.write(text + "\n")
        self.stream.flush()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Shows a completed step and some of its metrics.

        Args:
          step: number of updates so far.
          metrics: metrics to show, in order.
        """
        now = self._clock()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        if self.stream is None:
            return
        self._said = now
        shown = [f"{name} {value:.4g}" for name, value in metrics.items()]
        speed = []
        if rate := self._rate():
            left = f"{duration((self._total - step) / rate)} left"
            speed = [_rate_text(rate, self._unit), left]

        def line() -> str:
            return " · ".join([f"{self._unit} {step}/{self._total}", *shown, *speed])

        if self._terminal:
            # A line that is wrapped is not cleared whole, so the last metrics make room.
            columns = _columns(self.stream)
            while shown and len(line()) >= columns:
                shown.pop()
            # Carriage return, clear the line.
            self.stream.write("\r\x1b[2K" + line()[: columns - 1])
            self._open = True
        else:
            self.stream.write(line() + "\n")
        self.stream.flush()

    def pause(self) -> None:
        """Resets the rate, because evaluation and saving are not steps."""
        self._seen.clear()

    def _rate(self) -> float | None:
        """Steps per second; None if unknown."""
        if len(self._seen) < 2:
            return None
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - start) if end > start and last > first else None


def _columns(terminal: TextIO) -> int:
    """A terminal's width in characters; a usual one's if it is not known."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError):
        return _USUAL_COLUMNS


def duration(seconds: float) -> str:
    """Seconds in words: "45 s", "12 min 03 s", "3 h 07 min"."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def _rate_text(rate: float, unit: str) -> str:
    return f"{rate:.2f} {unit}s/s" if rate >= 1 else f"{1 / rate:.2f} s/{unit}"

"""Writes a line from time to time when there is no other output: what the run does, since when."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

from gophercite.monitoring.progress import Progress, duration

EVERY = 60.0  # seconds of silence


class Reminders:
    """Says what a run is doing when it has written nothing for a minute. A context manager."""

    def __init__(self, progress: Progress, doing: Callable[[], str], every: float = EVERY) -> None:
        """Does not write anything yet.

        Args:
          progress: where lines go.
          doing: returns what the run is doing, in words: "saving step 12".
          every: seconds of silence between two lines.
        """
        self._progress = progress
        self._doing = doing
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reminders", daemon=True)

    def __enter__(self) -> "Reminders":
        if self._progress.stream is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _watch(self) -> None:
        known, since = "", time.monotonic()
        while not self._over.wait(self._every / 20):
            doing, now = self._doing(), time.monotonic()
            if doing != known:
                known, since = doing, now
            if self._progress.silent() >= self._every:
                self._progress.note(f"still busy with {doing} after {duration(now - since)}")

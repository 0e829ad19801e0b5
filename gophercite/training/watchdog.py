"""Ends a stalled run in bounded time, with a line that names the stalled process.

If one of several processes dies or is stopped, the others end (`cli.other_processes`). Nobody
notices if all processes run and one of them waits forever: for its input, a disk, a device, a lock.
The others then wait for it in their next collective operation. So the training loop itself gives
signs of life; if none comes for too long, a separate thread ends the process, and a launcher
restarts the run.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

import jax

from gophercite import interruption
from gophercite.monitoring.stragglers import coordination

# sysexits.h's EX_UNAVAILABLE: a required resource is unavailable; launchers restart the run.
EXIT_CODE = 69
_LOOKS = 20  # checks of the clock within the allowed time
_LONGEST_LOOK = 15.0  # maximum seconds between two checks
_PREFIX = "gophercite/signs_of_life/"


def end(message: str) -> None:
    """Ends this process with EXIT_CODE and a line, whatever its other threads are doing."""
    interruption.end(EXIT_CODE, message)


class Watchdog:
    """Acts if there is no sign of life for too long. A context manager."""

    def __init__(self, seconds: float | None, act: Callable[[str], None] = end) -> None:
        """Does not start watching yet.

        Args:
          seconds: how long the run may stall; None for no limit.
          act: called in a thread after that time, with a line for the user.
        """
        self._allowed = seconds
        self._act = act
        self._look = min((seconds or 0) / _LOOKS, _LONGEST_LOOK)
        self._doing = "starting"
        # The number of signs of life so far, and the time allowed after the last one: one value,
        # so that no sign is lost between two threads.
        self._sign = 0, seconds or 0.0
        self._suspended = 0
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Watchdog":
        if self._allowed is not None:
            # Two threads, because telling the others goes through one of the processes and may hang
            # with it.
            for target in (self._watch, self._tell_others):
                self._threads.append(threading.Thread(target=target, daemon=True))
                self._threads[-1].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()

    def alive(self, doing: str, patience: float = 1.0) -> None:
        """Gives a sign of life.

        Args:
          doing: what the run does from here on, in words: "step 12", "saving step 12".
          patience: factor on the allowed time for this activity.
        """
        self._doing = doing
        self._sign = self._sign[0] + 1, (self._allowed or 0.0) * patience

    def doing(self) -> str:
        """What the run is doing, in words."""
        return self._doing

    @contextlib.contextmanager
    def suspended(self, doing: str) -> Iterator[None]:
        """Sets no time limit within the block, for example for compiling.

        Args:
          doing: what the run does in the block, in words.
        """
        after = self._doing
        self.alive(doing)
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1
            self.alive(after)

    def _watch(self) -> None:
        before = time.monotonic()
        sign = self._sign
        _, left = sign
        while not self._over.wait(self._look):
            now = time.monotonic()
            # If this process itself was stopped and continued, that time is not counted.
            passed, before = min(now - before, 2 * self._look), now
            if self._suspended:
                continue
            if self._sign is not sign:
                sign = self._sign
                _, left = sign
            left -= passed
            if left <= 0:
                doing, allowed = self._doing, self._allowed
                because = self._reason()
                if self._over.is_set() or self._sign is not sign:  # the run continued after all
                    continue
                self._act(
                    f"the training is stuck: no progress on {doing} for {allowed:g} s. {because} "
                    "Run the same command again to go on from the last checkpoint"
                )
                return

    def _tell_others(self) -> None:
        """Publishes a counter that changes while this process runs, and the process's progress."""
        client = coordination()
        number = 0
        while client is not None and not self._over.wait(self._look):
            number += 1
            with contextlib.suppress(RuntimeError):  # the others are gone, or about to exit
                said = f"{number} {self._sign[0]}"
                client.key_value_set(f"{_PREFIX}{jax.process_index()}", said, True)

    def _reason(self) -> str:
        """The likely cause: a process whose counter did not change between two reads, or lags."""
        if jax.process_count() == 1:
            return "Its input, its disk or its device does not respond."
        found: list[dict[str, str]] = []

        def look_twice() -> None:
            client = coordination()
            with contextlib.suppress(RuntimeError):
                for pause in (0.0, 4 * self._look):
                    time.sleep(pause)
                    found.append(dict(client.key_value_dir_get(_PREFIX)))

        looking = threading.Thread(target=look_twice, daemon=True)
        looking.start()
        looking.join(8 * self._look + 1)
        if len(found) < 2:
            return (
                "Process 0, which coordinates the others, does not respond: is its host still "
                "running?"
            )
        first, second = found
        still = [
            str(index)
            for index in range(jax.process_count())
            if first.get(f"{_PREFIX}{index}") == second.get(f"{_PREFIX}{index}")
        ]
        if not still:
            # All processes do the same in the same order. One that waits for its own resource has
            # done less.
            signs = [int(second[f"{_PREFIX}{n}"].split()[1]) for n in range(jax.process_count())]
            behind = [str(n) for n, each in enumerate(signs) if each == min(signs)]
            who = f": {', '.join(behind)}" if len(behind) < len(signs) else ""
            return (
                f"All {len(signs)} processes are running, but one is behind the others, waiting "
                f"for its input, its disk or its device{who}."
            )
        return (
            f"These of the {jax.process_count()} processes do not respond: {', '.join(still)}. "
            "Their hosts hang, or have lost the network."
        )

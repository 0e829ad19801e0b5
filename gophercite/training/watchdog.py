"""A run that stands still ends in bounded time, with a line that says who stands still.

When one process of several is gone or stopped, JAX notices that within some two minutes, and aborts
the others. It notices nothing when all processes run and one of them waits for ever: for its input,
a disk, a device, a lock. The others then wait for it in their next collective operation. Here the
training loop itself gives signs of life; if none comes for long, a thread of its own ends the
process, and a launcher starts the run again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

import jax

from gophercite import interruption
from gophercite.training.stragglers import coordination

# sysexits.h's EX_UNAVAILABLE: what the run needs can't be had now; launchers start it again.
EXIT_CODE = 69
_LOOKS = 20  # at the clock within the time that is allowed
_LONGEST_LOOK = 15.0  # seconds between two
_PREFIX = "gophercite/signs_of_life/"


def end(message: str) -> None:
    """Ends this process with EXIT_CODE and a line; whatever its other threads are at."""
    interruption.end(EXIT_CODE, message)


class Watchdog:
    """Acts when there has been no sign of life for too long. A context manager."""

    def __init__(self, seconds: float | None, act: Callable[[str], None] = end) -> None:
        """Watches nothing yet.

        Args:
          seconds: how long the run may stand still; None is for ever.
          act: what is done then, in a thread, given a line for people.
        """
        self._allowed = seconds
        self._act = act
        self._look = min((seconds or 0) / _LOOKS, _LONGEST_LOOK)
        self._left = seconds or 0.0
        self._doing = "starting"
        self._signs = 0
        self._suspended = 0
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Watchdog":
        if self._allowed is not None:
            # Two: telling the others may itself hang, with the process that they are told by.
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
          doing: what is done from here on, in words: "step 12", "saving step 12".
          patience: how much longer than other things this may take.
        """
        self._doing = doing
        self._left = (self._allowed or 0.0) * patience
        self._signs += 1

    def doing(self) -> str:
        """What the run is at, in words."""
        return self._doing

    @contextlib.contextmanager
    def suspended(self, doing: str) -> Iterator[None]:
        """Allows any time for what is done meanwhile, such as compiling.

        Args:
          doing: what that is.
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
        while not self._over.wait(self._look):
            now = time.monotonic()
            # A process that was itself stopped, and goes on, has stood still for longer than the
            # others took for one look. That time is not counted.
            passed, before = min(now - before, 2 * self._look), now
            if self._suspended:
                continue
            self._left -= passed
            if self._left <= 0:
                doing, allowed = self._doing, self._allowed
                because = self._reason()
                if self._over.is_set() or self._left > 0:  # it went on after all
                    continue
                self._act(
                    f"the training stands still: nothing has come of {doing} for {allowed:g} s "
                    f"and more. {because} Started again, it goes on from its last checkpoint"
                )
                return

    def _tell_others(self) -> None:
        """Has a number of this process change as long as it runs, and says how far it has come."""
        client = coordination()
        number = 0
        while client is not None and not self._over.wait(self._look):
            number += 1
            with contextlib.suppress(RuntimeError):  # they are gone, or about to go
                said = f"{number} {self._signs}"
                client.key_value_set(f"{_PREFIX}{jax.process_index()}", said, True)

    def _reason(self) -> str:
        """The likely cause: in two looks, whose number has not changed, or who is behind."""
        if jax.process_count() == 1:
            return "Its input, its disk or its device does not answer."
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
            return "Process 0, where the others meet, does not answer: is its host still there?"
        first, second = found
        still = [
            str(index)
            for index in range(jax.process_count())
            if first.get(f"{_PREFIX}{index}") == second.get(f"{_PREFIX}{index}")
        ]
        if not still:
            # All do the same in the same order. Who waits for something of its own has done less.
            signs = [int(second[f"{_PREFIX}{n}"].split()[1]) for n in range(jax.process_count())]
            behind = [str(n) for n, each in enumerate(signs) if each == min(signs)]
            who = f": {', '.join(behind)}" if len(behind) < len(signs) else ""
            return (
                f"All {len(signs)} processes run; one waits for its input, its disk or its device, "
                f"and is behind the others{who}."
            )
        return (
            f"Of {jax.process_count()} processes these stand still: {', '.join(still)}. Their "
            "hosts hang, or have lost the network."
        )

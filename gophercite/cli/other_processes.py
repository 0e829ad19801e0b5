"""Ends this process with one line if another process of its run is gone.

JAX notices that, too, but then it aborts with a stack trace. And until it does, an operation that
all processes share may wait, or fail with an error that doesn't say why. So every process publishes
a number that grows, through JAX's coordination service. Process 0, on which that service runs,
reads the numbers, and tells the others whose number has stopped. The others notice after a while
if the service doesn't respond, and at once if it is gone: each holds a connection to it.
"""

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

_NUMBERS = "gophercite/running/"
_ENDS = "gophercite/end/"  # what ends the watch, per process: _LEFT, or who is gone
_LEFT = "left"
_BEAT = 5.0  # seconds between two numbers
# Seconds without a new number: longer than Python's threads are ever held up, and shorter than the
# 100 seconds after which JAX aborts.
_SILENCE = 75.0
_WAITS = 3_600_000  # milliseconds of one waiting request
_PAUSE = 0.5  # seconds between two connections
_LAST = 0.5  # seconds in which JAX says all that it says, so that our line is the last
_GRACE = 1.0  # seconds in which the others hear from process 0 who is gone, before it goes, too


class OtherProcesses:
    """Watches the other processes of a run."""

    def __init__(
        self,
        client: Any,
        coordinator: str,
        index: int,
        count: int,
        act: Callable[[str], None],
        beat: float = _BEAT,
        silence: float = _SILENCE,
    ) -> None:
        """Does not start watching yet.

        Args:
          client: JAX's client of the coordination service.
          coordinator: HOST:PORT of that service.
          index: number of this process.
          count: number of processes.
          act: called in a thread with a line for the user when another process is gone; it should
            not return.
          beat: seconds between two signs of life.
          silence: seconds without any after which a process is gone.
        """
        self._client = client
        self._coordinator = coordinator
        self._index = index
        self._count = count
        self._act = act
        self._beat = beat
        self._patience = max(2, round(silence / beat))  # beats
        self._over = threading.Event()
        self._answered = 0  # numbers of this process that the service has taken
        self._held: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def watch(self) -> None:
        """Starts watching."""
        of_others = [self._listen, self._look_at_service, self._hold_connection]
        for target in [self._publish, *(of_others if self._index else [self._look_at_numbers])]:
            self._threads.append(threading.Thread(target=target, daemon=True))
            self._threads[-1].start()

    def leave(self) -> None:
        """Stops watching and being watched: this process is done, and may wait for the others."""
        self._over.set()
        for publishing in self._threads[:1]:  # it would write over what follows
            publishing.join(2 * self._beat)
        with contextlib.suppress(RuntimeError):  # the service is gone
            self._client.key_value_set(f"{_NUMBERS}{self._index}", _LEFT, True)
            # A thread that waits inside JAX while Python shuts down would crash the process.
            self._client.key_value_set(f"{_ENDS}{self._index}", _LEFT, True)
        if self._held is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._held.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(2 * self._beat)

    def explanation(self) -> str | None:
        """A line that names processes that are gone now; None if all others respond.

        It takes a few beats. If processes are gone, it also tells the others.
        """
        found: list[list[int]] = []

        def look() -> None:
            with contextlib.suppress(RuntimeError):
                before = self._numbers()
                time.sleep(2.5 * self._beat)
                found.append(self._still(before, self._numbers()))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(5 * self._beat)
        gone = found[0] if found else [0] if self._index else []
        if not gone:
            return None
        if gone != [0]:
            self._tell_others(gone)
        return _line(gone, self._count)

    # --- The threads ---

    def _publish(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            with contextlib.suppress(RuntimeError):  # the service is gone: others will say so
                self._client.key_value_set(f"{_NUMBERS}{self._index}", str(number), True)
                self._answered = number
            self._over.wait(self._beat)

    def _look_at_numbers(self) -> None:
        """In process 0: reads all numbers. Beats are counted, as it may be stopped for a while."""
        before: dict[int, str] = {}
        quiet = dict.fromkeys(range(self._count), 0)
        while not self._over.wait(self._beat):
            try:
                now = self._numbers()
            except RuntimeError:  # JAX is shutting down
                continue
            still = self._still(before, now)
            quiet = {index: quiet[index] + 1 if index in still else 0 for index in quiet}
            before = now
            if gone := [index for index, beats in quiet.items() if beats >= self._patience]:
                self._tell_others(gone)
                self._act(_line(gone, self._count))
                return

    def _listen(self) -> None:
        """In the others: waits until process 0 says who is gone."""
        said = None
        while said is None and not self._over.is_set():
            try:
                said = self._client.blocking_key_value_get(f"{_ENDS}{self._index}", _WAITS)
            except RuntimeError:  # nothing was said for so long; or the service is gone
                self._over.wait(self._beat)
        if said is not None and said != _LEFT:
            self._act(_line([int(index) for index in said.split(",")], self._count))

    def _hold_connection(self) -> None:
        """In the others: whether the service still exists, which JAX's client may be slow to say.

        A connection ends with the process at its other end. The service ends one that asks for
        nothing, too, after some minutes, but then takes a new one.
        """
        host, _, port = self._coordinator.rpartition(":")
        address = host.strip("[]"), int(port)
        while not self._over.is_set():
            try:
                with socket.create_connection(address, timeout=self._beat) as held:
                    held.settimeout(None)
                    self._held = held
                    while not self._over.is_set() and held.recv(4096):
                        pass
            except ConnectionRefusedError:
                if not self._over.wait(_LAST):
                    self._act(_line([0], self._count))
                return
            except ConnectionResetError:
                pass
            except OSError:  # the network is slow, or its names can't be looked up now
                self._over.wait(self._beat)
            self._over.wait(_PAUSE)

    def _look_at_service(self) -> None:
        """In the others: whether process 0, which may be stopped, takes this one's numbers."""
        answered, quiet = self._answered, 0
        while not self._over.wait(self._beat):
            quiet = quiet + 1 if self._answered == answered else 0
            answered = self._answered
            if quiet >= self._patience:
                self._act(_line([0], self._count))
                return

    # --- Parts ---

    def _numbers(self) -> dict[int, str]:
        said = dict(self._client.key_value_dir_get(_NUMBERS))
        return {int(name.rpartition("/")[2]): number for name, number in said.items()}

    def _still(self, before: dict[int, str], now: dict[int, str]) -> list[int]:
        """The processes whose numbers have not changed, without those that have left."""
        return [
            index
            for index in range(self._count)
            if index != self._index
            and now.get(index) != _LEFT
            and now.get(index) == before.get(index)
        ]

    def _tell_others(self, gone: Sequence[int]) -> None:
        for index in range(1, self._count):
            if index != self._index and index not in gone:
                with contextlib.suppress(RuntimeError):
                    said = ",".join(map(str, gone))
                    self._client.key_value_set(f"{_ENDS}{index}", said, False)
        time.sleep(_GRACE)


def _line(gone: Sequence[int], count: int) -> str:
    named = ", ".join(map(str, gone))
    if len(gone) == 1:
        who = f"process {named} of {count} is gone or does not respond"
        where = "Its own output may say why"
    else:
        who = f"processes {named} of {count} are gone or do not respond"
        where = "Their own output may say why"
    return f"{who}. {where}. Start all processes again to go on"


def delay_aborts() -> None:
    """From now on, an abort of this process takes six seconds.

    JAX aborts at once when the connection to process 0 breaks, before the line could be written
    that names the cause. The handler is the C library's own `sleep`, because Python's handlers run
    too late; it gets the signal's number, 6, and afterwards the abort goes on.
    """
    if os.name != "posix":
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.signal.restype = ctypes.c_void_p
    library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))

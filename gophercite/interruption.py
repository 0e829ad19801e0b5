"""Signals that are heard at once, whatever the process is at.

Python runs its handlers between two steps of the main thread. That thread may be in a compiler or
an import for a minute, and what a handler raises there can end in a callback of a library, which
prints or swallows it; and an interpreter that is taken down while a library's threads are at work
can crash. Here a thread of its own hears signals, and ends the process without taking anything
down. So files have to be whole at every moment, as they have to be for SIGKILL.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

INTERRUPTED = 130  # the exit status that shells give Ctrl-C
_STDERR = 2  # the descriptor, which libraries write to as well


class _Terminal:
    """Where the last line goes, also while what libraries write is held back."""

    stderr = _STDERR


def heard(number: int, frame: FrameType | None) -> None:
    """The handler in the main thread while `hear` is in force: it does nothing."""


def hear(numbers: Sequence[int], action: Callable[[int], None]) -> None:
    """Calls a function in a thread as soon as one of some signals comes, until the process ends.

    It goes on being called when others put handlers of theirs in place of `heard`, but not when
    they put one of the system's (`signal.SIG_DFL`).

    Args:
      numbers: the signals.
      action: what to do, given the signal.
    """
    _Terminal.stderr = os.dup(_STDERR)
    ours, pythons = socket.socketpair()
    pythons.setblocking(False)
    signal.set_wakeup_fd(pythons.detach(), warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, heard)

    def listen() -> None:
        while True:
            for number in ours.recv(64):
                if number in numbers:
                    action(number)

    threading.Thread(target=listen, name="signals", daemon=True).start()


def end_at_once(status: int = INTERRUPTED) -> None:
    """From now on Ctrl-C ends the process with a status, and nothing is printed.

    It does so until somebody puts another handler in place, as a command does that has to clean up.

    Args:
      status: the exit status.
    """

    def act(number: int) -> None:
        if signal.getsignal(number) is heard:
            end(status)

    hear([signal.SIGINT], act)


def end(status: int, message: str = "") -> None:
    """Ends the process without taking anything down; from any thread.

    Args:
      status: the exit status.
      message: a line for people; none when empty.
    """
    with contextlib.suppress(OSError):  # nobody reads it, or it is closed
        if os.isatty(_Terminal.stderr):
            os.write(_Terminal.stderr, b"\r\x1b[K")  # what was to be shown for a while
        if message:
            os.write(_Terminal.stderr, (message + "\n").encode())
    os._exit(status)


def over(numbers: Sequence[int] = (signal.SIGINT,)) -> None:
    """From now on signals change nothing: the work is done, and the interpreter takes itself down.

    It would give signals back to the system on the way, which ends the process by them.

    Args:
      numbers: the signals.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def libraries_silenced() -> Iterator[None]:
    """Keeps what libraries write to stderr while they are imported from people.

    TensorFlow says twice that there is no GPU, whatever its own setting for logs says.
    """
    kept = os.dup(_STDERR)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)

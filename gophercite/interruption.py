"""Handles signals immediately, whatever the process is doing.

Python runs signal handlers between two bytecode instructions of the main thread. That thread may be
in a compiler or an import for a minute. An exception from a handler may be raised inside a
library's callback, which prints or swallows it. And an interpreter that shuts down while a
library's threads are running can crash. Here a separate thread waits for signals, and ends the
process without any shutdown. So files must be consistent at every moment, as for SIGKILL.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

INTERRUPTED = 130  # the shells' exit status for Ctrl-C
_STDERR = 2  # the file descriptor, which libraries write to, too


class _Terminal:
    """The descriptor for the last line, also while libraries' output is suppressed."""

    stderr = _STDERR


def heard(number: int, frame: FrameType | None) -> None:
    """The main thread's handler while `hear` is active: it does nothing."""


def hear(numbers: Sequence[int], action: Callable[[int], None]) -> None:
    """Calls a function in a thread whenever one of some signals arrives, until the process ends.

    This keeps working if other code replaces the handler `heard` by its own, but not if it installs
    a system handler (`signal.SIG_DFL`).

    Args:
      numbers: the signals.
      action: the function to call with the signal.
    """
    _open_stderr()
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


def _open_stderr() -> None:
    """Where stderr is closed (`2>&-`), messages go nowhere: not to stdout, nor into other files."""
    try:
        os.fstat(_STDERR)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != _STDERR:
            os.dup2(nowhere, _STDERR)
            os.close(nowhere)
    if sys.stderr is None:  # then `print` would write to stdout
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False)


def end_at_once(status: int = INTERRUPTED) -> None:
    """From now on, Ctrl-C ends the process with a status and without output.

    This is in force until another handler is installed, for example by a command that has to clean
    up.

    Args:
      status: the exit status.
    """

    def act(number: int) -> None:
        if signal.getsignal(number) is heard:
            end(status)

    hear([signal.SIGINT], act)


def end(status: int, message: str = "") -> None:
    """Ends the process without any shutdown; can be called from any thread.

    Args:
      status: the exit status.
      message: a line for the user; none if empty.
    """
    with contextlib.suppress(OSError):  # it is closed, or has no reader
        if os.isatty(_Terminal.stderr):
            os.write(_Terminal.stderr, b"\r\x1b[K")  # clears a progress line
        if message:
            os.write(_Terminal.stderr, (message + "\n").encode())
    os._exit(status)


def over(numbers: Sequence[int] = (signal.SIGINT,)) -> None:
    """From now on, signals have no effect, because the work is done and the interpreter shuts down.

    During shutdown, the interpreter would restore the system's handlers, and a signal would kill
    the process. It would also look through all objects for garbage, which takes a second after
    large libraries were imported.

    Args:
      numbers: the signals.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()

"""Preemption: SIGTERM or Ctrl-C is a request to save and exit, and to resume later."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import jax
from jax.experimental import multihost_utils

# sysexits.h's EX_TEMPFAIL: launchers read it as "run me again".
EXIT_CODE = 75


class Preempted(Exception):  # noqa: N818  (it is no error)
    """The run was asked to stop and has saved its state; when restarted, it resumes."""


class Preemption:
    """Whether the run was asked to stop, as agreed by all its processes.

    A context manager. In a single process it handles SIGTERM and SIGINT itself; under
    `jax.distributed`, JAX's preemption service listens for SIGTERM in every process, and
    `requested` turns true at the same call in all of them, so that they save the same step. A
    second Ctrl-C raises KeyboardInterrupt as usual.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._interrupted = False
        self._polls = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Preemption":
        # Only the main thread may set handlers in Python.
        if threading.current_thread() is threading.main_thread():
            self._previous[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
            if not jax.distributed.is_initialized():  # else JAX's service has its own handler
                self._previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._terminate)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            signal.default_int_handler(number, frame)
        self._interrupted = True
        if jax.distributed.is_initialized():
            os.kill(os.getpid(), signal.SIGTERM)  # JAX's service tells the other processes
        else:
            self._asked.set()

    def requested(self) -> bool:
        """Whether to save and exit. All processes of a run must call it together, between steps."""
        if not jax.distributed.is_initialized():
            return self._asked.is_set()
        self._polls += 1
        if not self._asked.is_set() and multihost_utils.reached_preemption_sync_point(self._polls):
            self._asked.set()
        return self._asked.is_set()

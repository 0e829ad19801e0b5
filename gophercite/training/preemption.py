"""Being told to stop: SIGTERM is a request to save and leave, in time for a restart elsewhere."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import jax
from jax.experimental import multihost_utils

# sysexits.h's EX_TEMPFAIL: launchers read it as "run me again".
EXIT_CODE = 75


class Preempted(Exception):  # noqa: N818  (it is no error)
    """The run was asked to stop and has saved its state; started again, it goes on."""


class Preemption:
    """Whether the run was asked to stop, agreed on by all its processes.

    A context manager. In one process it handles SIGTERM itself; under `jax.distributed`, JAX's
    preemption service listens in every process, and `requested` turns true at the same call in all
    of them, so that they save the same step.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._polls = 0
        self._previous: Any = None
        self._listens = False

    def __enter__(self) -> "Preemption":
        # JAX's service has its own handler; Python lets only the main thread set one.
        main = threading.current_thread() is threading.main_thread()
        self._listens = main and not jax.distributed.is_initialized()
        if self._listens:
            self._previous = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listens:
            signal.signal(signal.SIGTERM, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def requested(self) -> bool:
        """Whether to save and leave. All processes of a run call this alike, between steps."""
        if not jax.distributed.is_initialized():
            return self._asked.is_set()
        self._polls += 1
        if not self._asked.is_set() and multihost_utils.reached_preemption_sync_point(self._polls):
            self._asked.set()
        return self._asked.is_set()

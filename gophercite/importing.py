"""Imports large libraries quickly and quietly."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

_STDERR = 2  # the file descriptor, which libraries write to, too
_LARGE = {"jax", "tensorflow"}


def look_for_garbage_rarely() -> None:
    """Has Python look for garbage less often than usual: what is imported and traced stays.

    Not for training: arrays on devices must be freed soon, even if a user's own code has put them
    into a reference cycle.
    """
    gc.set_threshold(400_000, 20, 100)


@contextlib.contextmanager
def libraries() -> Iterator[None]:
    """Inside, imports take two thirds of their time, and print nothing to stderr.

    TensorFlow and JAX make more than a million objects while they are imported, and nearly all of
    them stay. Python would look through them for garbage, over and over, and once more when the
    process ends. Here it doesn't look during the imports, and later it leaves those objects alone.
    It does so once in a process: what a notebook made before must still be collected.

    TensorFlow says twice that there is no GPU, whatever its own log level.
    """
    collected, first = gc.isenabled(), not _LARGE & sys.modules.keys()
    gc.disable()
    try:
        with _nothing_printed():
            yield
    finally:
        if first:
            gc.freeze()
        if collected:
            gc.enable()


@contextlib.contextmanager
def _nothing_printed() -> Iterator[None]:
    """Inside, what is written to stderr goes nowhere."""
    kept = None
    with contextlib.suppress(OSError):  # it may be closed, as after `2>&-` in a shell
        kept = os.dup(_STDERR)
    if kept is None:
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)

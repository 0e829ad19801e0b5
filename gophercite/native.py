"""Functions that numba compiles to machine code, which it keeps until one of their sources changes.

By itself numba looks at the file of a function alone. But what the function calls, and constants of
other files, are compiled into it, and may have changed since: a run would do what last week's code
said. Here machine code is kept for a folder's sources as a whole.
"""

import functools
import hashlib
import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

_STAMP = "native_sources.sha256"


def native(function: _Function) -> _Function:
    """Compiles a function for the types that it is called with, without Python's lock."""
    return _kept(numba.njit(cache=True, nogil=True), function)


def native_inline(function: _Function) -> _Function:
    """Likewise, and takes it into those that call it."""
    return _kept(numba.njit(cache=True, nogil=True, inline="always"), function)


def _kept(compiled: Callable[[Any], Any], function: Any) -> Any:
    made = compiled(function)  # reads nothing that was kept before its first call
    _forget_what_is_stale(pathlib.Path(inspect.getfile(function)).parent, made.stats.cache_path)
    return made


@functools.cache
def _forget_what_is_stale(sources: pathlib.Path, kept: str) -> None:
    """Takes away machine code of other sources than those that are there now."""
    together = hashlib.sha256()
    for source in sorted(sources.glob("*.py")):
        together.update(f"{source.name}\n".encode() + source.read_bytes())
    stamp = pathlib.Path(kept) / _STAMP
    if stamp.exists() and stamp.read_text() == together.hexdigest():
        return
    for index in stamp.parent.glob("*.nbi"):
        index.unlink(missing_ok=True)  # another process may have been faster
    stamp.parent.mkdir(parents=True, exist_ok=True)
    written = stamp.with_suffix(f".{os.getpid()}")
    written.write_text(together.hexdigest())
    written.replace(stamp)

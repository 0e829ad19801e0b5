"""Functions that numba compiles to machine code, cached until one of their sources changes.

numba itself checks only the file of a function. But functions that it calls, and constants from
other files, are compiled into it and may have changed: a run would then execute last week's code.
Here the cache depends on all sources of a folder.
"""

import functools
import hashlib
import inspect
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.np import linalg

_Function = TypeVar("_Function", bound=Callable[..., Any])

_STAMP = "native_sources.sha256"


def _later(ensure_blas: Callable[[], None]) -> Callable[[], None]:
    """Puts off numba's look for SciPy's linear algebra until a function multiplies matrices.

    None of ours does, and to import it takes longer than to import numba.
    """

    def ensure() -> None:
        is_loaded = hasattr(sys.modules.get("numba.np.arraymath"), "_HAVE_BLAS")
        if is_loaded:  # so it isn't that module's import that asks
            ensure_blas()

    return ensure


linalg.ensure_blas = _later(linalg.ensure_blas)


def native(function: _Function) -> _Function:
    """Compiles a function for the types that it is called with; it runs without Python's lock."""
    return _kept(numba.njit(cache=True, nogil=True), function)


def native_inline(function: _Function) -> _Function:
    """Like `native`, but inlines the function into its callers."""
    return _kept(numba.njit(cache=True, nogil=True, inline="always"), function)


def _kept(compiled: Callable[[Any], Any], function: Any) -> Any:
    dispatcher = compiled(function)  # does not read the cache before its first call
    _forget_what_is_stale(
        pathlib.Path(inspect.getfile(function)).parent, dispatcher.stats.cache_path
    )
    return dispatcher


@functools.cache
def _forget_what_is_stale(sources: pathlib.Path, kept: str) -> None:
    """Deletes cached machine code of other versions of the sources."""
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


def load_numba() -> None:
    """Loads what numba loads at the first call of a `native` function, which takes 0.3 s.

    Another thread can do it, while this one waits for files or a device.
    """
    _nothing()


@native
def _nothing() -> None:
    pass

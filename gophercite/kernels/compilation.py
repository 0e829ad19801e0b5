"""C++ sources of ours, compiled once per machine with the headers that come with jaxlib."""

import ctypes
import functools
import hashlib
import logging
import os
import pathlib
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile

import jax

# For the processor at hand; GCC and Clang call that by one name on x86, and by another on ARM.
_NATIVE = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
_FLAGS = ("-std=c++17", "-O3", _NATIVE, "-fno-math-errno", "-fPIC", "-shared", "-Wno-psabi")


@functools.cache
def library(source: pathlib.Path) -> ctypes.CDLL | None:
    """The shared library of a C++ file, compiled if no process has done so on this machine.

    It is kept beside the source, or under `$XDG_CACHE_HOME/gophercite` (`~/.cache/gophercite`) if
    nothing can be written there. The name depends on the source, on jaxlib, and on the compiler's
    version and the processor's instructions. The environment variables CXX and CXXFLAGS have their
    usual meanings; CXXFLAGS come last.

    Args:
      source: the file.

    Returns:
      The library, or None if there is no compiler, it fails, or there is no folder for the result.
      A warning of this module's logger says which.
    """
    try:
        there = filter(shutil.which, ("c++", "g++", "clang++"))
        compiler = shlex.split(os.environ.get("CXX") or next(there, ""))
        if not compiler:
            raise FileNotFoundError("no C++ compiler was found (Debian, Ubuntu: apt install g++)")
        command = [*compiler, *_FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))]
        return ctypes.CDLL(str(_compiled(source, command)))
    except subprocess.CalledProcessError as failed:
        lines = failed.stderr.splitlines() or [f"it ended with {failed.returncode}"]
        said = next((line for line in lines if "error" in line), lines[0])
        why = f"{shlex.join(failed.cmd)} failed: {said}"
    except (OSError, ValueError) as error:  # ValueError: a quotation in CXX that isn't closed
        why = str(error)
    message = "attention on this CPU runs without our kernel, which takes longer: %s"
    logging.getLogger(__name__).warning(message, why)
    return None


def _compiled(source: pathlib.Path, command: list[str]) -> pathlib.Path:
    """The library's file, which is compiled if it isn't there."""
    # What the compiler defines before it reads a file: its version, the instructions it may use.
    asked = [*command, "-dM", "-E", "-x", "c++", os.devnull]
    macros = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    key = hashlib.sha256()
    for part in (source.read_text(), jax.lib.__version__, shlex.join(command), macros):
        key.update(part.encode() + b"\0")
    name = f"{source.stem}-{key.hexdigest()[:16]}.so"
    for folder in _folders(source):
        if _is_ours(folder / name):
            return folder / name
    for folder in _folders(source):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(dir=folder)
        except OSError:
            continue  # nothing can be written there
        with scratch:
            written = pathlib.Path(scratch.name, name)
            build = [*command, "-isystem", jax.ffi.include_dir(), str(source), "-o", str(written)]
            subprocess.run(build, check=True, capture_output=True, text=True)
            written.replace(folder / name)  # at once, beside processes that compile the same
        return folder / name
    raise OSError(f"no file can be written to {' or '.join(map(str, _folders(source)))}")


def _folders(source: pathlib.Path) -> list[pathlib.Path]:
    """Where the library may be, in the order in which they are tried."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = source.parent / "__pycache__", pathlib.Path(caches, "gophercite")
    return [folder for folder in folders if folder.is_absolute()]  # not where there is no home


def _is_ours(file: pathlib.Path) -> bool:
    """Whether a file is there that only this user, root or the owner of our sources can write."""
    try:
        found = [x.stat() for x in (file, file.parent)]
    except OSError:
        return False
    trusted = {0, os.getuid(), pathlib.Path(__file__).stat().st_uid}
    return all(x.st_uid in trusted and not x.st_mode & stat.S_IWOTH for x in found)

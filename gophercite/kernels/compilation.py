"""Compiles our C++ sources, once per machine, with the headers that come with jaxlib."""

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

# Compile for this processor: GCC and Clang have one flag for that on x86 and another on ARM.
_NATIVE = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"
_FLAGS = ("-std=c++17", "-O3", _NATIVE, "-fno-math-errno", "-fPIC", "-shared", "-Wno-psabi")


@functools.cache
def library(source: pathlib.Path) -> ctypes.CDLL | None:
    """The shared library of a C++ file, compiled if no process has done so on this machine.

    It is kept beside the source, or under `$XDG_CACHE_HOME/gophercite` (`~/.cache/gophercite`) if
    the source's folder is not writable, or if other users can write to it. Its name depends on the
    source, jaxlib, the compiler's version, the processor's instructions, and the library's own
    bytes, so that a truncated file is noticed and compiled again. The environment variables CXX and
    CXXFLAGS have their usual meanings; CXXFLAGS come last.

    Args:
      source: the file.

    Returns:
      The library; None if there is no compiler, if it fails, or if there is no folder for the
      result. This module's logger then warns with the reason.
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
    except (OSError, ValueError) as error:  # ValueError: an unclosed quotation mark in CXX
        why = str(error)
    message = "attention on this CPU runs without our kernel, which takes longer: %s"
    logging.getLogger(__name__).warning(message, why)
    return None


def _compiled(source: pathlib.Path, command: list[str]) -> pathlib.Path:
    """The library's file, which is compiled if it doesn't exist."""
    # The macros that the compiler predefines: they show its version and the instructions it uses.
    asked = [*command, "-dM", "-E", "-x", "c++", os.devnull]
    macros = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    key = hashlib.sha256()
    for part in (source.read_text(), jax.lib.__version__, shlex.join(command), macros):
        key.update(part.encode() + b"\0")
    name = f"{source.stem}-{key.hexdigest()[:16]}"
    for folder in _folders(source):
        for file in folder.glob(f"{name}-*.so"):
            if _is_ours(folder) and _is_ours(file) and file.name == f"{name}-{_digest(file)}.so":
                return file
    unfit = []
    for folder in _folders(source):
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not _is_ours(folder):
                unfit.append(f"{folder}: other users can write there")
                continue
            scratch = tempfile.TemporaryDirectory(dir=folder)
        except OSError as error:
            unfit.append(f"{folder}: {error.strerror}")
            continue
        with scratch:
            written = pathlib.Path(scratch.name, "library.so")
            build = [*command, "-isystem", jax.ffi.include_dir(), str(source), "-o", str(written)]
            subprocess.run(build, check=True, capture_output=True, text=True)
            # Atomic, because other processes may compile the same file.
            return written.replace(folder / f"{name}-{_digest(written)}.so")
    raise OSError(f"there is no folder for the compiled library: {'; '.join(unfit)}")


def _digest(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _folders(source: pathlib.Path) -> list[pathlib.Path]:
    """Where the library may be, in the order in which they are tried."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = source.parent / "__pycache__", pathlib.Path(caches, "gophercite")
    return [folder for folder in folders if folder.is_absolute()]  # relative if there is no home


def _is_ours(path: pathlib.Path) -> bool:
    """Whether only this user, root or the owner of our sources can write to a file or folder."""
    found = path.stat()
    trusted = {0, os.getuid(), pathlib.Path(__file__).stat().st_uid}
    return found.st_uid in trusted and not found.st_mode & stat.S_IWOTH

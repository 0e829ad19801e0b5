"""Folders that are written completely or not at all."""

import contextlib
import ctypes
import errno
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator

from etils import epath
from etils.epath import backend

from gophercite.storage.paths import (
    StorageError,
    delete,
    forget_listings,
    is_remote,
    naming_storage,
    storage_path,
    upload,
)

# Of Linux's renameat2: paths are relative to the working folder; both names stay, exchanged.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def whole_folder(folder: epath.PathLike, last: str | None = None) -> Iterator[pathlib.Path]:
    """An empty folder that replaces the target at the end, or vanishes after an error.

    A bucket has no folders: there the file `last` marks that all others are in place. When a folder
    is replaced, it is deleted first; it is written after everything else.

    Args:
      folder: a new folder, or one to replace with everything in it.
      last: in a bucket, the file without which a folder counts as missing.

    Yields:
      The folder to write to, on this machine's disk.

    Raises:
      OSError: the folder can't be created; the message is for users.
      StorageError: the bucket can't be used, or `last` is missing for a folder in a bucket.
    """
    if is_remote(folder):
        with _whole_objects(storage_path(folder), last) as local:
            yield local
        return
    folder = pathlib.Path(os.path.realpath(folder))  # a link stays; what it refers to is replaced
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.unfinished")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        unfinished.mkdir()
    except OSError as error:
        raise OSError(f"{folder}: can't be created: {error.strerror}: {error.filename}") from error
    try:
        yield unfinished
        if folder.exists():
            unfinished.chmod(stat.S_IMODE(folder.stat().st_mode))
            _swap(folder, unfinished)
        else:
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _swap(folder: pathlib.Path, finished: pathlib.Path) -> None:
    """Replaces a folder by a finished one; after an interruption it is one of the two.

    That includes a kill, except on systems and file systems that can't exchange two folders (NFS,
    for one). There a kill between two renames leaves none of that name; the old one is beside it.
    """
    if _exchange(folder, finished):
        return
    replaced = finished.with_suffix(".replaced")
    try:
        folder.rename(replaced)
        finished.rename(folder)
    finally:
        if folder.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            replaced.rename(folder)


def _exchange(first: pathlib.Path, second: pathlib.Path) -> bool:
    """Exchanges two folders in one step, if that is possible here; tells whether it did."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:  # not on this system
        return False
    names = [os.fsencode(first), os.fsencode(second)]
    done: int = rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    return done == 0


@contextlib.contextmanager
def _whole_objects(folder: epath.Path, last: str | None) -> Iterator[pathlib.Path]:
    if last is None:
        raise StorageError(
            f"{folder}: folders can't be written to a bucket; write this one to a disk and copy it"
        )
    with tempfile.TemporaryDirectory(prefix="gophercite-") as local:
        yield pathlib.Path(local)
        written = [path for path in pathlib.Path(local).rglob("*") if path.is_file()]
        names = {path.relative_to(local).as_posix(): path for path in written}
        mark = names.pop(last)
        forget_listings(folder)
        delete(folder / last)
        for name, path in names.items():
            upload(path, folder / name)
        with naming_storage(folder):
            others = _names_in(folder) - names.keys()
        for name in others:
            delete(folder / name)
        upload(mark, folder / last)


def move_objects(folder: epath.Path, target: epath.Path, mark: str) -> None:
    """Moves everything in a folder of a bucket; after an interruption no object is missing in both.

    Args:
      folder: what to move.
      target: the new folder.
      mark: the object that marks the folder as complete, which is moved first; it may be missing.

    Raises:
      StorageError: the bucket can't be used.
    """
    forget_listings(folder)
    with naming_storage(folder):
        names = sorted(_names_in(folder), key=lambda name: (name != mark, name))
        files = backend.fsspec_backend.fs(folder)
        for name in names:
            files.cp_file(os.fspath(folder / name), os.fspath(target / name))
    for name in names:
        delete(folder / name)
    forget_listings(folder)


def _names_in(folder: epath.Path, below: str = "") -> set[str]:
    """All objects of a folder, by their names relative to it."""
    names: set[str] = set()
    for each in folder.iterdir():
        name = below + each.name
        names |= _names_in(each, name + "/") if each.is_dir() else {name}
    return names

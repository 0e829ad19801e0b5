"""Reads and writes paths on a disk and in a bucket in the same way."""

import contextlib
import functools
import gzip
import io
import logging
import os
import pathlib
import secrets
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, cast

# Set before epath and gcsfs read them. Without the second, gcsfs first asks another service for the
# kind of bucket, and keeps retrying if that does not answer.
os.environ.setdefault("EPATH_USE_TF", "false")
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

from etils import epath
from etils.epath import backend

# gcsfs prints a traceback for each request that it gives up on; the raised error says it in a line.
# Programs that configure logging still see these messages.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())
_BUCKETS = "gs://"
SILENCE = 60.0  # seconds without a byte after which a request is repeated
# Beginnings of TensorStore errors that another attempt, or other permissions, would fix.
_OF_TENSORSTORE = (
    "ABORTED:",
    "CANCELLED:",
    "DEADLINE_EXCEEDED:",
    "INTERNAL:",
    "PERMISSION_DENIED:",
    "RESOURCE_EXHAUSTED:",
    "UNAUTHENTICATED:",
    "UNAVAILABLE:",
    "UNKNOWN:",
)


class StorageError(OSError):
    """A bucket did not serve a request, or an address is in none; the message names the address."""


def is_remote(path: epath.PathLike) -> bool:
    """Whether a path is in a bucket, whose objects are written at once and can't grow."""
    return "://" in os.fspath(path)


def is_storage(path: epath.PathLike) -> bool:
    """Whether a path is on a disk or in a bucket, and not an address of another kind."""
    return not is_remote(path) or os.fspath(path).startswith(_BUCKETS)


def storage_path(path: epath.PathLike) -> epath.Path:
    """Returns a path on a disk or in a bucket.

    Raises:
      StorageError: it is an address of another kind, such as one in the web.
    """
    if not is_storage(path):
        raise _refusal(path)
    return epath.Path(path)


def _refusal(path: epath.PathLike) -> StorageError:
    return StorageError(
        f"{path}: is neither a path on this machine nor gs://BUCKET/NAME; download it first"
    )


@epath.register_path_cls(("http://", "https://", "ftp://", "file://"))
class _Elsewhere(pathlib.PurePosixPath):
    """Names these addresses where a path is expected; epath itself raises a `KeyError`."""

    def __new__(cls, path: str) -> "_Elsewhere":
        raise _refusal(path)


@contextlib.contextmanager
def naming_storage(path: epath.PathLike) -> Iterator[None]:
    """Turns what a bucket's client raises into errors for users.

    Args:
      path: the path that is read or written; errors of a disk pass through unchanged.

    Raises:
      FileNotFoundError: there is no such object.
      StorageError: no access, no credentials, no network, no client, no bucket; the message names
        the path.
    """
    if not is_remote(path):
        yield
        return
    storage_path(path)
    _limit_silence()
    try:
        yield
    except (StorageError, FileExistsError):
        raise
    except FileNotFoundError as error:
        if os.fspath(path) in str(error):
            raise
        raise FileNotFoundError(f"{path}: there is no such object, or no such bucket") from error
    except ImportError as error:
        raise StorageError(f"{path}: buckets need gcsfs: pip install 'gophercite[gcs]'") from error
    except Exception as error:
        trouble = trouble_of(path, error)
        if trouble is None:
            raise
        raise trouble from error


@functools.cache
def _limit_silence() -> None:
    """Makes gcsfs repeat requests that get no answer; it would wait for ever.

    This has to be a setting: epath creates the file system at first use, and keeps it.
    """
    try:
        import aiohttp
        import fsspec.config
    except ImportError:  # the next access reports it
        return
    silence = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=SILENCE)
    for protocol in ("gs", "gcs"):
        settings = fsspec.config.conf.setdefault(protocol, {})
        settings.setdefault("requests_timeout", silence)


def trouble_of(path: epath.PathLike, error: BaseException) -> StorageError | None:
    """Returns a user's error for an exception that the bucket caused, and not its contents.

    Args:
      path: the path that was read or written.
      error: any exception, such as one of gcsfs, Google's client, TensorStore or the network.

    Returns:
      The error to raise; None for other exceptions, and for all if the path is on a disk.
    """
    if not is_remote(path) or isinstance(error, FileNotFoundError):
        return None
    if isinstance(error, StorageError):
        return error
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    of_client = bool(modules & {"gcsfs", "google", "aiohttp", "requests"})
    text = " ".join(str(error).split())
    if not (isinstance(error, OSError) or of_client or text.startswith(_OF_TENSORSTORE)):
        return None
    text = text.partition(" [tensorstore_spec=")[0].partition(" [source locations=")[0]
    reason = text[:500] or type(error).__name__
    return StorageError(f"{path}: the bucket can't be used: {reason}")


def files_in(folder: epath.PathLike) -> list[epath.Path]:
    """Returns the current contents of a folder, by name; empty if there is no such folder."""
    folder = storage_path(folder)
    with naming_storage(folder):
        if is_remote(folder):
            forget_listings(folder)
        return sorted(folder.iterdir()) if folder.exists() else []


def forget_listings(folder: epath.PathLike) -> None:
    """Clears the client's cached listings, since others may have written in the meantime."""
    with naming_storage(folder):
        backend.fsspec_backend.fs(folder).invalidate_cache()


def open_bytes(path: epath.PathLike) -> IO[bytes]:
    """Opens a file for reading, decompressing it when its name ends in `.gz`.

    Raises:
      FileNotFoundError: there is no such file.
      StorageError: its bucket can't be used.
    """
    if not is_remote(path):
        local = pathlib.Path(path)
        return cast(IO[bytes], gzip.open(local)) if local.suffix == ".gz" else local.open("rb")
    remote = storage_path(path)
    with naming_storage(path):
        if not remote.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
        file = io.BufferedReader(remote.open("rb"))
    return cast(IO[bytes], gzip.open(file)) if remote.suffix == ".gz" else file


@contextlib.contextmanager
def local_copy(path: epath.PathLike) -> Iterator[pathlib.Path]:
    """A file, or a folder with everything in it, on this machine's disk.

    Args:
      path: a path on a disk, which is returned unchanged, or in a bucket: then the copy is deleted
        at the end.

    Raises:
      FileNotFoundError: there is no such file or folder in the bucket.
      StorageError: the bucket can't be used.
    """
    if not is_remote(path):
        yield pathlib.Path(path)
        return
    remote = storage_path(path)
    with tempfile.TemporaryDirectory(prefix="gophercite-") as folder:
        local = pathlib.Path(folder) / remote.name
        with naming_storage(path):
            forget_listings(path)
            if remote.is_dir():
                _download(remote, local)
            elif remote.exists():
                remote.copy(local)
            else:
                raise FileNotFoundError(f"{path}: there is no such file or folder")
        yield local


def _download(remote: epath.Path, local: pathlib.Path) -> None:
    local.mkdir()
    for each in remote.iterdir():
        # Names are untrusted: none may lead out of the folder.
        if each.name in ("", ".", "..") or each.parent != remote:
            raise StorageError(f"{each}: is not the name of a file")
        if each.is_dir():
            _download(each, local / each.name)
        else:
            each.copy(local / each.name)


@contextlib.contextmanager
def write_whole(path: epath.PathLike) -> Iterator[pathlib.Path]:
    """A file that appears only when it is complete, and not at all after an error.

    A link stays, and the file behind it is replaced; a replaced file's mode stays. Of two writers
    of one file the last to end prevails. A process that is killed leaves a hidden file.

    Args:
      path: the file, new or to be replaced.

    Yields:
      The path to write to, on this machine's disk.

    Raises:
      OSError: the file can't be made, or the disk is full; the message names it. A
        `FileExistsError` if something else than a file is there.
      StorageError: its bucket can't be used.
    """
    if is_remote(path):
        remote = storage_path(path)
        with tempfile.TemporaryDirectory(prefix="gophercite-") as folder:
            local = pathlib.Path(folder) / remote.name
            yield local
            upload(local, path)
        return
    target = pathlib.Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{path}: is not an ordinary file, so it can't be replaced by one")
    partial = target.with_name(f".gophercite-{secrets.token_hex(8)}.partial")
    try:
        partial.touch(exist_ok=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    try:
        try:
            yield partial
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # a full disk
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_file(path: epath.PathLike, content: str | bytes) -> None:
    """Writes a file atomically, and creates the folders above it.

    Args:
      path: the file, new or to be replaced.
      content: text is written as UTF-8.

    Raises:
      StorageError: its bucket can't be used.
    """
    if not is_remote(path):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path) as local:
        local.write_bytes(content.encode() if isinstance(content, str) else content)


def upload(local: pathlib.Path, path: epath.PathLike) -> None:
    """Copies a file from this machine's disk into a bucket, where it appears when it is complete.

    Writing to an open remote file would not do: an exception on the way would close the file, and
    closing it publishes what was written so far.

    Raises:
      StorageError: the bucket can't be used.
    """
    with naming_storage(path):
        backend.fsspec_backend.fs(path).put_file(os.fspath(local), os.fspath(path))


def write_new(path: epath.PathLike, content: bytes) -> None:
    """Writes an object of a bucket if none of that name exists, whoever wrote it.

    Raises:
      FileExistsError: there is one with different content.
      StorageError: the bucket can't be used.
    """
    with naming_storage(path):
        files = backend.fsspec_backend.fs(path)
        try:
            files.pipe_file(os.fspath(path), content, mode="create")
        except FileExistsError:
            # A request that was repeated after a lost answer finds its own first write.
            if files.cat_file(os.fspath(path)) != content:
                raise FileExistsError(
                    f"{path}: another process has written it in the meantime"
                ) from None


def delete(path: epath.PathLike) -> None:
    """Deletes an object of a bucket; it may already be gone.

    Raises:
      StorageError: the bucket can't be used.
    """
    # This request may be a repetition, after a lost answer.
    with naming_storage(path):
        epath.Path(path).unlink(missing_ok=True)

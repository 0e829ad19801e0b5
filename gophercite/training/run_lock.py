"""Allows one command at a time in a run's folder: a second is refused while the first is alive.

Otherwise a run that was told to stop could write its last checkpoint into the folder of the run
that replaced it. In a file system, the lock is the kernel's (`flock`): it ends with its process,
however that ends, and works between hosts over NFS. In a bucket, it is an owner's mark
(`gophercite.training.owner_mark`). In a run with several processes, the first holds it.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from gophercite.storage import StorageError, is_remote

LOCK_FILE = "run.lock"
_LONGEST_MESSAGE = 2048  # bytes
# Errors of file systems without locks: NFS without its lock service, Lustre without `-o flock`.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class RunInUseError(RuntimeError):
    """Another command trains in this folder; the message says which, where and since when."""


_KINDS: tuple[type[Exception], ...] = (RunInUseError, StorageError)  # raised by all processes


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that holds a run's folder.

    Attributes:
      pid: process id on its host (or in its container).
      host: name of that host or container.
      since: when it acquired the folder, UTC, ISO 8601.
    """

    pid: int
    host: str
    since: str

    @classmethod
    def me(cls) -> "Owner":
        """This process, now."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), now)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Owner | None":
        """The inverse of `to_json`; None for invalid text."""
        try:
            value = json.loads(text)
            return cls(int(value["pid"]), str(value["host"]), str(value["since"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self)) + "\n"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} has been training in it since {self.since}"


class Holder(Protocol):
    """A lock on a folder, held by this process."""

    def confirm(self) -> None:
        """Raises RunInUseError if another command has taken the folder over."""

    def release(self) -> None:
        """Releases the folder."""


@contextlib.contextmanager
def hold_run(folder: epath.PathLike, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Holds a run's folder for this command within the `with` block.

    All processes of a run must call this together.

    Args:
      folder: the run's folder; created if missing.
      say: shows a line to the user.

    Yields:
      A function that all processes must call together before each save.

    Raises:
      RunInUseError: another command holds the folder. The yielded function raises it if another
        command took the folder over, because this one gave no sign of life for too long.
      StorageError: the folder's bucket can't be used.
    """
    holder: Holder | None = None
    first = jax.process_index() == 0
    remote = is_remote(folder)

    def take() -> None:
        nonlocal holder
        holder = _take(epath.Path(folder), say)

    def confirm() -> None:
        if remote:  # a kernel lock can't be lost
            _in_first_process(holder.confirm if holder else None)

    try:
        _in_first_process(take if first else None)
        yield confirm
    finally:
        if holder is not None:
            holder.release()


def _in_first_process(action: Callable[[], None] | None) -> None:
    """Runs an action in process 0 only; an error is raised in all processes.

    Args:
      action: the action; None in the other processes.

    Raises:
      RunInUseError, StorageError: the action raised it.
    """
    problem = ""
    try:
        if action is not None:
            action()
    except (RunInUseError, StorageError) as error:
        problem = f"{_KINDS.index(type(error))}{error}"
    if jax.process_count() > 1:
        letters = np.frombuffer(problem.encode()[:_LONGEST_MESSAGE], np.uint8)
        sent = np.zeros(_LONGEST_MESSAGE, np.uint8)
        sent[: len(letters)] = letters
        heard = np.asarray(multihost_utils.broadcast_one_to_all(sent), np.uint8)
        problem = heard.tobytes().rstrip(b"\0").decode(errors="ignore")
    if problem:
        raise _KINDS[int(problem[0])](problem[1:])


def _take(folder: epath.Path, say: Callable[[str], None]) -> Holder:
    if os.fspath(folder).startswith("gs://"):
        from gophercite.training.owner_mark import OwnerMark  # imports Google's client

        return OwnerMark(folder, Owner.me(), say)
    if is_remote(folder):
        say(
            f"{folder}: there are no locks in this kind of bucket (only in gs://), so don't "
            "start a second command in it"
        )
        return _NoLock()
    return _FileLock(folder, Owner.me(), say)


class _NoLock:
    def confirm(self) -> None:
        pass

    def release(self) -> None:
        pass


class _FileLock:
    """A kernel lock on a file, whose text tells users who holds it."""

    def __init__(self, folder: epath.Path, owner: Owner, say: Callable[[str], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOCK_FILE
        # The file is never removed: a lock on an unlinked file would not exclude anybody.
        self._file: Any = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (held until `release`)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            other = Owner.from_json(self._file.read())
            self._file.close()
            who = str(other or "another command is training in it")
            raise RunInUseError(
                f"{folder} is in use: {who}. Stop it and wait until it has saved, or set "
                "MODEL_DIR to another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                self._file.close()
                raise
            say(f"{folder}: this file system has no locks, so don't start a second command in it")
        self._write(owner.to_json())

    def confirm(self) -> None:
        pass

    def release(self) -> None:
        self._write("")
        self._file.close()

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()

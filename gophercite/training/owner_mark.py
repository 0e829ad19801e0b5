"""Ownership of a folder in a bucket: a small object (a lease) that its owner renews.

Buckets have no locks, but an object can be written on condition that it has not changed
(`ifGenerationMatch`, strongly consistent). A command writes `owner.json` if there is none, and
writes it again every `RENEWAL` seconds. A command that finds the object watches it: if it is
renewed, its owner is alive and the command is refused; if it does not change for `EXPIRY` seconds,
its owner is dead and the command takes the folder over. Clocks of different machines need not
agree.
"""

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from etils import epath

from gophercite.storage import naming_storage
from gophercite.training.run_lock import Owner, RunInUseError

MARK = "owner.json"
RENEWAL = 20.0  # seconds
EXPIRY = 90.0  # seconds without renewal after which an owner counts as dead
# A mark this old need not be watched, because clocks don't differ by so much.
_LONG_DEAD = datetime.timedelta(hours=1)


class OwnerMark:
    """This command's mark on a folder in a bucket, renewed by a thread."""

    def __init__(
        self,
        folder: epath.Path,
        owner: Owner,
        say: Callable[[str], None],
        *,
        renewal: float = RENEWAL,
        expiry: float = EXPIRY,
    ) -> None:
        """Marks the folder; if there is a mark, first waits to see whether its owner is alive.

        Args:
          folder: `gs://BUCKET/NAME`.
          owner: this command.
          say: shows a line to the user.
          renewal: seconds between renewals.
          expiry: seconds without renewal after which an owner counts as dead; several times
            `renewal`.

        Raises:
          RunInUseError: the folder's owner is alive, or Google's client is missing.
          StorageError: the bucket can't be used.
        """
        try:
            from google.cloud import storage  # type: ignore[import-untyped]
        except ImportError as error:
            raise RunInUseError(
                f"{folder}: training with MODEL_DIR in a bucket needs `pip install "
                f"gophercite[gcs]` ({error})"
            ) from None
        bucket, _, name = os.fspath(folder).removeprefix("gs://").partition("/")
        self._path = f"{folder}/{MARK}"
        self._folder, self._owner = folder, owner
        self._renewal, self._expiry = renewal, expiry
        self._bucket = storage.Client().bucket(bucket)
        self._name = f"{name.rstrip('/')}/{MARK}".lstrip("/")
        self._lost = ""
        self._writing = threading.Lock()
        with naming_storage(self._path):
            self._generation = self._take(say)
        self._renewed = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="owner mark", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Checks that this command still owns the folder.

        Raises:
          RunInUseError: another command took it over.
        """
        # Wait for an unreachable bucket, which could not be saved to either.
        while time.monotonic() - self._renewed > self._expiry / 2 and not self._lost:
            self._renew()
            time.sleep(self._renewal / 10)
        if self._lost:
            raise RunInUseError(self._lost)

    def release(self) -> None:
        """Removes the mark."""
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        self._stop.set()
        self._thread.join()
        if self._lost:
            return
        # If the bucket can't be reached, the mark will expire.
        with contextlib.suppress(exceptions.GoogleAPIError, GoogleAuthError, OSError):
            self._blob().delete(if_generation_match=self._generation)

    def _blob(self) -> Any:
        """The object at any generation; a blob that has been read refers only to its own."""
        return self._bucket.blob(self._name)

    def _take(self, say: Callable[[str], None]) -> int:
        """Writes the mark and returns its generation."""
        mine = self._write(0)
        if mine is not None:
            return mine
        found: tuple[int, Owner | None] | None = None
        deadline = 0.0
        while True:
            seen = self._read()
            if seen is None:  # removed in the meantime
                generation, old = 0, True
            else:
                generation, other, updated = seen
                if found is not None and found[0] != generation:
                    did = f"it has just renewed {MARK}"
                    if found[1] != other:
                        did = f"it took over {MARK} before this command could"
                    raise RunInUseError(
                        f"{self._folder} is in use: "
                        f"{other or 'another command is training in it'}, and {did}. Stop it and "
                        "wait until it has saved, or set MODEL_DIR to another folder"
                    )
                age = datetime.datetime.now(datetime.UTC) - updated
                if found is None:
                    found = generation, other
                    deadline = time.monotonic() + self._expiry
                    if age <= _LONG_DEAD:
                        say(
                            f"{self._path}: "
                            f"{other or 'another command has marked this folder as its own'}; "
                            f"waiting up to {self._expiry:.0f} s to see whether it is still "
                            "running (if you know that it isn't, delete this object)"
                        )
                old = age > _LONG_DEAD or time.monotonic() > deadline
            if old:
                mine = self._write(generation)
                if mine is not None:
                    return mine
            time.sleep(self._renewal / 10)

    def _read(self) -> tuple[int, Owner | None, datetime.datetime] | None:
        """Generation, owner and time of the mark; None if there is no mark."""
        from google.api_core import exceptions

        try:
            blob = self._blob()
            blob.reload()
            generation, updated = int(blob.generation), blob.updated
            content = blob.download_as_bytes(if_generation_match=generation)
        except (exceptions.NotFound, exceptions.PreconditionFailed):
            return None  # deleted, or rewritten between the two requests; the caller reads again
        return generation, Owner.from_json(content), updated

    def _write(self, generation: int) -> int | None:
        """Writes the mark if its generation is still as given (0: no mark); returns the new one."""
        from google.api_core import exceptions

        blob = self._blob()
        try:
            blob.upload_from_string(
                self._owner.to_json(),
                content_type="application/json",
                if_generation_match=generation,
            )
        except exceptions.PreconditionFailed:
            # A request that was retried after a lost response finds its own first write.
            seen = self._read()
            return seen[0] if seen is not None and seen[1] == self._owner else None
        return int(blob.generation)

    def _keep(self) -> None:
        while not self._stop.wait(self._renewal):
            self._renew()

    def _renew(self) -> None:
        """Renews the mark; an unreachable bucket is tried again the next time."""
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError

        with self._writing:
            if self._lost:
                return
            try:
                generation: Any = self._write(self._generation)
            except (exceptions.GoogleAPIError, GoogleAuthError, OSError):
                return
            if generation is None:
                self._lost = (
                    f"{self._folder} was taken over: this command did not renew {self._path} for "
                    f"{time.monotonic() - self._renewed:.0f} s. Steps after its last checkpoint "
                    "are not saved"
                )
                return
            self._generation, self._renewed = generation, time.monotonic()

"""A cache of page texts, kept between calls.

Reading a folder of PDFs takes seconds, and it is read for each question. A page's text depends on
its bytes, on how it is read, and on the versions of the parsers. The cache key covers all of these,
so a changed file or a newer parser finds no stale text.

Only the user's own processes may write here: if others can, the folder is not used. Entries that
are damaged, by a disk or by hand, are ignored. The cache never stops the work: if it can't be read
or written, it counts as empty.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import stat
import tempfile
import time
import unicodedata
from typing import Any

from gophercite.extraction.text import EXTRACTION_VERSION, PageText, page_from_json

LIMIT = 512 << 20  # bytes, of all texts together

_PARSERS = ("pdfminer.six", "trafilatura", "lxml", "w3lib")
_KEPT = 0.8  # share of the limit that stays once it was exceeded: the most recently used texts
_LARGEST = 0.125  # maximum size of a single text, as a share of the limit
_UNFINISHED = "unfinished-"
_UNFINISHED_SECONDS = 3600.0  # after which the writer must be gone


class TextCache:
    """A folder of texts; any number of processes may use it at once.

    Args:
      folder: created if missing, readable by the user alone.
      limit: maximum bytes of all texts together; beyond it, the least recently used are dropped.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int = LIMIT) -> None:
        self._folder = pathlib.Path(folder)
        self._limit = limit
        self._written = limit  # bytes since the last clean-up; the first write triggers one

    def key(self, content: bytes, *how: Any) -> str:
        """Returns the key of a text.

        Args:
          content: the page's bytes.
          how: everything else that its text depends on, serialisable as JSON.
        """
        reading = json.dumps([EXTRACTION_VERSION, *_versions(), *how])
        together = hashlib.sha256(content).hexdigest() + reading
        return hashlib.sha256(together.encode()).hexdigest()

    def get(self, key: str) -> PageText | None:
        """Returns the text under a key; None if there is none, or it is damaged."""
        with contextlib.suppress(OSError, ValueError, KeyError, RecursionError):
            if not self._is_ours():
                return None
            path = self._folder / key
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    return None
                digest, _, body = file.read(self._largest + 100).partition(b"\n")
            if digest != _digest(key, body):
                path.unlink()
                return None
            os.utime(path)  # marks it as used
            value = json.loads(body)
            return page_from_json(value) if isinstance(value, dict) else None
        return None

    def put(self, key: str, page: PageText) -> None:
        """Stores a text under a key, completely or not at all."""
        body = json.dumps(dataclasses.asdict(page)).encode()
        if len(body) > self._largest:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                return
            # Readable by the user alone, whatever the umask.
            descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=self._folder)
            try:
                with open(descriptor, "wb") as file:
                    file.write(_digest(key, body) + b"\n" + body)
                os.replace(unfinished, self._folder / key)
            except BaseException:
                os.unlink(unfinished)
                raise
            self._written += len(body)
            if self._written > self._limit * (1 - _KEPT) / 2:
                self._written = 0
                self._drop_what_is_too_much()

    @property
    def _largest(self) -> int:
        return int(self._limit * _LARGEST)

    def _is_ours(self) -> bool:
        """Whether only the user can write to the folder; removes other users' permissions."""
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) & 0o077:
            self._folder.chmod(0o700)
        return True

    def _drop_what_is_too_much(self) -> None:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # another process was faster
                    status = entry.stat(follow_symlinks=False)
                    age = time.time() - status.st_mtime
                    if entry.name.startswith(_UNFINISHED) and age > _UNFINISHED_SECONDS:
                        os.unlink(entry.path)
                    else:
                        found.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, path in sorted(found):
            if total <= self._limit * _KEPT:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + body).hexdigest().encode()


@functools.cache
def _versions() -> tuple[str, ...]:
    return (*map(importlib.metadata.version, _PARSERS), unicodedata.unidata_version)

"""The files of a recorded world while it is being recorded: begun, locked, and after a kill."""

import fcntl
import os
import pathlib
from typing import IO

from gophercite.storage.json_fields import RecordError

WORLD, PAGES, ADDRESSES, SEARCHES = (
    "world.json",
    "pages.jsonl",
    "addresses.jsonl",
    "searches.jsonl",
)
LINES = PAGES, ADDRESSES, SEARCHES


def is_begun(folder: pathlib.Path) -> bool:
    """Whether a folder is a recorded world, not one whose recording was killed as it began.

    Raises:
      RecordError: when it contains something else.
    """
    sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
    if sizes.get(WORLD):
        return True
    if any(sizes.values()) or not sizes.keys() <= {WORLD, *LINES}:
        raise RecordError("is not empty and is not a recorded world", None, folder)
    return False


def lock(folder: pathlib.Path, file: IO[bytes]) -> None:
    """Keeps others from recording into a folder as long as the file is open.

    Two processes would note down wrong places of each other's lines.

    Raises:
      RecordError: another one is recording there.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordError(
            "another process is recording here: wait until it has ended, or choose another folder",
            None,
            folder,
        ) from None
    except OSError:
        return  # a file system without locks


def drop_unfinished_line(path: pathlib.Path) -> None:
    """Removes what follows the last line end of a file: its writer was killed."""
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)

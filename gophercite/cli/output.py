"""What the commands share: exit statuses, refusals, JSON, progress on a terminal."""

import contextlib
import errno
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from gophercite.storage.json_fields import printable

T = TypeVar("T")

DONE, FAILED = 0, 1  # argparse itself exits with 2 for wrong usage
INTERRUPTED = 130  # the shells' status for Ctrl-C
READER_GONE = 141  # the shells' status for SIGPIPE


class RefusedError(Exception):
    """The user's request can't be carried out; the message is for the user."""


def print_json(value: Any) -> None:
    """Prints a result for programs.

    Characters that could control a terminal, or are not in the stream's encoding, are escaped as in
    JSON.
    """
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2, default=str)
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def print_text(text: str) -> None:
    """Prints a result for people, even if the terminal's encoding lacks some characters."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, errors="backslashreplace").decode(encoding))


def write_text(path: str, text: str) -> None:
    """Writes a file that a flag names. One that was there stays as it was if the disk is full.

    Raises:
      OSError: when it can't be written; names the path.
    """
    from gophercite.storage import write_file

    if os.path.isfile(path) or not os.path.exists(path):
        write_file(path, text)
        return
    try:  # a pipe or a device
        pathlib.Path(path).write_text(text, encoding="utf-8")
    except OSError as error:  # a full disk's doesn't name it
        raise OSError(error.errno, error.strerror, path) from error


def require_place(path: str) -> None:
    """Checks, before the work, that the file that a flag names has a folder and is not one.

    Raises:
      OSError: when it can't be written there; names the path.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    folder = os.path.join(os.path.dirname(path) or ".", "")  # ends in a slash: it is no file
    try:
        os.stat(folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def require_on_disk(name: str, path: str) -> None:
    """Refuses an address, which `pathlib.Path` would take for a folder `gs:` here.

    Args:
      name: the argument, as the user knows it.
      path: its value.

    Raises:
      RefusedError: when it is one.
    """
    from gophercite.storage import is_remote

    if is_remote(path):
        raise RefusedError(f"{name} {path}: must be on a disk; a bucket takes a copy of it")


def require_utf8(name: str, text: str | None) -> None:
    """Refuses a text of the command line that can't be stored: only paths may be other bytes.

    Args:
      name: the argument, as the user knows it.
      text: its value; None if it was not given.

    Raises:
      RefusedError: when it is not UTF-8.
    """
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError:
        raise RefusedError(f"{name}: {text!r} is not UTF-8") from None


def require_unread(flag: str, path: str, read: Iterable[str | None]) -> None:
    """Refuses to write to what is read, or into a folder whose files are read as documents.

    Args:
      flag: the flag that names the output.
      path: the output.
      read: files and folders that are read; None for those that were not given.

    Raises:
      RefusedError: when it is one of them, or lies in one.
    """
    from gophercite.storage.overwriting import refuse_overwriting

    try:
        refuse_overwriting([path], read)
    except ValueError as error:
        raise RefusedError(f"{flag} {error}") from None


def note(message: str) -> None:
    """Prints a message that is not part of the result to stderr, line by line."""
    for line in message.splitlines():
        print(printable(line), file=sys.stderr)


def shown(items: Iterable[T], what: str) -> Iterator[T]:
    """Passes items through, and shows their number on a terminal while the work goes on."""
    start = last = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last > 1 and sys.stderr.isatty():
            last = now
            rate = number / (now - start)
            print(f"\r{number} {what}, {rate:.1f} a second\x1b[K", end="", file=sys.stderr)
    if last > start:
        print("\r\x1b[K", end="", file=sys.stderr)


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Shows on a terminal what is being done, until it is done."""
    if not sys.stderr.isatty():
        yield
        return
    print(f"{what} …\x1b[K", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print("\x1b[K", end="", file=sys.stderr, flush=True)

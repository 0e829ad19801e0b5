"""Reading untrusted JSON, one value per file or per line, with errors that name the place."""

import codecs
import contextlib
import gzip
import json
import math
import os
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

from gophercite.storage.json_fields import RecordError
from gophercite.storage.paths import open_bytes

MAXIMUM_LINE_BYTES = 1 << 26  # a longer line is skipped without being held in memory
MAXIMUM_FILE_BYTES = 1 << 30  # of a file with a single value, decompressed
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = "is UTF-16, but must be UTF-8: `iconv -f UTF-16 -t UTF-8 FILE` converts it"

Value = TypeVar("Value")


def read_json_lines(
    path: str | os.PathLike[str],
) -> Iterator[tuple[int, object | RecordError]]:
    """Yields the number, from 1, and the value of each line that is not blank.

    For a line that can't be read, the value is a `RecordError`: too long, not UTF-8, not JSON,
    nested too deeply, or with NaN or infinity, which JSON does not have. A file in UTF-16, which
    some Windows programs write, is one error.

    Args:
      path: a file, decompressed when its name ends in `.gz`.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when a compressed file is damaged, so that the rest can't be read.
    """
    with open_bytes(path) as file:
        for number, line in _lines(file, path):
            if number == 1 and _is_utf_16(line):
                yield number, RecordError(_UTF_16, None, path)
                return
            try:
                yield number, _loads(line)
            except RecordError as error:
                yield number, RecordError(error.problem, None, path, number)


def read_json(path: str | os.PathLike[str]) -> object:
    """Returns the single value of a JSON file, decompressed when its name ends in `.gz`.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: as for a line of `read_json_lines`, or when the compressed file is damaged.
    """
    with open_bytes(path) as file, naming_damage(path):
        text = file.read(MAXIMUM_FILE_BYTES + 1)
    try:
        if len(text) > MAXIMUM_FILE_BYTES:
            raise RecordError(f"the file is longer than {MAXIMUM_FILE_BYTES} bytes")
        if _is_utf_16(text):
            raise RecordError(_UTF_16)
        return _loads(text.removeprefix(_BYTE_ORDER_MARK))
    except RecordError as error:
        raise RecordError(error.problem, None, path) from None


def read_one(path: str | os.PathLike[str], parse: Callable[[object], Value]) -> Value:
    """Returns the value of a JSON file as parsed by `parse`.

    Args:
      path: as for `read_json`.
      parse: converts the file's value, or raises `RecordError` with the field.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: as for `read_json`, or from `parse`; names the file.
    """
    value = read_json(path)
    try:
        return parse(value)
    except RecordError as error:
        raise RecordError(error.problem, error.field, path) from None


def _lines(file: IO[bytes], path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes | None]]:
    """Yields the lines that are not blank; None for one that is too long."""
    number = 0
    while True:
        number += 1
        with naming_damage(path, number):
            line = file.readline(MAXIMUM_LINE_BYTES + 1)
            too_long = len(line) > MAXIMUM_LINE_BYTES
            while too_long and line and not line.endswith(b"\n"):
                line = file.readline(MAXIMUM_LINE_BYTES)
        if too_long:
            yield number, None
        elif not line:
            return
        elif line.strip():
            yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


@contextlib.contextmanager
def naming_damage(path: str | os.PathLike[str], line: int | None = None) -> Iterator[None]:
    """Names a compressed file that turns out to be damaged while it is read.

    Args:
      path: the file.
      line: number of the line that is being read; None for the whole file.

    Raises:
      RecordError: it is damaged.
    """
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the compressed file is damaged here ({error})"
        raise RecordError(problem, None, path, line) from None


def _is_utf_16(begin: bytes | None) -> bool:
    """Whether a file of JSON that begins so is in UTF-16, with a byte order mark or without."""
    marks = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"\0{", b"[\0", b"\0["
    return begin is not None and begin.startswith(marks)


def _loads(text: bytes | None) -> object:
    if text is None:
        raise RecordError(f"the line is longer than {MAXIMUM_LINE_BYTES} bytes")
    try:
        return json.loads(
            text.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecordError:
        raise
    except UnicodeDecodeError as error:
        raise RecordError(f"byte {error.start + 1} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise RecordError(f"is not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise RecordError("is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise RecordError(f"can't be read as JSON: {error}") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise RecordError(f"{digits:.40} is too large for a number")
    return value


def _refuse_constant(name: str) -> float:
    raise RecordError(f"{name} is not a JSON number")

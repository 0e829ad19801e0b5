"""Reading and writing files of records, one record per line."""

import collections
import dataclasses
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gophercite.records.types import RatedAnswer, Record
from gophercite.records.validation import R, from_json, to_json
from gophercite.storage import write_whole
from gophercite.storage.json_fields import RecordError
from gophercite.storage.json_lines import read_json_lines
from gophercite.text.counting import counted

T = TypeVar("T")

KEPT_ERRORS = 100  # maximum length of `Report.errors`
_SHOWN_NAMES = 20  # of unknown fields, when a report is printed


@dataclasses.dataclass
class Report:
    """What became of the lines that were read.

    Attributes:
      read: number of good records.
      skipped: number of bad records.
      errors: the first `KEPT_ERRORS` errors.
      unknown_fields: number of occurrences of each unknown field; these are ignored.
    """

    read: int = 0
    skipped: int = 0
    errors: list[RecordError] = dataclasses.field(default_factory=list)
    unknown_fields: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )

    def skip(self, error: RecordError) -> None:
        """Counts a bad record."""
        self.skipped += 1
        if len(self.errors) < KEPT_ERRORS:
            self.errors.append(error)

    def __str__(self) -> str:
        """One line for the counts, then one for each error kept."""
        lines = [
            f"{counted(self.read, 'record')} read, {self.skipped} skipped",
            *map(str, self.errors),
        ]
        if self.skipped > len(self.errors):
            lines.append(f"… and {self.skipped - len(self.errors)} more")
        if self.unknown_fields:
            shown = self.unknown_fields.most_common(_SHOWN_NAMES)
            names = ", ".join(f"{name[:60]!r} ({n})" for name, n in shown)
            left = len(self.unknown_fields) - len(shown)
            more = f" and {left} more" if left else ""
            lines.append(f"unknown fields were ignored: {names}{more}")
        return "\n".join(lines)


def read(
    path: str | os.PathLike[str],
    kind: type[R],
    *,
    strict: bool = False,
    report: Report | None = None,
) -> Iterator[R]:
    """Reads the records of a `.jsonl` or `.jsonl.gz` file, one at a time.

    Args:
      path: the file, on a disk or in a bucket; empty lines are allowed.
      kind: `Document`, `Question`, `RatedAnswer` or `Comparison`.
      strict: stop at the first bad record instead of leaving it out.
      report: counts records and keeps errors; one report may serve several files.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when `strict` and a record is bad, and when a compressed file is damaged.
    """

    def parse(value: object, unknown: collections.Counter[str]) -> R:
        return from_json(value, kind, unknown)

    def id_of(record: Record) -> str | None:
        return None if isinstance(record, RatedAnswer) else record.id

    return read_parsed(path, parse, id_of, strict=strict, report=report)


def read_some(
    path: str | os.PathLike[str], kind: type[R], *, report: Report | None = None
) -> list[R]:
    """Reads the records of a file that must have one, since what follows says nothing without.

    Args:
      path, kind: as for `read`; bad records are left out.
      report: a new one, which then has the file's counts and errors.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when no record is good, and when a compressed file is damaged.
    """
    report = Report() if report is None else report
    found = list(read(path, kind, report=report))
    if not found:
        raise none_usable(path, report.errors)
    return found


def none_usable(
    path: str | os.PathLike[str], errors: Sequence[RecordError], holds: str = "no records"
) -> RecordError:
    """Returns the error for a file without a good record; names the first bad one.

    Args:
      path: the file.
      errors: those of its bad records.
      holds: what is said of a file without any line.
    """
    if not errors:
        return RecordError(f"holds {holds}", None, path)
    first = RecordError(errors[0].problem, errors[0].field)
    problem = f"no line of it is usable; line {errors[0].line}: {first}"
    return RecordError(problem, None, path)


def read_parsed(
    path: str | os.PathLike[str],
    parse: Callable[[object, collections.Counter[str]], T],
    id_of: Callable[[T], str | None],
    *,
    strict: bool = False,
    report: Report | None = None,
) -> Iterator[T]:
    """Reads records of any kind; bad ones are counted and left out, as in `read`.

    Args:
      path: a `.jsonl` or `.jsonl.gz` file.
      parse: builds a record from a line's JSON, and counts unknown fields; raises `RecordError`.
      id_of: returns a record's id, which must be unique in the file, or None if it has none.
      strict, report: as for `read`.

    Raises:
      FileNotFoundError, RecordError: as in `read`.
    """
    report = Report() if report is None else report
    lines_of_ids: dict[str, int] = {}
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            record = parse(value, report.unknown_fields)
            if (id := id_of(record)) is not None:
                first = lines_of_ids.setdefault(id, number)
                if first != number:
                    raise RecordError(f"{id!r} is already the id of line {first}", "id")
        except RecordError as error:
            located = RecordError(error.problem, error.field, path, number)
            if strict:
                raise located from None
            report.skip(located)
        else:
            report.read += 1
            yield record


def write(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Writes records to a `.jsonl` or `.jsonl.gz` file and returns their number.

    The file appears only when it is complete. Equal records give equal bytes, even compressed.
    """
    return write_json(path, map(to_json, records))


def write_json(path: str | os.PathLike[str], objects: Iterable[Mapping[str, Any]]) -> int:
    """Writes JSON objects, one per line, as `write` writes records."""
    count = 0
    compressed = os.fspath(path).endswith(".gz")
    with write_whole(path) as partial, partial.open("wb") as raw:
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if compressed else raw
        for each in objects:
            line = json.dumps(each, ensure_ascii=False, allow_nan=False)
            # Only a rating's own fields can hold a lone surrogate; it is written as a JSON escape.
            file.write(line.encode("utf-8", errors="backslashreplace") + b"\n")
            count += 1
        if file is not raw:
            file.close()
    return count

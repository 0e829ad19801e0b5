"""A growing file of results, one JSON object per line, that survives any end of the process.

Next to `answers.jsonl`, `answers.run.json` records how the results are produced. A file can only be
continued in the same way, so it never holds results of two kinds. On a disk, lines are appended to
the file. Objects in a bucket can't grow: there each addition is its own object in
`answers.jsonl.parts/`, and `answers.jsonl` is assembled from them at the end.
"""

import fcntl
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from etils import epath

from gophercite.storage.json_fields import describe
from gophercite.storage.paths import (
    files_in,
    is_remote,
    naming_storage,
    open_bytes,
    storage_path,
    write_new,
    write_whole,
)


class ResultFileError(ValueError):
    """A file can't be continued: it is of another run, damaged, or being written by another one."""


class ResultFile:
    """Results of questions on a disk or in a bucket; use it in a `with`.

    An incomplete last line, from a process that was killed, is removed. Every result is stored when
    `append` returns.

    Args:
      path: the file; created if it does not exist. A URL, `gs://…`, is in a bucket. Lines are not
        compressed, so the name must not end in `.gz`.
      run: how results are produced, as JSON; must equal what the file was started with.

    Attributes:
      done: ids of the questions that have results.

    Raises:
      ResultFileError: the file is of another run or of another program, a line in it is not a
        result, another process is writing it (in a bucket, `append` notices and raises this), or
        its name ends in `.gz`, or it is not an ordinary file.
      StorageError: the bucket can't be used; from all methods.
    """

    def __init__(self, path: epath.PathLike, run: Mapping[str, Any]) -> None:
        self._path = storage_path(path)
        if self._path.suffix == ".gz":
            raise ResultFileError(
                f"{path}: results are written line by line, without compression; choose a name "
                "without .gz"
            )
        self._lines: _Lines = _Objects(self._path) if is_remote(path) else _LocalFile(self._path)
        try:
            content = self._lines.read()
            self.done = {line["question_id"] for line in _results(self._path, content)}
            self._compare(run, is_new=not content and self._lines.is_free())
            self._lines.repair()
        except BaseException:
            self._lines.close(whole=False)
            raise

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._lines.close(whole=kind is None)

    def append(self, *results: Mapping[str, Any]) -> None:
        """Adds results, each with its `question_id`; in a bucket they become one object."""
        if not results:
            return
        lines = (json.dumps(result, ensure_ascii=False).encode() for result in results)
        self._lines.append(b"".join(line + b"\n" for line in lines))
        self.done.update(str(result["question_id"]) for result in results)

    def _compare(self, run: Mapping[str, Any], *, is_new: bool) -> None:
        wanted = json.loads(json.dumps(run))
        beside = run_file(self._path)
        try:
            with open_bytes(beside) as file:
                begun = json.loads(file.read())
        except FileNotFoundError:
            # It is written before the first line, so that even half a line of ours has it.
            if not is_new:
                raise ResultFileError(
                    f"{self._path}: is not empty, but {beside.name}, which records how "
                    "its results were made, is missing; write to another file"
                ) from None
            with write_whole(beside) as part:
                part.write_text(json.dumps(wanted, indent=2, ensure_ascii=False), "utf-8")
            return
        except (ValueError, RecursionError):
            raise ResultFileError(f"{beside}: is not JSON") from None
        if not isinstance(begun, dict):
            raise ResultFileError(f"{beside}: expected an object, got {describe(begun)}")
        for name in sorted(wanted.keys() | begun.keys()):
            if wanted.get(name) != begun.get(name):
                raise ResultFileError(
                    f"{self._path}: was started with {name} = {begun.get(name)!r}, not "
                    f"{wanted.get(name)!r}; write to another file, or use the settings that it "
                    "was started with"
                )


def run_file(path: epath.PathLike) -> epath.Path:
    """Where it is recorded how the results of a file are produced: `answers.run.json`."""
    path = storage_path(path)
    return path.with_name(path.name.removesuffix(".jsonl") + ".run.json")


def read_results(path: epath.PathLike) -> Iterator[dict[str, Any]]:
    """Yields the results of a file, which may be growing; none if there is no file.

    Raises:
      ResultFileError: a line is not a result.
    """
    path = storage_path(path)
    if is_remote(path):
        yield from _results(path, _Objects(path).read())
    elif path.exists():
        yield from _results(path, path.read_bytes())


def _results(path: epath.Path, content: bytes) -> Iterator[dict[str, Any]]:
    # What follows the last line end is an incomplete line, whose writer was killed.
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            result = json.loads(line)
            result["question_id"] = str(result["question_id"])
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = "is not a result of this program: expected a JSON object with a question_id"
            raise ResultFileError(f"{path}:{number}: {problem}") from None
        yield result


class _Lines(Protocol):
    """Storage for the lines of a file."""

    def read(self) -> bytes:
        """Returns everything that was added, perhaps with half a line at the end."""

    def is_free(self) -> bool:
        """Whether nothing else would be overwritten."""

    def repair(self) -> None:
        """Removes half a line at the end."""

    def append(self, data: bytes) -> None:
        """Stores complete lines."""

    def close(self, *, whole: bool) -> None:
        """Ends the writing; `whole` if no error ended it."""


class _LocalFile:
    """Lines of a file on a disk, which only one process writes at a time."""

    def __init__(self, path: epath.Path) -> None:
        local = pathlib.Path(path)
        if local.exists() and not local.is_file():
            raise ResultFileError(f"{path}: is not an ordinary file, to which results can be added")
        self._file: BinaryIO = local.open("ab+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ResultFileError(f"{path}: another process is writing it") from None

    def read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def is_free(self) -> bool:
        return True  # it is only appended to

    def repair(self) -> None:
        self._file.truncate(self.read().rfind(b"\n") + 1)

    def append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, *, whole: bool) -> None:
        self._file.close()


class _Objects:
    """Lines in objects, each written completely or not at all, and by only one writer."""

    def __init__(self, path: epath.Path) -> None:
        self._path, self._folder = path, path.with_name(path.name + ".parts")

    def read(self) -> bytes:
        return b"".join(_content(part) for part in files_in(self._folder))

    def is_free(self) -> bool:
        with naming_storage(self._path):
            return not self._path.exists()

    def repair(self) -> None:
        self._count = len(files_in(self._folder))

    def append(self, data: bytes) -> None:
        try:
            write_new(self._folder / f"{self._count:08d}.jsonl", data)
        except FileExistsError:
            raise ResultFileError(f"{self._path}: another process is writing it") from None
        self._count += 1

    def close(self, *, whole: bool) -> None:
        if whole:
            with write_whole(self._path) as local:
                local.write_bytes(self.read())


def _content(path: epath.Path) -> bytes:
    with naming_storage(path):
        content: bytes = path.read_bytes()
    return content

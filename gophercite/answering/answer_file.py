"""A file of answers that grows, one JSON line each, and survives whatever ends the process.

Beside `answers.jsonl`, `answers.run.json` says how the answers came about: a file is gone on with
only in the same way, so that it never holds answers of two kinds.
"""

import fcntl
import json
import os
import pathlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO

from gophercite.answers import Answer, answer_to_json


class AnswerFileError(ValueError):
    """A file can't be gone on with: of another run, damaged, or being written by somebody else."""


class AnswerFile:
    """Answers on disk; use it in a `with`.

    A last line that was cut off when a process ended is taken away. Every answer is on the disk
    when `append` returns.

    Args:
      path: the file; made when it does not exist.
      run: how answers come about, as JSON; compared with what the file was begun with.

    Attributes:
      done: the questions that have answers, by id.

    Raises:
      AnswerFileError: the file is of another run, a line in it is no answer, or another process
        writes it.
    """

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        self._path = pathlib.Path(path)
        self._file: BinaryIO = self._path.open("ab+")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AnswerFileError(f"{path}: another process is writing it") from None
            self.done = self._read()
            self._compare(run)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "AnswerFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, question_id: str, answer: Answer) -> None:
        """Adds the answer to a question."""
        value = {"question_id": question_id, **answer_to_json(answer)}
        self._file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(question_id)

    def _read(self) -> set[str]:
        done = set()
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break  # the last, whose writer was ended
            try:
                done.add(str(json.loads(line)["question_id"]))
            except (ValueError, KeyError, TypeError):
                problem = "is no answer to a question, as this program writes them"
                raise AnswerFileError(f"{self._path}:{number}: {problem}") from None
            whole += len(line)
        self._file.truncate(whole)
        return done

    def _compare(self, run: Mapping[str, Any]) -> None:
        wanted = json.loads(json.dumps(run))
        beside = self._path.with_suffix(".run.json")
        try:
            begun = json.loads(beside.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if self.done:
                raise AnswerFileError(
                    f"{self._path}: has answers, but {beside.name}, which says how they came "
                    "about, is not there"
                ) from None
            part = beside.with_suffix(".partial")
            part.write_text(json.dumps(wanted, indent=2, ensure_ascii=False), encoding="utf-8")
            os.replace(part, beside)
            return
        except ValueError:
            raise AnswerFileError(f"{beside}: is no JSON") from None
        for name in sorted(wanted.keys() | begun.keys()):
            if wanted.get(name) != begun.get(name):
                raise AnswerFileError(
                    f"{self._path}: was begun with {name} = {begun.get(name)!r}, not "
                    f"{wanted.get(name)!r}; write to another file, or go on as it was begun"
                )

"""Questions of the training data, with which evaluations compare theirs."""

import os
import sys
from collections.abc import Iterable, Iterator

from gophercite.records import Question, Report, read


def training_questions(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Question]:
    """Yields the questions of the training data, and prints what is wrong with the other lines.

    Args:
      paths: files of questions.

    Raises:
      ValueError: a file has none, so that everything would count as new.
      OSError: a file can't be read.
    """
    for path in paths:
        report = Report()
        yield from read(path, Question, report=report)
        if report.skipped:
            print(f"{path}: {report}", file=sys.stderr)
        if not report.read:
            raise ValueError(f"{path}: has no question that can be used to find overlap")

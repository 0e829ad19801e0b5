"""Questions to browse for: the training questions, and the batches of evaluations."""

import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

from gophercite import records
from gophercite.storage.json_lines import read_json_lines
from gophercite.vocabularies import Vocabulary

Paths: TypeAlias = str | Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrowsingInput:
    """Questions from JSON-lines files, for environments that choose their own next questions.

    Attributes:
      files: files of question records.
      vocabulary: the model's vocabulary.
      batch_size: number of questions that an evaluation browses for at a time.
      split: name of the set.
      limit: only the first questions up to this number are used; None uses all.
      without: files of episodes, comparisons or questions, whose questions are left out.
        Demonstrations, comparisons and reinforcement learning must have no question in common
        (WebGPT, 3.2).
      process_index, process_count: index of this process, and number of processes.
    """

    files: Paths
    vocabulary: Vocabulary
    batch_size: int
    split: str = "train"
    limit: int | None = None
    without: Paths = ()
    process_index: int = 0
    process_count: int = 1

    def __post_init__(self) -> None:
        """Refuses numbers of questions below 1.

        Raises:
          ValueError: a number is below 1; the message names it.
        """
        for name in ("batch_size", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"BrowsingInput.{name} = {value}: must be at least 1")

    @property
    def mixture_or_task_name(self) -> str:
        """The name of the questions in messages."""
        return ", ".join(map(os.fspath, _listed(self.files)))

    @property
    def trained_length(self) -> None:
        """None: the browser decides how long prompts are."""
        return None

    @functools.cached_property
    def records(self) -> list[records.Question]:
        """The questions; bad lines are named on stderr and left out.

        Raises:
          ValueError: there are no questions.
        """
        excluded = questions_of(self.without)
        found: list[records.Question] = []
        report = records.Report()
        for path in _listed(self.files):
            for each in records.read(path, records.Question, report=report):
                key = asked_as(each.question)
                if key not in excluded:
                    excluded.add(key)
                    found.append(each)
        if self.process_index == 0:  # the others read the same files
            for problem in report.errors:
                print(problem, file=sys.stderr)
        if not found:
            raise ValueError(f"{self.mixture_or_task_name}: has no question to ask")
        return found[: self.limit]

    def batches(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Yields the numbers of rollouts, without end; environments choose their next questions."""
        number = start
        while True:
            yield {"rollout": np.array([number], np.int32)}
            number += 1

    def one_pass(self) -> Iterator[dict[str, Any]]:
        """Yields the numbers of this process's questions in each batch; -1 pads the last batch."""
        each = self.batch_size // self.process_count
        for start in range(0, len(self.records), self.batch_size):
            numbers = start + each * self.process_index + np.arange(each, dtype=np.int32)
            yield {"questions": np.where(numbers < len(self.records), numbers, np.int32(-1))}

    def share(self, process_index: int, process_count: int) -> Self:
        """Returns this input for another process.

        Raises:
          ValueError: the processes can't share a batch equally.
        """
        if self.batch_size % process_count:
            raise ValueError(
                f"BrowsingInput.batch_size = {self.batch_size}: must be a multiple of "
                f"{process_count}, the number of processes that share an evaluation's questions"
            )
        return dataclasses.replace(self, process_index=process_index, process_count=process_count)


def questions_of(paths: Paths) -> set[str]:
    """The questions in the lines of some files, normalised by `asked_as`.

    Args:
      paths: JSON lines of objects with a `question`; other objects are skipped.

    Raises:
      OSError: a file can't be read.
    """
    found = set()
    for path in _listed(paths):
        for _, value in read_json_lines(path):
            question = value.get("question") if isinstance(value, dict) else None
            if isinstance(question, str):
                found.add(asked_as(question))
    return found


def asked_as(question: str) -> str:
    """A question with its case and white space normalised, so that copies of it are equal."""
    return " ".join(question.casefold().split())


def _listed(paths: Paths) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else tuple(map(os.fspath, paths))

"""A seqio task or mixture as batches for training."""

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from data_pipelines import packing
from data_pipelines.example_reader import Features
from data_pipelines.features import to_example
from data_pipelines.packing import Example, PackingReport, Segment
from data_pipelines.task_input import TaskInput
from data_pipelines.task_rows import Packing

Batch = dict[str, np.ndarray]

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Input(TaskInput):
    """One seqio task or mixture as batches of rows.

    A batch has `tokens`, `targets`, `positions`, `segments` (int32) and `weights` (float32), each
    [rows of this process, length]; the last batch of a single pass is padded. Examples
    are packed in the order in which they are drawn.

    Attributes:
      mixture_or_task_name: as registered with seqio (`data_pipelines.tasks`).
      split: a split of the task's source.
      length: tokens per row; longer examples are dropped and counted in `report`.
      batch_size: rows per batch, over all processes.
      seed: seed for shuffling, mixing and all random draws.
      pack: whether several examples share a row.
      share_beginnings: whether consecutive examples that begin alike, such as questions about one
        page, share their beginning (`data_pipelines.packing`); rows then also have `branches`. This
        is for tasks that keep such examples together, such as `add_rated_answers` with `by_page`.
      shuffle: whether each epoch has a different order.
      limit: one pass takes only this many examples of each task, the first ones; None takes all.
      process_index, process_count: which share of each batch this process gets.
      plan_folder: where to save which examples share a row, so that a resumed run does not compute
        it again; `launch/train.py` uses a folder in MODEL_DIR.
      report: counts what was packed and dropped, over all iterators of this input; for batches,
        only the rows of this process count. An example that is too long is counted each time.
    """

    mixture_or_task_name: str
    split: str
    length: int
    batch_size: int
    seed: int
    pack: bool = True
    share_beginnings: bool = False
    shuffle: bool = True
    limit: int | None = None
    process_index: int = 0
    process_count: int = 1
    plan_folder: str | None = None
    report: PackingReport = dataclasses.field(
        default_factory=PackingReport, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"length is {self.length}; a row needs at least 2 tokens")
        super().__post_init__()

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yields batch `start`, `start + 1`, … without end; earlier batches are not built.

        Raises:
          RecordError: no example of a task passes its filters and fits into a row.
        """
        for rows in self._row_batches(start, self._lanes):
            for row in rows:
                self.report.rows += 1
                self.report.packed += sum(map(len, row))
                self.report.tokens += packing.used_tokens(row)
            yield self._batch(rows)

    def one_pass(self) -> Iterator[Batch]:
        """Yields each example of the split once, or `limit` of them; the last batch is padded.

        Random draws are those of epoch 0, so every pass is the same.

        Raises:
          RecordError: no example passes the task's filters and fits into a row.
        """
        rows = self._rows(map(self._example, self._each_once()))
        empty = True
        while batch := list(itertools.islice(rows, self.batch_size)):
            empty = False
            batch += [[]] * (self.batch_size - len(batch))
            yield self._batch(self._share(batch))
        if empty:
            raise self._nothing_left(self.mixture_or_task_name)

    @property
    def _example_length(self) -> int:
        return self.length

    @property
    def trained_length(self) -> int | None:
        """Maximum number of tokens of a prompt and its answer together."""
        return self.length

    def _why_none(self) -> str:
        dropped = self.report.longest_dropped
        return f" and fits length={self.length} (one has {dropped} tokens)" if dropped else ""

    def _example(self, features: Features) -> Any:
        return to_example(features)

    @property
    def _packing(self) -> Packing:
        return Packing(self.length, self.pack, self.share_beginnings, self._example, self._fits)

    def _fits(self, example: Example) -> bool:
        tokens = len(example.tokens)
        if tokens > self.length:
            self._warn(tokens)
            self.report.drop(tokens)
        self.report.empty += not tokens
        return 0 < tokens <= self.length

    def _warn(self, tokens: int) -> None:
        if not self.report.dropped:
            _log.warning(
                "%s: an example of %d tokens is longer than length=%d and was dropped; "
                "the report counts the others",
                self.mixture_or_task_name,
                tokens,
                self.length,
            )

    def _batch(self, rows: list[list[Segment]]) -> Batch:
        branches = self.share_beginnings
        built = (packing.build_row(row, self.length, branches=branches) for row in rows)
        return packing.stack_rows(built, self.length, branches=branches)

    def _rows(self, examples: Iterable[Example]) -> Iterator[list[Segment]]:
        sharing = {"pack": self.pack, "share_beginnings": self.share_beginnings}
        return packing.group(filter(self._fits, examples), self.length, self.report, **sharing)

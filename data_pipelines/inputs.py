"""A seqio task or mixture as the batches that training takes.

Batch i is the same whatever batch a run starts from and however many hosts share it: examples are
shuffled and drawn by (seed, epoch, example), mixed by (seed, number of the example), packed in that
order; every host makes the whole stream and keeps its rows. Making it costs tokenising alone, which
is little beside a training step, and buys that a run may move to another number of hosts.
"""

import dataclasses
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from data_pipelines import packing
from data_pipelines.features import SeqioVocabulary, to_example
from data_pipelines.packing import Example, PackingReport
from data_pipelines.randomness import draws, epoch_seed
from gophercite import records
from gophercite.json_fields import RecordError
from gophercite.vocabularies import Vocabulary

# TensorFlow reads data here and nothing else: left alone, it would take an accelerator's memory.
tf.config.set_visible_devices([], "GPU")

Batch = dict[str, np.ndarray]

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Input:
    """One seqio task or mixture as batches of rows.

    A batch has `tokens`, `targets`, `positions`, `segments` (int32) and `weights` (float32), each
    [rows of this process, length].

    Attributes:
      mixture_or_task_name: as registered with seqio (`data_pipelines.tasks`).
      split: of the task's source.
      length: tokens in a row; longer examples are dropped, and counted in `report`.
      batch_size: rows of a batch, over all processes.
      seed: of shuffling, mixing and all random draws.
      pack: whether several examples share a row.
      shuffle: whether each epoch has an order of its own.
      process_index, process_count: which share of each batch this process gets.
      report: what the packing of all iterators of this input did.
    """

    mixture_or_task_name: str
    split: str
    length: int
    batch_size: int
    seed: int
    pack: bool = True
    shuffle: bool = True
    process_index: int = 0
    process_count: int = 1
    report: PackingReport = dataclasses.field(
        default_factory=PackingReport, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.length < 2:
            raise ValueError(f"length is {self.length}; a row needs at least 2 tokens")
        if self.batch_size < 1 or self.batch_size % self.process_count:
            raise ValueError(
                f"batch_size is {self.batch_size}; it must be a positive multiple of the number "
                f"of processes, {self.process_count}"
            )
        if not 0 <= self.process_index < self.process_count:
            raise ValueError(
                f"process_index is {self.process_index}; it must be below {self.process_count}"
            )
        known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        if self.mixture_or_task_name not in known:
            raise ValueError(
                f"no task or mixture is named {self.mixture_or_task_name!r}; "
                f"there are {', '.join(sorted(known))}"
            )
        for task in self._tasks:
            if self.split not in task.splits:
                raise ValueError(
                    f"task {task.name!r} has no split {self.split!r}; "
                    f"it has {', '.join(task.splits)}"
                )

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the task."""
        features = seqio.get_mixture_or_task(self.mixture_or_task_name).output_features
        vocabulary = features["tokens"].vocabulary
        if not isinstance(vocabulary, SeqioVocabulary):
            raise TypeError(f"task {self.mixture_or_task_name!r} has no vocabulary of this project")
        return vocabulary.plain

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yields batch `start`, `start + 1`, … without end.

        The examples before `start` are read and packed anew, not stored: what a batch holds
        depends on the lengths of all that came before.

        Raises:
          RecordError: when in a whole epoch of a task no example passes its filters and fits a row.
        """
        rows = self._rows(self._examples())
        for _ in itertools.islice(rows, start * self.batch_size):
            pass
        while True:
            yield self._batch(list(itertools.islice(rows, self.batch_size)))

    def one_pass(self) -> Iterator[Batch]:
        """Yields each example of the split once; missing rows of the last batch are padding.

        Random draws are those of epoch 0, so that every pass is the same.

        Raises:
          RecordError: when no example passes the task's filters and fits a row.
        """
        examples = itertools.chain.from_iterable(
            self._epoch(task, 0, shuffle=False) for task in self._tasks
        )
        rows = self._rows(map(self._example, examples))
        empty = True
        while whole := list(itertools.islice(rows, self.batch_size)):
            empty = False
            whole += [[]] * (self.batch_size - len(whole))
            yield self._batch(whole)
        if empty:
            raise self._nothing_left(self.mixture_or_task_name)

    def questions(self, limit: int) -> list[records.Question]:
        """Returns the first `limit` questions of the split, with documents, answers and evidence.

        They are what the task's rated answers were encoded from, in order, each question once; a
        task of plain texts has none.
        """
        found: dict[str, records.Question] = {}
        for task in self._tasks:
            for features in self._epoch(task, 0, shuffle=False):
                if len(found) >= limit:
                    break
                value = json.loads(features["record"])
                if "claim" not in value:
                    break
                question = _question_of(records.from_json(value, records.RatedAnswer), task.name)
                found.setdefault(question.id, question)
        return list(found.values())

    @property
    def _tasks(self) -> list[seqio.Task]:
        provider = seqio.get_mixture_or_task(self.mixture_or_task_name)
        return list(provider.tasks) if isinstance(provider, seqio.Mixture) else [provider]

    def _epoch(self, task: seqio.Task, epoch: int, shuffle: bool) -> Iterator[dict[str, Any]]:
        lengths = dict.fromkeys(task.output_features, self.length)
        dataset = task.get_dataset(
            sequence_length=lengths,
            split=self.split,
            shuffle=shuffle,
            seed=epoch_seed(self.seed, task.name, epoch),
            num_epochs=1,
            trim_output_features=False,
            try_in_mem_cache=False,
        )
        return iter(dataset.as_numpy_iterator())

    def _epochs(self, task: seqio.Task) -> Iterator[Example]:
        for epoch in itertools.count():
            empty = True
            for features in self._epoch(task, epoch, self.shuffle):
                example = self._example(features)
                empty = empty and len(example.tokens) > self.length
                yield example
            if empty:  # else this would go on for ever
                raise self._nothing_left(task.name)

    def _nothing_left(self, name: str) -> RecordError:
        dropped = self.report.longest_dropped
        why = f" and fits length={self.length} (one has {dropped} tokens)" if dropped else ""
        return RecordError(
            f"{name}: no example of split {self.split!r} passes the task's filters{why}"
        )

    def _examples(self) -> Iterator[Example]:
        provider = seqio.get_mixture_or_task(self.mixture_or_task_name)
        streams = [self._epochs(task) for task in self._tasks]
        if not isinstance(provider, seqio.Mixture):
            yield from streams[0]
            return
        rates = [provider.get_rate(task) for task in self._tasks]
        for number in itertools.count():
            (stream,) = draws(self.seed, "mixture", str(number)).choices(streams, rates)
            yield next(stream)

    def _example(self, features: Mapping[str, Any]) -> Example:
        return to_example(features)

    def _share(self, rows: list[list[Example]]) -> list[list[Example]]:
        """The rows of a batch that are this process's."""
        share = self.batch_size // self.process_count
        return rows[self.process_index * share : (self.process_index + 1) * share]

    def _batch(self, rows: list[list[Example]]) -> Batch:
        built = (packing.build_row(row, self.length) for row in self._share(rows))
        return packing.stack_rows(built, self.length)

    def _rows(self, examples: Iterable[Example]) -> Iterator[list[Example]]:
        warned = self.report.dropped > 0
        for row in packing.group(examples, self.length, self.report, pack=self.pack):
            if self.report.dropped and not warned:
                warned = True
                _log.warning(
                    "%s: an example of %d tokens is longer than length=%d and was dropped; "
                    "the report counts the others",
                    self.mixture_or_task_name,
                    self.report.longest_dropped,
                    self.length,
                )
            yield row


def _question_of(answer: records.RatedAnswer, source: str) -> records.Question:
    start = end = 0
    for document in answer.documents:
        if document.id == answer.document and isinstance(document, records.Document):
            start = document.text.find(answer.quote)
            end = start + len(answer.quote)
    evidence = (records.Span(answer.document, start, end),) if 0 <= start < end else ()
    return records.Question(
        id=answer.question_id,
        question=answer.question,
        source=source,
        documents=answer.documents,
        answers=(answer.claim,),
        evidence=evidence,
    )

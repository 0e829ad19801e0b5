"""What all inputs have in common: the examples of a seqio task or mixture as rows of batches.

Batch i is the same whatever batch a run starts from and however many hosts share it. Its rows are
determined by the seed and its number (`row_order`), the examples of a row by a plan from one pass
over the data (`row_plan`), and each random draw by the seed, the epoch and the example. So a
resumed run, or one host of many, builds only the rows that it needs.
"""

import abc
import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any, Self, TypeVar, cast

import seqio
import tensorflow as tf

from data_pipelines.example_reader import ExampleSource, Features
from data_pipelines.features import SeqioVocabulary
from data_pipelines.packing import Segment
from data_pipelines.randomness import epoch_seed
from data_pipelines.row_order import interleave
from data_pipelines.task_rows import NothingUsableError, Packing, Pass, TaskRows
from gophercite import records
from gophercite.evidence import fold_case
from gophercite.storage.json_fields import RecordError
from gophercite.vocabularies import Vocabulary

# TensorFlow only reads data here; without this, it would reserve an accelerator's memory.
tf.config.set_visible_devices([], "GPU")

E = TypeVar("E")


class TaskInput(abc.ABC):
    """One split of a seqio task or mixture as batches; a base of frozen dataclasses.

    Attributes:
      mixture_or_task_name: as registered with seqio (`data_pipelines.tasks`).
      split: a split of the task's source.
      batch_size: rows per batch, over all processes.
      seed: seed for shuffling, mixing and all random draws.
      shuffle: whether each epoch has a different order.
      limit: one pass takes only this many examples of each task, the first ones; None takes all.
      process_index, process_count: which share of each batch this process gets.
      plan_folder: where to save which examples share a row, on a disk or in a bucket; None computes
        it again whenever batches are requested.
    """

    mixture_or_task_name: str
    split: str
    batch_size: int
    seed: int
    shuffle: bool
    limit: int | None
    process_index: int
    process_count: int
    plan_folder: str | None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.batch_size % self.process_count:
            raise ValueError(
                f"batch_size is {self.batch_size}; it must be a positive multiple of the number "
                f"of processes, {self.process_count}"
            )
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit is {self.limit}; a pass takes at least 1 example of each task")
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
        for task in self.tasks:
            if self.split not in task.splits:
                raise ValueError(
                    f"task {task.name!r} has no split {self.split!r}; "
                    f"it has {', '.join(task.splits)}"
                )
            if isinstance(task.source, ExampleSource):
                task.source.refuse_other_lengths(self.split, self.feature_lengths(task))

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the task.

        Raises:
          TypeError: it is not one of this project's.
        """
        features = seqio.get_mixture_or_task(self.mixture_or_task_name).output_features
        vocabulary = features["tokens"].vocabulary
        if not isinstance(vocabulary, SeqioVocabulary):
            raise TypeError(f"task {self.mixture_or_task_name!r} has no vocabulary of this project")
        return vocabulary.plain

    @abc.abstractmethod
    def batches(self, start: int = 0) -> Iterator[dict[str, Any]]:
        """Yields batch `start`, `start + 1`, … without end.

        Raises:
          RecordError: no example of a task's whole epoch can be used.
        """

    @abc.abstractmethod
    def one_pass(self) -> Iterator[dict[str, Any]]:
        """Yields each example of the split once, or `limit` of them; the last batch is padded.

        Random draws are those of epoch 0, so every pass is the same.

        Raises:
          RecordError: no example can be used.
        """

    def share(self, process_index: int, process_count: int) -> Self:
        """Returns this input with another share of each batch."""
        changes = {"process_index": process_index, "process_count": process_count}
        return cast(Self, dataclasses.replace(cast(Any, self), **changes))

    def keeping_plans(self, folder: str) -> Self:
        """Returns this input with a folder for its plans of rows, if it has none yet."""
        return (
            self if self.plan_folder else dataclasses.replace(cast(Any, self), plan_folder=folder)
        )

    def questions(self, limit: int) -> list[records.Question]:
        """Returns the first `limit` questions of the split, with documents, answers and evidence.

        They are the questions from which the task's prompts were encoded, in order and without
        repeats; a task of plain texts has none. If an earlier task of a mixture has already used an
        id for another question, the id becomes `TASK/ID`.
        """
        found: dict[str, records.Question] = {}
        for task in self.tasks:
            for features in self._epoch(task, 0, shuffle=False):
                if len(found) >= limit:
                    break
                question = _question_of(json.loads(features["record"]), task.name)
                if question is None:
                    break
                known = found.get(question.id, question)
                if known.question != question.question:  # tasks may use the same ids
                    other = f"{task.name}/{question.id}"
                    question = dataclasses.replace(question, id=other)
                found.setdefault(question.id, question)
        return list(found.values())

    @property
    @abc.abstractmethod
    def _packing(self) -> Packing:
        """How examples become rows."""

    @property
    @abc.abstractmethod
    def _example_length(self) -> int:
        """Maximum number of tokens in an example; longer examples can't be used."""

    @property
    def trained_length(self) -> int | None:
        """Maximum number of tokens of a prompt with its answer; None if rows are other texts."""
        return None

    @abc.abstractmethod
    def _why_none(self) -> str:
        """The message if no example of a split passes the task's filters and can be used."""

    @property
    def tasks(self) -> list[seqio.Task]:
        """The task, or the tasks of the mixture."""
        provider = seqio.get_mixture_or_task(self.mixture_or_task_name)
        return list(provider.tasks) if isinstance(provider, seqio.Mixture) else [provider]

    @property
    def _rates(self) -> list[float]:
        """The share of the examples that comes from each task."""
        provider = seqio.get_mixture_or_task(self.mixture_or_task_name)
        if not isinstance(provider, seqio.Mixture):
            return [1.0]
        rates = [provider.get_rate(task) for task in self.tasks]
        return [rate / sum(rates) for rate in rates]

    def feature_lengths(self, task: seqio.Task) -> dict[str, int]:
        """The `sequence_length` that a task's preprocessors get, by feature."""
        return dict.fromkeys(task.output_features, self._example_length)

    def _epoch(self, task: seqio.Task, epoch: int, shuffle: bool) -> Iterator[Features]:
        dataset = task.get_dataset(
            sequence_length=self.feature_lengths(task),
            split=self.split,
            shuffle=shuffle,
            seed=epoch_seed(self.seed, task.name, epoch),
            num_epochs=1,
            trim_output_features=False,
            try_in_mem_cache=False,
        )
        return iter(dataset.as_numpy_iterator())

    def _each_once(self) -> Iterator[Features]:
        """The examples of one pass in order, task by task, with the draws of epoch 0."""
        return itertools.chain.from_iterable(
            itertools.islice(self._epoch(task, 0, shuffle=False), self.limit) for task in self.tasks
        )

    def _row_batches(self, start: int, lanes: range) -> Iterator[list[list[Segment]]]:
        """Yields some rows of batch `start`, `start + 1`, … without end.

        Args:
          start: number of the first batch.
          lanes: which rows of each batch.

        Raises:
          RecordError: no example of a task can be used.
        """
        try:
            yield from self._made_batches(start, lanes)
        except NothingUsableError as error:
            raise self._nothing_left(error.task) from None

    def _made_batches(self, start: int, lanes: range) -> Iterator[list[list[Segment]]]:
        rows = self._packing
        tasks = []
        for task in self.tasks:
            lengths = self.feature_lengths(task)
            reading = Pass(
                self.split, lengths, self.seed, self.shuffle, self.plan_folder,
                self.process_index, self.process_count,
            )  # fmt: skip
            tasks.append(TaskRows(task, reading, rows))
        size = max(task.rows_together for task in tasks)
        rates = self._rates
        if len(tasks) > 1:
            each = zip(self._rates, tasks, strict=True)
            rates = [rate / task.examples_per_row() for rate, task in each]

        def made(period: int, some: range) -> dict[int, list[list[Segment]]]:
            """The rows of some lanes in a period, with as many batches as a group has rows."""
            slots = [interleave(rates, period * self.batch_size + lane) for lane in some]
            found: dict[int, list[list[Segment]]] = {}
            for number, task in enumerate(tasks):
                mine = [
                    (lane, k) for lane, (of, k) in zip(some, slots, strict=True) if of == number
                ]
                groups = task.groups([k for _, k in mine], size)
                found |= {lane: group for (lane, _), group in zip(mine, groups, strict=True)}
            return found

        period, first = divmod(start, size)
        now = made(period, lanes)
        while True:
            coming: dict[int, list[list[Segment]]] = {}
            for step in range(size):
                if step >= first:
                    # The first row of a group is its fullest, so each lane begins at another row.
                    yield [now[lane][(step + lane) % size] for lane in lanes]
                # Each step builds a part of the next period, so that no step waits for all of it.
                coming |= made(period + 1, lanes[step::size])
            now, period, first = coming, period + 1, 0

    def _nothing_left(self, name: str) -> RecordError:
        return RecordError(
            f"{name}: no example of split {self.split!r} passes the task's filters"
            f"{self._why_none()}"
        )

    @property
    def _lanes(self) -> range:
        """The rows of each batch that belong to this process."""
        share = self.batch_size // self.process_count
        return range(self.process_index * share, (self.process_index + 1) * share)

    def _share(self, rows: list[E]) -> list[E]:
        """The rows of a batch that belong to this process."""
        return rows[self._lanes.start : self._lanes.stop]


def _question_of(value: dict[str, Any], source: str) -> records.Question | None:
    """The question of a record as JSON; None if it has none."""
    if "claim" in value:
        return _rated_question(records.from_json(value, records.RatedAnswer), source)
    if "question" in value and "documents" in value:
        return records.from_json(value, records.Question)
    return None


def _rated_question(answer: records.RatedAnswer, source: str) -> records.Question:
    start = end = 0
    for document in answer.documents:
        if document.id == answer.document and isinstance(document, records.Document):
            start = document.text.find(answer.quote)
            if start < 0:  # ASCII letters may differ in case
                start = fold_case(document.text).find(fold_case(answer.quote))
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

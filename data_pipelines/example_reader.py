"""Reads a seqio task's examples record by record, for any records, in any order.

seqio itself reads a task from its beginning. Here, a task's preprocessors get one record at a time,
so an example depends only on its record and the record's seed, and not on any earlier record. A
preprocessor that joins several records sees only one of them here.
"""

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
from jaxtyping import Int
from tensorflow.core.framework.tensor_pb2 import TensorProto

from data_pipelines.sources import NumberedSource, RecordSource

Features = Mapping[str, Any]  # of one example, as numpy arrays
Wanted = tuple[int, int]  # number of a record, and the seed for its random draws

_AT_ONCE = 32  # records per call to TensorFlow, which costs more than processing one
_PLACE = "_place"  # the feature that says to which record an example belongs
_END = -1


class ExampleReader(abc.ABC):
    """Reads the examples of one split of a task, record by record.

    Attributes:
      count: number of records in the split.
      endless: whether there are more records than any run reads.
      made: number of records whose examples have been computed or read so far.
    """

    count: int
    endless: bool = False
    made: int = 0

    @abc.abstractmethod
    def read(self, wanted: Sequence[Wanted]) -> list[list[Features]]:
        """Returns the examples of each record: none if a filter drops it, or several.

        Args:
          wanted: numbers of the records and the seeds for their draws.
        """

    @abc.abstractmethod
    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        """Yields texts that differ if the records do."""

    def shuffled(self, draws: np.random.Generator) -> Int[np.ndarray, " records"]:
        """Returns the records' numbers in an order drawn at random."""
        return draws.permutation(self.count)


class ExampleSource(NumberedSource):
    """A source of complete examples, which need no preprocessing."""

    @abc.abstractmethod
    def reader(self, split: str) -> ExampleReader:
        """Returns the reader of a split."""

    @abc.abstractmethod
    def refuse_other_lengths(self, split: str, lengths: Mapping[str, int]) -> None:
        """Refuses lengths other than those for which a split's examples were computed.

        Args:
          split: one of `splits`.
          lengths: `sequence_length` for preprocessors, by feature.

        Raises:
          ValueError: the examples depend on other lengths.
        """


def reader_of(task: seqio.Task, split: str, lengths: Mapping[str, int]) -> ExampleReader:
    """Returns a reader for a task's examples.

    Args:
      task: the task. If its source can't return a record by its number, it is read once and held in
        memory.
      split: a split of the source.
      lengths: `sequence_length` for the preprocessors, by feature.
    """
    if isinstance(task.source, ExampleSource) and not task.preprocessors:
        return task.source.reader(split)
    if isinstance(task.source, RecordSource):
        return _record_reader(task, split, tuple(lengths.items()))
    return HeldExamples(task, split, lengths)


@functools.lru_cache(maxsize=8)  # a reader has no state, but takes a second to build
def _record_reader(
    task: seqio.Task, split: str, lengths: tuple[tuple[str, int], ...]
) -> "RecordReader":
    return RecordReader(task, split, dict(lengths))


class HeldExamples(ExampleReader):
    """Examples of a task whose source can only be read from its beginning, held in memory.

    Their random draws use seed 0 in every epoch.

    Args:
      task: any seqio task.
      split: a split of its source.
      lengths: `sequence_length` for the preprocessors, by feature.
    """

    def __init__(self, task: seqio.Task, split: str, lengths: Mapping[str, int]) -> None:
        dataset = task.get_dataset(
            sequence_length=lengths,
            split=split,
            shuffle=False,
            seed=0,
            num_epochs=1,
            trim_output_features=False,
            try_in_mem_cache=False,
        )
        self._examples = list(dataset.as_numpy_iterator())
        self.count = len(self._examples)

    def read(self, wanted: Sequence[Wanted]) -> list[list[Features]]:
        """Returns the examples one by one: each counts as a record. The seeds are not used."""
        self.made += len(wanted)
        return [[self._examples[number]] for number, _ in wanted]

    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        """Yields the tokens."""
        return (str(self._examples[number]["tokens"].tolist()) for number in numbers)


class RecordReader(ExampleReader):
    """Computes the examples of records that a source returns by number.

    Args:
      task: a task whose source is a `RecordSource`.
      split: a split of the source.
      lengths: `sequence_length` for the preprocessors, by feature.
    """

    def __init__(self, task: seqio.Task, split: str, lengths: Mapping[str, int]) -> None:
        self._source: RecordSource = task.source
        self._task = task
        self._split = split
        self._lengths = lengths
        self.count = self._source.count(split)
        self.endless = self._source.endless(split)

    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        """Yields the records' JSON."""
        return (self._source.record(self._split, number)[1] for number in numbers)

    def shuffled(self, draws: np.random.Generator) -> Int[np.ndarray, " records"]:
        """Returns the records' numbers in a random order, as the source shuffles them."""
        return self._source.shuffled(self._split, draws)

    def read(self, wanted: Sequence[Wanted]) -> list[list[Features]]:
        """Returns the examples of each record: none if a filter drops it, or several."""
        self.made += len(wanted)
        found: list[list[Features]] = []
        for start in range(0, len(wanted), _AT_ONCE):
            found += self._read(wanted[start : start + _AT_ONCE])
        return found

    def _read(self, wanted: Sequence[Wanted]) -> list[list[Features]]:
        ids, texts = zip(*(self._source.record(self._split, n) for n, _ in wanted), strict=True)
        function, types = self._made
        places, packed = function(
            tf.constant(texts),
            tf.constant(ids),
            tf.constant([seed for _, seed in wanted], tf.int64),
        )
        found: list[list[Features]] = [[] for _ in wanted]
        columns = {name: column.numpy() for name, column in packed.items()}
        for row, place in enumerate(places.numpy().tolist()):
            if place != _END:
                found[place].append({name: _plain(columns[name][row]) for name in types})
        return found

    @functools.cached_property
    def _made(self) -> tuple[Any, dict[str, tf.DType]]:
        """The function that computes examples, traced once, and the types of their features.

        Features may have any shape, so they leave the function as serialised tensors.
        """
        types: dict[str, tf.DType] = {}
        # tf.data would optimise each call's pipeline anew, which takes longer than it saves.
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False

        def process(records: dict[str, tf.Tensor]) -> tf.data.Dataset:
            dataset = tf.data.Dataset.from_tensor_slices(records)  # type: ignore[arg-type]
            dataset = self._task.preprocess_precache(dataset, seed=0)
            return self._task.preprocess_postcache(dataset, sequence_length=self._lengths, seed=0)

        def packed(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: tf.io.serialize_tensor(features[name]) for name in types}

        def make(texts: tf.Tensor, ids: tf.Tensor, seeds: tf.Tensor) -> Any:
            places = tf.range(tf.size(texts, tf.int64))
            records = {"record": texts, "id": ids, "seed": seeds, _PLACE: places}
            found: Any = process(records)
            types.update({name: spec.dtype for name, spec in found.element_spec.items()})
            if types.pop(_PLACE, None) is not None:
                found = found.map(lambda features: (features[_PLACE], packed(features)))
            else:  # a preprocessor drops features that it doesn't know: take one record at a time
                numbered: Any = tf.data.Dataset.range(tf.size(texts, tf.int64))
                found = numbered.flat_map(
                    lambda place: process(
                        {name: column[place : place + 1] for name, column in records.items()}
                    ).map(lambda features: (place, packed(features)))
                )
            nothing = (tf.constant(_END, tf.int64), {name: tf.constant("") for name in types})
            # There may be no examples at all, which can't be batched.
            found = found.concatenate(tf.data.Dataset.from_tensors(nothing))
            return found.batch(2**31).with_options(options).get_single_element()

        strings = tf.TensorSpec([None], tf.string)
        signature = [strings, strings, tf.TensorSpec([None], tf.int64)]
        # Autograph converts the preprocessors' functions when they are mapped, as in seqio. The
        # code around them doesn't need this conversion, which would take seconds.
        traced = tf.function(make, input_signature=signature, autograph=False)
        function = traced.get_concrete_function()
        return function, types


def _plain(serialised: bytes) -> Any:
    # Reading the message in Python takes a fifth of the time of TensorFlow's operation.
    value = tf.make_ndarray(TensorProto.FromString(serialised))
    return value if value.ndim else np.asarray(value[()])[()]

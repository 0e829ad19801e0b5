"""The key that is kept with cached examples, of everything that they depend on."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from data_pipelines.cached_examples import CacheError
from data_pipelines.description import describe
from data_pipelines.example_reader import ExampleReader
from data_pipelines.features import SeqioVocabulary
from data_pipelines.row_plan import digest

SEED = 0  # of the draws of all cached examples
_FIRST = 64  # examples that identify the data of a source without numbered records


def key_of(
    task: seqio.Task, split: str, lengths: Mapping[str, int], reader: ExampleReader | None
) -> str:
    """Returns a digest of everything that the examples depend on.

    If the source can't return a record by its number, its data is identified by the number of its
    examples (if known), by the first of them, and by TFDS's folder, whose name has the version.
    """
    texts = itertools.chain(
        (task.name, split, repr(sorted(lengths.items()))),
        map(describe, task.preprocessors),
        (describe(vocabulary_of(task)), type(task.source).__qualname__),
    )
    if reader is None:
        return digest(itertools.chain(texts, _data_of(task.source, split)))
    return digest(itertools.chain(texts, reader.texts(range(reader.count))))


def _data_of(source: seqio.DataSource, split: str) -> Iterator[str]:
    builder = getattr(getattr(source, "tfds_dataset", source), "builder", None)
    yield str(getattr(builder, "data_dir", None))
    yield str(source.num_input_examples(split))
    examples = source.get_dataset(split=split, shuffle=False, seed=SEED)
    for example in examples.take(_FIRST).as_numpy_iterator():
        yield repr([np.asarray(value).tolist() for value in tf.nest.flatten(example)])


def takes_lengths(step: Callable[..., Any]) -> bool:
    """Whether a preprocessor's examples may depend on `sequence_length`, by its signature."""
    return "sequence_length" in inspect.signature(step).parameters


def vocabulary_of(task: seqio.Task) -> SeqioVocabulary:
    """Returns the vocabulary of a task's tokens.

    Raises:
      CacheError: it is not one of this project's.
    """
    vocabulary = task.output_features["tokens"].vocabulary
    if not isinstance(vocabulary, SeqioVocabulary):
        raise CacheError(f"task {task.name!r} has no vocabulary of this project")
    return vocabulary

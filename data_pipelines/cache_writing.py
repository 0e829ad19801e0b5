"""Computes the examples of seqio tasks once, and writes them to a folder (`cached_examples`)."""

import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
from etils import epath
from jaxtyping import Int

from data_pipelines.cached_examples import (
    DONE,
    CacheError,
    Shard,
    described,
    examples_of,
    to_blob,
    written_shards,
)
from data_pipelines.description import describe
from data_pipelines.example_reader import Features, reader_of
from data_pipelines.features import SeqioVocabulary
from data_pipelines.randomness import epoch_seed
from data_pipelines.row_plan import digest
from data_pipelines.sources import NumberedSource
from gophercite.storage import open_bytes, write_file

SHARD_BYTES = 2**27
_AT_ONCE = 64  # records
_COMPARED = 16  # records that are built twice, to see whether examples vary
_OF_EPOCH = "seed"  # the one feature that always differs from epoch to epoch


def cache_split(
    task: seqio.Task,
    split: str,
    lengths: Mapping[str, int],
    folder: epath.PathLike,
    *,
    fix_draws: bool = False,
    shard_bytes: int = SHARD_BYTES,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Computes the examples of one split of a task, and writes them to a folder.

    An interrupted call goes on after the last whole shard; a complete split is left as it is.

    Args:
      task: any task whose tokens have a vocabulary of this project.
      split: a split of its source.
      lengths: `sequence_length` for the preprocessors, by feature.
      folder: the folder of all splits.
      fix_draws: keep the first epoch's random draws. Otherwise a task whose examples differ from
        epoch to epoch is refused.
      shard_bytes: approximate size of a shard.
      say: receives lines about the progress.

    Returns:
      The number of examples.

    Raises:
      CacheError: the folder has examples of something else; the task's examples vary; or it has
        more of them than any run reads.
    """
    where = epath.Path(folder) / split
    if isinstance(task.source, NumberedSource) and task.source.endless(split):
        raise CacheError(
            f"task {task.name!r} makes its records without end, so they can't all be cached"
        )
    source = _Examples(task, split, lengths)
    if not fix_draws and source.vary():
        raise CacheError(
            f"task {task.name!r} draws its examples anew in each epoch; cached, each epoch would "
            "have those of the first. If that is what you want, set --fix_draws"
        )
    key = source.key()
    written = written_shards(where, key)
    done = sum(len(shard.checksums) for shard in written)
    if (where / DONE).exists() and described(where)["shards"] == len(written):
        examples = int(described(where)["examples"])
        say(f"{split}: {examples} examples are there already")
        return examples
    if done:
        say(f"{split}: goes on after {done} records")
    kinds = _kinds(task)
    number = len(written)
    examples = sum(_count(where, i, shard) for i, shard in enumerate(written))
    for blobs, found, pages in _shards(source, done, shard_bytes):
        path = where / f"{number:05d}"
        write_file(f"{path}.examples", b"".join(blobs))
        sizes = np.cumsum([0, *map(len, blobs)], dtype=np.int64)
        checksums = np.array([zlib.crc32(blob) for blob in blobs], np.uint32)
        shard = Shard(key, sizes, checksums, np.array(pages, np.uint32))
        write_file(f"{path}.index.npz", shard.to_bytes())
        number, done, examples = number + 1, done + len(blobs), examples + found
        say(f"{split}: {done} records, {examples} examples")
    if not examples:
        raise CacheError(f"task {task.name!r} has no example in split {split!r}")
    written_last = {
        "task": task.name, "key": key, "shards": number, "records": done, "examples": examples,
        "vocabulary": describe(_vocabulary(task)), "features": kinds,
    }  # fmt: skip
    write_file(where / DONE, json.dumps(written_last, indent=2) + "\n")
    return examples


class _Examples:
    """The examples of a split, record by record, from any record on."""

    def __init__(self, task: seqio.Task, split: str, lengths: Mapping[str, int]) -> None:
        self._task, self._split, self._lengths = task, split, lengths
        self._numbered = isinstance(task.source, NumberedSource)
        self._reader = reader_of(task, split, lengths) if self._numbered else None
        self._seeds = [epoch_seed(0, task.name, epoch) for epoch in range(2)]

    def key(self) -> str:
        """Identifies what the examples depend on; a source that can't count names itself."""
        source = self._task.source
        texts = itertools.chain(
            (self._task.name, self._split, repr(sorted(self._lengths.items()))),
            map(describe, self._task.preprocessors),
            (describe(_vocabulary(self._task)), type(source).__qualname__),
        )
        if self._reader is None:
            return digest(texts)
        return digest(itertools.chain(texts, self._reader.texts(range(self._reader.count))))

    def vary(self) -> bool:
        """Whether the examples of some records depend on the epoch."""
        if self._reader is None:
            return False
        numbers = range(min(_COMPARED, self._reader.count))
        first, second = (list(map(to_blob, self._read(numbers, seed))) for seed in self._seeds)
        return first != second

    def pages(self) -> Int[np.ndarray, " records"] | None:
        """A number for each record, equal for records that stay together; or None."""
        source = self._task.source
        return source.pages(self._split) if isinstance(source, NumberedSource) else None

    def after(self, done: int) -> Iterator[list[Features]]:
        """Yields the examples of each record after the first `done`."""
        if self._reader is None:
            dataset = self._task.get_dataset(
                sequence_length=self._lengths,
                split=self._split,
                shuffle=False,
                seed=0,
                num_epochs=1,
                trim_output_features=False,
                try_in_mem_cache=False,
            )
            for features in dataset.skip(done).as_numpy_iterator():
                yield [_lasting(features)]
            return
        for start in range(done, self._reader.count, _AT_ONCE):
            numbers = range(start, min(start + _AT_ONCE, self._reader.count))
            yield from self._read(numbers, self._seeds[0])

    def _read(self, numbers: range, seed: int) -> list[list[Features]]:
        assert self._reader is not None
        found = self._reader.read([(number, seed) for number in numbers])
        return [list(map(_lasting, examples)) for examples in found]


def _lasting(features: Features) -> Features:
    return {name: value for name, value in features.items() if name != _OF_EPOCH}


def _shards(
    source: _Examples, done: int, most: int
) -> Iterator[tuple[list[bytes], int, list[int]]]:
    """Yields the bytes of each record of a shard, its number of examples, and its pages."""
    pages = source.pages()
    blobs: list[bytes] = []
    size = examples = 0
    first = done
    for found in source.after(done):
        blobs.append(to_blob(found))
        size += len(blobs[-1])
        examples += len(found)
        if size >= most:
            yield blobs, examples, _of(pages, first, len(blobs))
            first += len(blobs)
            blobs, size, examples = [], 0, 0
    if blobs:
        yield blobs, examples, _of(pages, first, len(blobs))


def _of(pages: np.ndarray | None, first: int, count: int) -> list[int]:
    return [] if pages is None else pages[first : first + count].tolist()


def _count(where: epath.Path, number: int, shard: Shard) -> int:
    """The number of examples in a shard."""
    path = where / f"{number:05d}.examples"
    with open_bytes(path) as file:
        return sum(len(examples_of(file, shard, i, path)) for i in range(len(shard.checksums)))


def _vocabulary(task: seqio.Task) -> SeqioVocabulary:
    vocabulary = task.output_features["tokens"].vocabulary
    if not isinstance(vocabulary, SeqioVocabulary):
        raise CacheError(f"task {task.name!r} has no vocabulary of this project")
    return vocabulary


def _kinds(task: seqio.Task) -> dict[str, dict[str, Any]]:
    """The features of a task, in the form in which they are saved."""
    return {
        name: {
            "dtype": tf.as_dtype(feature.dtype).name,
            "rank": feature.rank,
            "is_text": isinstance(feature.vocabulary, SeqioVocabulary),
        }
        for name, feature in task.output_features.items()
    }

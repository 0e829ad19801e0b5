"""Computes the examples of seqio tasks once and writes them to a folder (`cached_examples`)."""

import dataclasses
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
from etils import epath

from data_pipelines.cache_key import SEED, key_of, takes_lengths, vocabulary_of
from data_pipelines.cached_examples import (
    DONE,
    CacheError,
    DamagedIndexError,
    Shard,
    described,
    examples_of,
    index_path,
    read_shard,
    to_blob,
)
from data_pipelines.description import describe
from data_pipelines.example_reader import ExampleReader, Features, reader_of
from data_pipelines.features import SeqioVocabulary
from data_pipelines.randomness import epoch_seed
from data_pipelines.sources import NumberedSource
from gophercite.storage import open_bytes, write_file

SHARD_BYTES = 128 * 10**6
_AT_ONCE = 64  # records
_TRIED = 1024  # maximum number of records that are built twice, to see whether examples vary
_COMPARED = 64  # number of them that is enough, if they give examples
_MEASURED = 64  # records that are built to estimate the size of a shard
_OF_EPOCH = "seed"  # the only feature that differs from epoch to epoch in any case


@dataclasses.dataclass(frozen=True)
class Shards:
    """How the records of a split are divided into shards, which can be written independently.

    Attributes:
      folder: the folder of the split.
      key: the key of the examples (`cache_key.key_of`).
      records: number of records in the split.
      each: number of records in a shard; the last one may have fewer.
    """

    folder: str
    key: str
    records: int
    each: int

    @property
    def count(self) -> int:
        """The number of shards."""
        return -(-self.records // self.each)

    def range_of(self, number: int) -> range:
        """Returns the numbers of a shard's records."""
        return range(number * self.each, min((number + 1) * self.each, self.records))


# Writes shards; yields the number of each shard that it knows to be written, and its examples.
Spread = Callable[[Shards, Sequence[int]], Iterable[tuple[int, int]]]


def cache_split(
    task: seqio.Task,
    split: str,
    lengths: Mapping[str, int],
    folder: epath.PathLike,
    *,
    fix_draws: bool = False,
    shard_bytes: int = SHARD_BYTES,
    spread: Spread | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Computes the examples of one split of a task and writes them to a folder.

    After an interruption, complete shards are not written again. A complete split is left as it
    is.

    Args:
      task: any task whose tokens have a vocabulary of this project.
      split: a split of its source.
      lengths: `sequence_length` for the preprocessors, by feature.
      folder: the folder of all splits.
      fix_draws: use the first epoch's random draws for all epochs. Otherwise, a task whose examples
        differ from epoch to epoch is refused.
      shard_bytes: approximate size of a shard.
      spread: has the shards written by other processes, which call `write_shard`; None writes them
        in this process. A source that can't return a record by its number is always read by this
        process.
      say: receives lines about the progress.

    Returns:
      The number of examples.

    Raises:
      CacheError: the folder holds examples of something else; the task's examples vary; the task
        has more examples than any run reads; or shards are still missing at the end.
    """
    where = epath.Path(folder) / split
    numbered = isinstance(task.source, NumberedSource)
    if numbered and task.source.endless(split):
        raise CacheError(
            f"task {task.name!r} generates records without end, so they can't all be cached"
        )
    reader = reader_of(task, split, lengths) if numbered else None
    if reader is not None and not fix_draws and _vary(task, reader):
        raise CacheError(
            f"task {task.name!r} makes new random choices in each epoch, but a cache repeats "
            "those of the first epoch; if that is what you want, set --fix_draws"
        )
    key = key_of(task, split, lengths, reader)
    examples = _examples_of_all(where, key)
    if examples is not None:
        say(f"{split}: {examples} examples are already cached")
        return examples
    if reader is None:
        known = _write_from_the_beginning(task, split, lengths, where, key, shard_bytes, say)
    else:
        shards = Shards(
            str(where), key, reader.count, _records_of_a_shard(task, reader, shard_bytes)
        )

        def here(shards: Shards, missing: Sequence[int]) -> Iterator[tuple[int, int]]:
            for number in missing:
                yield number, write_shard(task, split, lengths, shards, number)

        known = _write_missing(shards, spread or here, split, say)
    written = _written_shards(where, key)
    total = sum(len(shard.checksums) for shard in written)
    examples = sum(
        known[number] if number in known else _count(where, number, shard)
        for number, shard in enumerate(written)
    )
    if not examples:
        raise CacheError(f"task {task.name!r} has no examples in split {split!r}")
    if reader is not None and total != reader.count:
        raise CacheError(f"{where}: has {total} of {reader.count} records; run this again")
    written_last = {
        "task": task.name, "key": key, "shards": len(written), "records": total,
        "examples": examples, "vocabulary": describe(vocabulary_of(task)), "features": _kinds(task),
        "lengths": dict(lengths) if any(map(takes_lengths, task.preprocessors)) else {},
    }  # fmt: skip
    write_file(where / DONE, json.dumps(written_last, indent=2) + "\n")
    say(f"{split}: {examples} examples")
    return examples


def write_shard(
    task: seqio.Task, split: str, lengths: Mapping[str, int], shards: Shards, number: int
) -> int:
    """Computes and writes one shard of a split; several processes may write different shards.

    Args:
      task: a task whose source can return a record by its number.
      split: a split of its source.
      lengths: `sequence_length` for the preprocessors, by feature.
      shards: how the split is divided.
      number: the shard.

    Returns:
      The number of its examples.

    Raises:
      CacheError: the split has another number of records in this process.
    """
    reader = reader_of(task, split, lengths)
    if reader.count != shards.records:
        raise CacheError(
            f"task {task.name!r} has {reader.count} records in split {split!r} here, and "
            f"{shards.records} where the work was divided"
        )
    blobs: list[bytes] = []
    examples = 0
    for found in _in_turn(task, reader, shards.range_of(number)):
        blobs.append(to_blob(found))
        examples += len(found)
    pages = task.source.pages(split)
    of_shard = [] if pages is None else pages[shards.range_of(number)].tolist()
    _write(epath.Path(shards.folder), number, shards.key, blobs, of_shard)
    return examples


def _write_missing(
    shards: Shards, spread: Spread, split: str, say: Callable[[str], None]
) -> dict[int, int]:
    """Has the missing shards written; returns the number of examples of each known shard."""
    where = epath.Path(shards.folder)
    (where / DONE).unlink(missing_ok=True)  # until all shards are there again
    missing = _missing(where, shards)
    done = shards.records - sum(len(shards.range_of(number)) for number in missing)
    if done:
        say(f"{split}: resuming after {done} records")
    known: dict[int, int] = {}
    for number, examples in spread(shards, missing):
        known[number] = examples
        done += len(shards.range_of(number))
        say(f"{split}: {done} of {shards.records} records")
    return known


def _missing(where: epath.Path, shards: Shards) -> list[int]:
    """Returns the missing shards; removes all shards if the records were divided differently.

    An earlier start may have used other sizes. Then even a shard with the right number of records
    may hold the wrong ones, so all are written again.

    Raises:
      CacheError: the folder holds examples of something else.
    """
    there = _usable_shards(where, shards.key)
    counts = [len(shard.checksums) for shard in there.values()]
    if counts != [len(shards.range_of(number)) for number in there]:
        for number in there:
            index_path(where, number).unlink()
        there = {}
    return sorted(set(range(shards.count)) - set(there))


def _usable_shards(where: epath.Path, key: str) -> dict[int, Shard]:
    """Returns the shards that are complete, by number, in order.

    Removes the indices of shards that are damaged or lack examples, so that these are written
    again.

    Raises:
      CacheError: the folder holds examples of something else.
    """
    found: dict[int, Shard] = {}
    for path in sorted(where.glob("*.index.npz")):
        number = path.name.removesuffix(".index.npz")
        if not number.isdecimal() or index_path(where, int(number)) != path:
            continue  # not one of our files
        examples = where / f"{number}.examples"
        try:
            shard = read_shard(where, int(number), key)
        except DamagedIndexError:
            shard = None
        if shard and examples.exists() and examples.stat().length == shard.starts[-1]:
            found[int(number)] = shard
        else:
            path.unlink()
    return found


def _written_shards(where: epath.Path, key: str) -> list[Shard]:
    """The complete shards, in order, up to the first that is missing; see `_usable_shards`."""
    there = _usable_shards(where, key)
    return [there[number] for number in itertools.takewhile(there.__contains__, itertools.count())]


def _examples_of_all(where: epath.Path, key: str) -> int | None:
    """The number of examples of a complete split; None if it is not complete.

    Raises:
      CacheError: the folder holds examples of something else.
    """
    written = _written_shards(where, key)
    try:
        saved = described(where)
    except CacheError:  # missing, or damaged
        return None
    records = sum(len(shard.checksums) for shard in written)
    is_whole = (saved["shards"], saved["records"]) == (len(written), records)
    return int(saved["examples"]) if is_whole else None


def _write_from_the_beginning(
    task: seqio.Task,
    split: str,
    lengths: Mapping[str, int],
    where: epath.Path,
    key: str,
    shard_bytes: int,
    say: Callable[[str], None],
) -> dict[int, int]:
    """Writes the shards of a source that can only be read from its beginning (`cache_split`)."""
    (where / DONE).unlink(missing_ok=True)  # until all shards are there again
    written = _written_shards(where, key)
    for number in _usable_shards(where, key):
        if number >= len(written):  # after a gap: its records may now be in other shards
            index_path(where, number).unlink()
    done = sum(len(shard.checksums) for shard in written)
    if done:
        say(f"{split}: resuming after {done} records")
    dataset = task.get_dataset(
        sequence_length=lengths,
        split=split,
        shuffle=False,
        seed=SEED,
        num_epochs=1,
        trim_output_features=False,
        try_in_mem_cache=False,
    )
    known: dict[int, int] = {}
    blobs: list[bytes] = []
    size = 0
    for features in itertools.chain(dataset.skip(done).as_numpy_iterator(), (None,)):
        if features is not None:
            blobs.append(to_blob([_lasting(features)]))
            size += len(blobs[-1])
        if blobs and (features is None or size >= shard_bytes):
            number = len(written) + len(known)
            _write(where, number, key, blobs, [])
            known[number] = len(blobs)
            done += len(blobs)
            say(f"{split}: {done} records")
            blobs, size = [], 0
    return known


def _write(
    where: epath.Path, number: int, key: str, blobs: Sequence[bytes], pages: Sequence[int]
) -> None:
    """Writes a shard, its index last: a shard without an index is written again."""
    index = index_path(where, number)
    index.unlink(missing_ok=True)
    write_file(where / f"{number:05d}.examples", b"".join(blobs))
    sizes = np.cumsum([0, *map(len, blobs)], dtype=np.int64)
    checksums = np.array([zlib.crc32(blob) for blob in blobs], np.uint32)
    shard = Shard(key, sizes, checksums, np.array(pages, np.uint32))
    write_file(index, shard.to_bytes())


def _vary(task: seqio.Task, reader: ExampleReader) -> bool:
    """Whether examples depend on the epoch, judged by records from all over the split."""
    numbers = _spread_over(reader.count, _TRIED)
    steps = -(-len(numbers) // _AT_ONCE)
    compared = 0
    for start in range(steps):
        some = numbers[start::steps]
        first, second = (
            [to_blob(found) for found in _in_turn(task, reader, some, epoch)] for epoch in range(2)
        )
        if first != second:
            return True
        compared += sum(map(bool, first))
        if compared >= _COMPARED:
            break
    return False


def _spread_over(count: int, most: int) -> list[int]:
    """The numbers of up to `most` records, at equal distances."""
    some = min(count, most)
    return [number * count // some for number in range(some)]


def _in_turn(
    task: seqio.Task, reader: ExampleReader, numbers: Sequence[int], epoch: int = 0
) -> Iterator[list[Features]]:
    """Yields the examples of each record, with the draws of an epoch."""
    seed = epoch_seed(SEED, task.name, epoch)
    for start in range(0, len(numbers), _AT_ONCE):
        part = numbers[start : start + _AT_ONCE]
        for found in reader.read([(number, seed) for number in part]):
            yield list(map(_lasting, found))


def _records_of_a_shard(task: seqio.Task, reader: ExampleReader, shard_bytes: int) -> int:
    """The number of records per shard, estimated from some of them; the same after a restart."""
    some = _spread_over(reader.count, _MEASURED)
    size = sum(len(to_blob(found)) for found in _in_turn(task, reader, some))
    return max(1, shard_bytes * len(some) // max(1, size))


def _lasting(features: Features) -> Features:
    return {name: value for name, value in features.items() if name != _OF_EPOCH}


def _count(where: epath.Path, number: int, shard: Shard) -> int:
    """The number of examples in a shard."""
    path = where / f"{number:05d}.examples"
    with open_bytes(path) as file:
        return sum(len(examples_of(file, shard, i, path)) for i in range(len(shard.checksums)))


def _kinds(task: seqio.Task) -> dict[str, dict[str, Any]]:
    """The features of a task, as they are saved."""
    return {
        name: {
            "dtype": tf.as_dtype(feature.dtype).name,
            "rank": feature.rank,
            "is_text": isinstance(feature.vocabulary, SeqioVocabulary),
        }
        for name, feature in task.output_features.items()
    }

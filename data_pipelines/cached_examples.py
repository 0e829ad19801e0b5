"""Examples of seqio tasks, computed once and kept in files on a disk or in a bucket.

A folder has a subfolder for each split, with shards of examples in the order of the task's records:

    train/00000.examples    the examples of some records, one record after the other (msgpack)
    train/00000.index.npz   where each record's examples begin, their checksums, and their pages
    train/cached.json       written last: a split without it is not complete

Any record's examples can be read without the others, by any number of hosts.
`launch/cache_task.py` writes such a folder (`cache_writing`), and `add_cached` registers it as a
task.
"""

import contextlib
import dataclasses
import functools
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import seqio
import tensorflow as tf
from etils import epath
from flax import serialization
from jaxtyping import Int, Int64, UInt32

from data_pipelines.description import describe
from data_pipelines.example_reader import ExampleReader, ExampleSource, Features, Wanted
from data_pipelines.features import SeqioVocabulary
from data_pipelines.sources import shuffled
from data_pipelines.tasks import register
from gophercite.storage import open_bytes
from gophercite.storage.json_lines import read_json
from gophercite.vocabularies import Vocabulary

DONE = "cached.json"
_AT_ONCE = 64  # records


class CacheError(ValueError):
    """A folder of cached examples is incomplete, damaged, or holds examples of something else."""


class DamagedIndexError(CacheError):
    """The index of a shard can't be read."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The index of a shard: where each record's examples are.

    Attributes:
      key: the key of the examples (`cache_key.key_of`).
      starts: offset of each record's first byte, then the size of the shard.
      checksums: CRC-32 of each record's bytes.
      pages: a number for each record, equal for records of the same pages; empty if the task does
        not keep such records together.
    """

    key: str
    starts: Int64[np.ndarray, " records+1"]
    checksums: UInt32[np.ndarray, " records"]
    pages: UInt32[np.ndarray, " records"]

    def to_bytes(self) -> bytes:
        """Returns the content of the index's file."""
        file = io.BytesIO()
        np.savez(file, **{**dataclasses.asdict(self), "key": np.array(self.key)})
        return file.getvalue()

    @classmethod
    def read(cls, path: epath.Path) -> "Shard":
        """Reads the index's file.

        Raises:
          DamagedIndexError: the file is damaged.
        """
        try:
            with open_bytes(path) as file:
                content = file.read()
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in dataclasses.fields(cls)}
        except OSError:
            raise
        except Exception as error:  # zipfile, zlib and numpy have many kinds of errors for this
            raise DamagedIndexError(
                f"{path}: is not an index of cached examples: {error}"
            ) from None
        shard = cls(**{**values, "key": str(values["key"])})
        count = len(shard.checksums) if shard.checksums.ndim == 1 else -2
        types = shard.starts.dtype, shard.checksums.dtype, shard.pages.dtype
        if (
            types != (np.int64, np.uint32, np.uint32)
            or shard.starts.shape != (count + 1,)
            or shard.pages.shape not in ((count,), (0,))
            or shard.starts[0] != 0
            or (np.diff(shard.starts) < 0).any()
        ):
            raise DamagedIndexError(f"{path}: is not an index of cached examples")
        return shard


def to_blob(examples: Sequence[Features]) -> bytes:
    """The bytes of a record's examples; empty if the record gives no examples."""
    if not examples:
        return b""
    plain = [
        {name: bytes(value) if isinstance(value, bytes) else value for name, value in each.items()}
        for each in examples  # numpy's own kind of bytes can be written, but not read
    ]
    return serialization.msgpack_serialize({str(i): each for i, each in enumerate(plain)})


def _examples_in(blob: bytes) -> list[Features]:
    if not blob:
        return []
    found = serialization.msgpack_restore(blob)
    return [found[str(i)] for i in range(len(found))]


def index_path(where: epath.Path, number: int) -> epath.Path:
    """The file of a shard's index."""
    return where / f"{number:05d}.index.npz"


def read_shard(where: epath.Path, number: int, key: str) -> Shard:
    """Reads the index of a shard.

    Raises:
      DamagedIndexError: the index is damaged.
      CacheError: the shard holds examples of something else.
    """
    shard = Shard.read(index_path(where, number))
    if shard.key != key:
        raise CacheError(
            f"{where}: has examples of another task, other records or other settings; choose "
            "another folder, or delete this one"
        )
    return shard


def written_shards(where: epath.Path, key: str) -> list[Shard]:
    """The complete shards, in order, up to the first that is missing.

    Raises:
      CacheError: a shard holds examples of something else.
    """
    found: list[Shard] = []
    while index_path(where, len(found)).exists():
        found.append(read_shard(where, len(found), key))
    return found


def examples_of(file: IO[bytes], shard: Shard, number: int, path: epath.Path) -> list[Features]:
    """Reads the examples of one record from its shard.

    Args:
      file: the open file of the shard's examples.
      shard: its index.
      number: number of the record within the shard.
      path: path of the file, for messages.

    Raises:
      CacheError: the examples are damaged.
    """
    start, stop = shard.starts[number : number + 2].tolist()
    file.seek(start)
    blob = file.read(stop - start)
    if zlib.crc32(blob) == shard.checksums[number]:
        with contextlib.suppress(Exception):  # msgpack and numpy have many kinds of errors
            return _examples_in(blob)
    raise CacheError(f"{path}: the examples at byte {start} are damaged")


def described(where: epath.Path) -> dict[str, Any]:
    """The content of `cached.json`.

    Raises:
      CacheError: the file is missing or damaged.
    """
    path = where / DONE
    if not path.exists():
        raise CacheError(
            f"{where}: has no {DONE}, so this split of cached examples is missing or incomplete; "
            "launch/cache_task.py writes it, or resumes one that was interrupted"
        )
    try:
        found: Any = read_json(path)
        counts = [found[name] for name in ("shards", "records", "examples")]
        texts = [found[name] for name in ("task", "key", "vocabulary")]
        kinds = found["features"].values()
        fine = (
            all(type(count) is int and count > 0 for count in counts)
            and all(isinstance(text, str) for text in texts)
            and all(tf.as_dtype(kind["dtype"]) and type(kind["rank"]) is int for kind in kinds)
            and all(isinstance(kind["is_text"], bool) for kind in kinds)
            and all(type(length) is int for length in found["lengths"].values())
            and found["features"]["tokens"]["is_text"]
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CacheError(f"{path}: does not describe cached examples: {error}") from None
    if not fine:
        raise CacheError(f"{path}: does not describe cached examples")
    return dict(found)


class CachedExamples(ExampleReader):
    """The examples of one split of a folder; only their index is held in memory.

    Args:
      folder: the folder of all splits.
      split: the split.

    Raises:
      CacheError: the split is incomplete or damaged.
    """

    def __init__(self, folder: epath.PathLike, split: str) -> None:
        self._where = epath.Path(folder) / split
        saved = described(self._where)
        self._shards = written_shards(self._where, saved["key"])
        counts = [len(shard.checksums) for shard in self._shards]
        if len(counts) != saved["shards"] or sum(counts) != saved["records"]:
            raise CacheError(
                f"{self._where}: has {len(counts)} shards with {sum(counts)} records instead of "
                f"{saved['shards']} with {saved['records']}"
            )
        self.count = sum(counts)
        self._first = np.cumsum([0, *counts])

    def read(self, wanted: Sequence[Wanted]) -> list[list[Features]]:
        """Returns the examples of each record, whatever the seed.

        Raises:
          CacheError: a shard is damaged.
        """
        self.made += len(wanted)
        numbers = np.array([number for number, _ in wanted], np.int64)
        shards = np.searchsorted(self._first, numbers, side="right") - 1
        found: list[list[Features]] = [[] for _ in wanted]
        for shard in np.unique(shards).tolist():
            path = self._where / f"{shard:05d}.examples"
            with open_bytes(path) as file:
                for place in np.flatnonzero(shards == shard).tolist():
                    number = int(numbers[place] - self._first[shard])
                    found[place] = examples_of(file, self._shards[shard], number, path)
        return found

    def texts(self, numbers: Iterable[int]) -> Iterator[str]:
        """Yields the checksum and size of each record's examples."""
        checksums = np.concatenate([shard.checksums for shard in self._shards])
        sizes = np.concatenate([np.diff(shard.starts) for shard in self._shards])
        return (f"{checksums[number]}/{sizes[number]}" for number in numbers)

    def pages(self) -> UInt32[np.ndarray, " records"] | None:
        """Returns a number for each record, equal for those of the same pages; or None."""
        pages = np.concatenate([shard.pages for shard in self._shards])
        return pages if len(pages) == self.count else None

    def shuffled(self, draws: np.random.Generator) -> Int[np.ndarray, " records"]:
        """Returns the records' numbers in random order, page by page if the task keeps pages."""
        return shuffled(self.count, self.pages(), draws)


class CachedSource(ExampleSource):
    """A folder of cached examples as a seqio source, with the splits that are complete.

    Args:
      folder: the folder.

    Raises:
      CacheError: the folder has no complete split.
    """

    def __init__(self, folder: epath.PathLike) -> None:
        self.folder = epath.Path(folder)
        inside = self.folder.iterdir() if self.folder.is_dir() else ()
        splits = sorted(path.name for path in inside if (path / DONE).exists())
        if not splits:
            raise CacheError(
                f"{folder}: there are no cached examples; launch/cache_task.py writes them"
            )
        super().__init__(splits=tuple(splits), caching_permitted=False)
        self._reader = functools.cache(functools.partial(CachedExamples, self.folder))

    def reader(self, split: str) -> CachedExamples:
        """Returns the reader of a split.

        Raises:
          CacheError: the split is damaged.
        """
        return self._reader(split)

    def refuse_other_lengths(self, split: str, lengths: Mapping[str, int]) -> None:
        """Refuses lengths for which the preprocessors would have computed other examples.

        Raises:
          CacheError: the examples depend on other lengths, or the split is damaged.
        """
        saved = described(self.folder / split)["lengths"]
        for name, length in lengths.items():
            if saved.get(name, length) != length:
                raise CacheError(
                    f"{self.folder}/{split}: was cached with {name} = {saved[name]}, but is read "
                    f"with {name} = {length}, which gives other examples: change LENGTH, or cache "
                    "it again in another folder"
                )

    def count(self, split: str) -> int:
        """Returns the number of records in a split."""
        return self.reader(split).count

    def pages(self, split: str) -> UInt32[np.ndarray, " records"] | None:
        """Returns a number for each record, equal for those of the same pages; or None."""
        return self.reader(split).pages()

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused: object,
    ) -> tf.data.Dataset:
        """Returns one pass over the examples of a split; arguments as in `NumberedSource.order`."""
        order = self.order(split, shuffle, seed, shard_info).tolist()

        def examples() -> Iterator[Features]:
            for start in range(0, len(order), _AT_ONCE):
                wanted = [(number, 0) for number in order[start : start + _AT_ONCE]]
                for found in self.reader(split).read(wanted):
                    yield from found

        first = next(examples(), {})
        spec = {
            name: tf.TensorSpec(
                [None] * np.ndim(value),
                tf.string if isinstance(value, bytes) else np.asarray(value).dtype,
            )
            for name, value in first.items()
        }
        return tf.data.Dataset.from_generator(examples, output_signature=spec)


def add_cached(name: str, folder: str | Path, vocabulary: Vocabulary | str | Path) -> str:
    """Registers a task that reads the examples written by `launch/cache_task.py`.

    Args:
      name: name of the task; an earlier task with this name is replaced.
      folder: the folder of the examples, on a disk or in a bucket.
      vocabulary: the vocabulary with which they were encoded, or its folder or file.

    Returns:
      `name`, for `MIXTURE_OR_TASK_NAME`.

    Raises:
      CacheError: there is no complete split, or the examples have another vocabulary.
    """
    source = CachedSource(folder)
    text = SeqioVocabulary(vocabulary)
    saved = described(source.folder / source.splits[0])
    for split in source.splits:
        of_split = described(source.folder / split)
        if of_split["vocabulary"] != describe(text):
            raise CacheError(
                f"{folder}/{split}: was encoded with another vocabulary, or cached before "
                "2026-11-28; cache it again"
            )
        if of_split["features"] != saved["features"]:
            raise CacheError(f"{folder}: the splits have different features, of different tasks")
    numbers = seqio.PassThroughVocabulary(size=0)
    features = {
        feature: seqio.Feature(
            text if kind["is_text"] else numbers,
            add_eos=False,
            dtype=tf.as_dtype(kind["dtype"]),
            rank=kind["rank"],
        )
        for feature, kind in saved["features"].items()
    }
    return register(name, source, [], vocabulary, features=features)

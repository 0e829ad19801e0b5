"""Sources of examples: JSON-lines files and the sample world, as seqio data sources.

Every example is `{"record": JSON text, "id": text, "seed": int64}`; preprocessors turn records into
tokens. `seed` is the seed of the epoch, which keys all random draws (`data_pipelines.randomness`).
Shuffling permutes the whole source by that seed, and hosts take every n-th example of it, so no
example depends on its position or host.
"""

import abc
import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
from jaxtyping import Int

from data_pipelines import citations
from data_pipelines.sample_world import texts
from data_pipelines.sample_world.convert import to_comparison, to_question, to_rated_answer
from data_pipelines.sample_world.names import Split
from data_pipelines.sample_world.world import World
from gophercite import records

EXAMPLE_TYPES = {"record": tf.string, "id": tf.string, "seed": tf.int64}
_ENDLESS = 100_000  # a world with more examples than this counts as endless: no run reads them all
_CHUNK = 32  # records per transfer from Python to tf.data, which costs more than making one


def shuffled(
    count: int, pages: Int[np.ndarray, " records"] | None, draws: np.random.Generator
) -> Int[np.ndarray, " records"]:
    """Returns the numbers of records in a random order.

    Args:
      count: number of records.
      pages: a number for each record. Records with the same number stay together, in a random order
        of their own. None keeps no records together.
      draws: the source of randomness.
    """
    order = draws.permutation(count)
    if pages is None:
        return order
    first = np.full(int(pages.max(initial=0)) + 1, count)
    np.minimum.at(first, pages[order], np.arange(count))
    return order[np.argsort(first[pages[order]], kind="stable")]


class NumberedSource(seqio.DataSource):
    """A source whose records are numbered."""

    @abc.abstractmethod
    def count(self, split: str) -> int:
        """Returns the number of records in a split."""

    def pages(self, split: str) -> Int[np.ndarray, " records"] | None:
        """Returns a number for each record, equal for those that stay together when shuffled."""
        return None

    def endless(self, split: str) -> bool:
        """Whether a split has more records than any run reads, so that a pass is meaningless."""
        return False

    def shuffled(self, split: str, draws: np.random.Generator) -> Int[np.ndarray, " records"]:
        """Returns the numbers of a split's records in a random order."""
        return shuffled(self.count(split), self.pages(split), draws)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """True: each host reads its own examples."""
        return True

    @property
    def performs_internal_shuffling(self) -> bool:
        """True: no shuffle buffer is needed after this source."""
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        """Returns the split itself as the only shard."""
        return [split]

    def num_input_examples(self, split: str) -> int:
        """Returns the number of records in a split."""
        return self.count(split)

    def order(
        self, split: str, shuffle: bool, seed: int | None, shard_info: seqio.ShardInfo | None
    ) -> Int[np.ndarray, " some"]:
        """Returns the numbers of the records of one pass over a split, in order.

        Args:
          split: one of `splits`.
          shuffle: whether the order is a permutation drawn from `seed`.
          seed: the epoch's seed; None counts as 0.
          shard_info: index and number of hosts.

        Raises:
          ValueError: there is no such split.
        """
        if split not in self.splits:
            raise ValueError(
                f"there is no split {split!r}; the splits are {', '.join(self.splits)}"
            )
        order = np.arange(self.count(split))
        if shuffle:
            order = self.shuffled(split, np.random.default_rng(seed or 0))
        return order if shard_info is None else order[shard_info.index :: shard_info.num_shards]


class RecordSource(NumberedSource):
    """A source that can return any of its records by number."""

    @abc.abstractmethod
    def record(self, split: str, index: int) -> tuple[str, str]:
        """Returns the id of record `index` of a split, and its JSON text."""

    def get_dataset(
        self,
        split: str = "train",
        shuffle: bool = True,
        seed: int | None = None,
        shard_info: seqio.ShardInfo | None = None,
        **unused: object,
    ) -> tf.data.Dataset:
        """Returns one pass over a split; arguments as in `order`."""
        order = self.order(split, shuffle, seed, shard_info)

        def chunks() -> Iterator[dict[str, object]]:
            for start in range(0, len(order), _CHUNK):
                indices = order[start : start + _CHUNK].tolist()
                names, lines = zip(*(self.record(split, index) for index in indices), strict=True)
                seeds = np.full(len(indices), seed or 0, np.int64)
                yield {"record": lines, "id": names, "seed": seeds}

        spec = {name: tf.TensorSpec([None], dtype) for name, dtype in EXAMPLE_TYPES.items()}
        return tf.data.Dataset.from_generator(chunks, output_signature=spec).unbatch()


class JsonLinesSource(RecordSource):
    """Validated records of JSON-lines files, with one or more files for each split.

    The files are read when a split is first used, and its records are held in memory. Bad lines
    are logged with file, line and field, counted, and skipped.

    Args:
      files: the file or files of each split, `.jsonl` or `.jsonl.gz`.
      kind: type of the records: `records.Document`, `records.Question`, `records.RatedAnswer` or
        `records.Comparison`.
      strict: whether the first bad line is an error.
      hits: whether rated answers and questions may name pages that are stored elsewhere.
      by_page: whether records of the same documents stay together when shuffled.
    """

    def __init__(
        self,
        files: Mapping[str, str | Path | Sequence[str | Path]],
        kind: type[Any],
        strict: bool = False,
        *,
        hits: bool = False,
        by_page: bool = False,
    ) -> None:
        super().__init__(splits=tuple(files), caching_permitted=False)
        self._files = {
            split: (paths,) if isinstance(paths, str | Path) else tuple(paths)
            for split, paths in files.items()
        }
        self._kind = kind
        self._strict = strict
        self._hits = hits
        self._by_page = by_page
        self._read = functools.cache(self._read_split)
        self._pages = functools.cache(self._pages_of)

    def count(self, split: str) -> int:
        """Returns the number of good records in a split."""
        return len(self._read(split)[0])

    def record(self, split: str, index: int) -> tuple[str, str]:
        """Returns the id and JSON text of a record.

        The id consists of the index of the file in the split, and the record's index among the good
        records of the file.
        """
        return self._read(split)[0][index]

    def pages(self, split: str) -> Int[np.ndarray, " records"] | None:
        """Returns a number for each record, equal for records of the same documents; or None."""
        return self._pages(split) if self._by_page else None

    def _pages_of(self, split: str) -> Int[np.ndarray, " records"]:
        documents = (json.loads(text)["documents"] for _, text in self._read(split)[0])
        known: dict[str, int] = {}
        return np.array([known.setdefault(json.dumps(each), len(known)) for each in documents])

    def report(self, split: str) -> records.Report:
        """Returns how many lines of a split were read and skipped, with named errors."""
        return self._read(split)[1]

    def _read_split(self, split: str) -> tuple[list[tuple[str, str]], records.Report]:
        report = records.Report()
        lines = []
        for number, path in enumerate(self._files[split]):
            found = records.read(path, self._kind, strict=self._strict, report=report)
            for place, record in enumerate(found):
                if not self._hits and (problem := _missing_text(record, path)):
                    if self._strict:
                        raise problem
                    report.read -= 1
                    report.skipped += 1
                    report.errors.append(problem)
                    continue
                text = json.dumps(records.to_json(record), ensure_ascii=False)
                lines.append((f"{number}:{place}", text))
        if report.skipped:
            logging.getLogger(__name__).warning("split %r: %s", split, report)
        if not lines:
            paths = ", ".join(str(path) for path in self._files[split])
            raise ValueError(f"split {split!r} has no good record in {paths}\n{report}")
        return lines, report


def _missing_text(record: records.Record, path: str | Path) -> records.RecordError | None:
    """The error for a record with a document without text, which no prompt can show; else None."""
    if isinstance(record, records.RatedAnswer):
        name = f"the answer to {record.question_id!r}"
    elif isinstance(record, records.Question):
        name = f"question {record.id!r}"
    else:
        return None
    for place, document in enumerate(record.documents):
        if isinstance(document, records.Hit):
            field = f"documents[{place}].text"
            return records.RecordError(f"{path}: {name} lacks field {field!r}")
    return None


def rated_answer_of(world: World, index: int) -> dict[str, object]:
    """Returns rated answer `index` of a world as JSON."""
    return records.to_json(to_rated_answer(world.rated_answer(index)))


def question_of(world: World, index: int) -> dict[str, object]:
    """Returns question `index` of a world as JSON."""
    return records.to_json(to_question(world.question(index)))


def comparison_of(world: World, index: int) -> dict[str, object]:
    """Returns comparison `index` of a world as JSON.

    Its pages need not fit into a prompt, so a question may have many of them: the more a wrong page
    has in common with the right one, the more can be learned from an answer that quotes it.
    """
    world = dataclasses.replace(world, max_documents=8, max_sentences=80)
    return records.to_json(to_comparison(world.comparison(index)))


def excerpts_of(world: World, index: int) -> dict[str, object]:
    """Returns pages of a world and excerpts from them as JSON."""
    return citations.to_json(texts.excerpts(world, index))


def cited_answers_of(world: World, index: int) -> dict[str, object]:
    """Returns pages of a world and questions with plainly cited answers as JSON."""
    return citations.to_json(texts.cited(world, index))


class SampleWorldSource(RecordSource):
    """Examples of the sample world, generated when they are needed.

    Args:
      make: builds the JSON object of an example from a world and a number.
      seed: seed of the world.
      examples: number of examples in a pass over each split. By default, a pass over the training
        split is so long that most runs see no example twice.
    """

    def __init__(
        self,
        make: Callable[[World, int], dict[str, object]],
        seed: int = 0,
        examples: Mapping[Split, int] | None = None,
    ) -> None:
        self._examples = examples or {"train": 1_000_000, "validation": 512, "test": 512}
        super().__init__(splits=tuple(self._examples), caching_permitted=False)
        self._make = make
        self._worlds = {split: World(seed=seed, split=split) for split in self._examples}

    def count(self, split: str) -> int:
        """Returns the number of examples in a pass."""
        return self._examples[split]  # type: ignore[index]

    def endless(self, split: str) -> bool:
        """Whether a pass over a split would take minutes."""
        return self.count(split) >= _ENDLESS

    def record(self, split: str, index: int) -> tuple[str, str]:
        """Returns the id and JSON text of example `index`."""
        example = self._make(self._worlds[split], index)  # type: ignore[index]
        return str(index), json.dumps(example, ensure_ascii=False)

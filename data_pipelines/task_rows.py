"""The rows of one task, each of which can be built without the rows before it."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import seqio
from etils import epath

from data_pipelines import packing
from data_pipelines.description import describe
from data_pipelines.example_reader import Features, reader_of
from data_pipelines.packing import PackingReport, Segment
from data_pipelines.randomness import epoch_seed
from data_pipelines.row_order import drawn_numbers, place_in_epoch
from data_pipelines.row_plan import PlannedRow, Ref, RowPlan, digest, plan_rows

GROUP = 16  # rows that are packed together if lengths are not known in advance
_COMPARED = 16  # records of a block that are built twice, to see whether lengths vary
_TRIED = 4096  # examples of an endless task to try before reporting that none can be used
_EXTRAS = 2  # typical number of examples that fill the remaining room in the rows of a plan
_ANY = -1  # stands for all of a record's examples
_SOME = 8  # examples to build at once if it is not known how many will fit
_HELD_TOKENS = 2**24  # for records that give several examples; 128 MiB


@dataclasses.dataclass(frozen=True)
class Packing:
    """How examples become rows.

    Attributes:
      length: tokens in a row.
      pack: whether several examples share a row.
      share_beginnings: whether examples that begin alike share their beginning.
      convert: converts a task's features to an example, which has `tokens`.
      usable: whether an example can be used; called for each example when it is built.
      settings: anything else on which `convert` and `usable` depend.
    """

    length: int
    pack: bool
    share_beginnings: bool
    convert: Callable[[Features], Any]
    usable: Callable[[Any], bool]
    settings: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Pass:
    """Which examples are read, and in what order.

    Attributes:
      split: a split of the task's source.
      lengths: the `sequence_length` of the preprocessors.
      seed: the run's seed.
      shuffle: whether each epoch has a different order.
      plan_folder: where plans are saved (`row_plan`); None saves none.
      process_index, process_count: the processes that share the work of planning.
    """

    split: str
    lengths: dict[str, int]
    seed: int
    shuffle: bool
    plan_folder: epath.PathLike | None
    process_index: int
    process_count: int


class NothingUsableError(Exception):
    """No example of a task passes its filters and fits into a row; `task` is its name."""

    def __init__(self, task: str) -> None:
        super().__init__(f"task {task!r} has no usable example")
        self.task = task


class TaskRows:
    """The rows of one task without end, in groups that can be built in any order.

    A finite split is planned (`row_plan`): each epoch has every usable example once, with the rows
    of the plan in an order of its own. If lengths vary from epoch to epoch, the rows of the plan
    are packed again, `GROUP` rows at a time. An example that does not fit is left to another epoch,
    and the remaining room is filled with examples drawn at random. For an endless source, all
    examples are drawn at random.
    """

    def __init__(self, task: seqio.Task, reading: Pass, rows: Packing) -> None:
        self.task = task
        self._reading = reading
        self._packing = rows
        self._reader = reader_of(task, reading.split, reading.lengths)
        self._pieces = _HeldPieces()
        # Typical number of records in a group of an endless task; one per row without packing.
        self._usual = 2 * GROUP if rows.pack else 1

    @functools.cached_property
    def endless(self) -> bool:
        """Whether the source has more records than any run reads."""
        return self._reader.endless

    @functools.cached_property
    def rows_together(self) -> int:
        """Number of rows that have to be packed together; 1 if all rows are known in advance."""
        unknown = self._packing.pack and (self.endless or self._plan.varies)
        return GROUP if unknown else 1

    def examples_per_row(self) -> float:
        """Approximate number of examples per row, the same on every host."""
        if not self._packing.pack:
            return 1.0
        if not self.endless:
            return len(self._plan.examples) / len(self._plan)
        rows = list(itertools.chain.from_iterable(self._drawn_rows(range(4), 0, GROUP)))
        return sum(map(len, itertools.chain.from_iterable(rows))) / len(rows)

    def groups(self, numbers: Sequence[int], rows: int) -> list[list[list[Segment]]]:
        """Returns several groups of a given number of rows, which are faster to read together.

        Args:
          numbers: numbers of the groups, from 0.
          rows: rows per group, a multiple of `rows_together`.

        Raises:
          NothingUsableError: no example of the task can be used.
        """
        if not numbers:
            return []
        if self.endless:
            return self._drawn_rows(numbers, self._reading.seed, rows)
        together = self.rows_together
        units = [
            number * rows // together + unit
            for number in numbers
            for unit in range(rows // together)
        ]
        planned = [self._planned(unit, together) for unit in units]
        examples = self._examples(
            [(epoch, ref) for wanted in planned for epoch, ref in _refs(wanted)]
        )
        fillers = self._drawn(units, self._reading.seed, at_first=_EXTRAS)
        found = [
            self._packed(wanted, examples, fillers[unit])
            for unit, wanted in zip(units, planned, strict=True)
        ]
        flat = [row for unit in found for row in unit]
        return [flat[start : start + rows] for start in range(0, len(flat), rows)]

    # --- Planned rows ---

    def _planned(self, unit: int, together: int) -> list[tuple[int, PlannedRow]]:
        """The rows of the plan that are packed together, each with its epoch."""
        reading, count = self._reading, len(self._plan)
        found = []
        for number in range(unit * together, (unit + 1) * together):
            epoch, place = place_in_epoch(
                reading.seed, self.task.name, number, count, reading.shuffle
            )
            found.append((epoch, self._plan.row(place)))
        return found

    def _packed(
        self,
        planned: list[tuple[int, PlannedRow]],
        made: dict[tuple[int, Ref], Any],
        others: Iterator[Any],
    ) -> list[list[Segment]]:
        examples = [each for row in planned for each in _refs([row])]
        usable = [made[each] for each in examples if each in made]
        how = self._packing
        if not self._plan.varies and len(usable) == len(examples):
            rows: list[list[Segment]] = [
                [[made[epoch, ref] for ref in segment] for segment in row] for epoch, row in planned
            ]
            fits = all(packing.used_tokens(row) <= how.length for row in rows)
            if fits or not how.pack:
                return rows
        return packing.fill(
            usable, others, len(planned), how.length,
            pack=how.pack, share_beginnings=how.share_beginnings,
        )  # fmt: skip

    def _examples(self, wanted: Sequence[tuple[int, Ref]]) -> dict[tuple[int, Ref], Any]:
        """The usable examples, by epoch and `Ref`."""
        records = list(dict.fromkeys((epoch, ref.record) for epoch, ref in wanted))
        parts = {each: held for each in records if (held := self._pieces.get(each)) is not None}
        missing = [each for each in records if each not in parts]
        of_records = self._reader.read(
            [(record, self._epoch_seed(epoch)) for epoch, record in missing]
        )
        for each, examples in zip(missing, of_records, strict=True):
            parts[each] = list(map(self._packing.convert, examples))
            self._pieces.hold(each, parts[each])
        return {
            (epoch, ref): example
            for epoch, ref in wanted
            if ref.part < len(parts[epoch, ref.record])
            and self._packing.usable(example := parts[epoch, ref.record][ref.part])
        }

    def _epoch_seed(self, epoch: int) -> int:
        return epoch_seed(self._reading.seed, self.task.name, epoch)

    # --- Examples drawn at random ---

    def _drawn_rows(self, groups: Sequence[int], seed: int, rows: int) -> list[list[list[Segment]]]:
        how = self._packing
        at_first = self._usual
        drawn = self._drawn(groups, seed, at_first)
        before = self._reader.made
        made = [
            packing.fill(
                [], drawn[group], rows, how.length,
                pack=how.pack, share_beginnings=how.share_beginnings,
            )
            for group in groups
        ]  # fmt: skip
        # The number of examples built at once does not affect the rows, only the time they take.
        late = self._reader.made - before - at_first * len(groups)
        least = _SOME if how.pack else rows
        self._usual = max(at_first + (late // (2 * len(groups)) if late > 0 else -1), least)
        return made

    def _drawn(self, groups: Sequence[int], seed: int, at_first: int) -> dict[int, Iterator[Any]]:
        """For each group, endless examples drawn from all usable ones, with draws of its own.

        Args:
          groups: numbers of the groups.
          seed: the run's seed.
          at_first: number of records of each group to build at once.
        """
        name = f"groups of {self.task.name}"
        own = {group: epoch_seed(seed, name, group) for group in groups}
        numbers = {group: self._candidates(name, group, seed) for group in groups}
        known: dict[int, list[Any]] | None = None

        def usable(group: int, refs: list[Ref], read: list[list[Features]]) -> Iterator[Any]:
            for ref, examples in zip(refs, read, strict=True):
                for part, features in enumerate(examples):
                    if ref.part in (_ANY, part):
                        example = self._packing.convert(features)
                        if self._packing.usable(example):
                            yield example

        def first() -> dict[int, list[Any]]:
            some = {group: list(itertools.islice(numbers[group], at_first)) for group in groups}
            wanted = [(ref.record, own[group]) for group, refs in some.items() for ref in refs]
            read = iter(self._reader.read(wanted))
            return {
                group: list(usable(group, refs, list(itertools.islice(read, len(refs)))))
                for group, refs in some.items()
            }

        def stream(group: int) -> Iterator[Any]:
            nonlocal known
            if known is None:
                known = first()
            yield from known[group]
            unused = 0
            while unused < _TRIED:
                refs = list(itertools.islice(numbers[group], _SOME))
                unused += len(refs)
                read = self._reader.read([(ref.record, own[group]) for ref in refs])
                for example in usable(group, refs, read):
                    unused = 0
                    yield example
            raise NothingUsableError(self.task.name)

        return {group: stream(group) for group in groups}

    def _candidates(self, name: str, group: int, seed: int) -> Iterator[Ref]:
        """Records, or examples of the plan, drawn at random for a group."""
        if not self.endless:
            examples = self._plan.examples
            for number in drawn_numbers(seed, name, group, len(examples)):
                yield Ref(*examples[number].tolist())
        count = self._reader.count
        numbers: Iterator[int] = drawn_numbers(seed, name, group, count)
        if not self._reading.shuffle:
            numbers = (number % count for number in itertools.count(group * _TRIED))
        for number in numbers:
            yield Ref(number, _ANY)

    # --- The plan ---

    @functools.cached_property
    def _plan(self) -> RowPlan:
        reading = self._reading
        order = np.arange(self._reader.count)
        if reading.shuffle:
            # Independent of the run's seed, so that runs with different seeds share a plan.
            order = self._reader.shuffled(np.random.default_rng(0))
        folder = reading.plan_folder
        key = "" if folder is None else self._key(order)
        plan = plan_rows(
            order, self._measure, folder, key, reading.process_index, reading.process_count
        )
        if not len(plan):
            raise NothingUsableError(self.task.name)
        return plan

    def _measure(self, records: np.ndarray) -> RowPlan:
        """Packs a block of records, using their examples in the first epoch of seed 0."""
        seeds = [epoch_seed(0, self.task.name, epoch) for epoch in range(2)]
        numbers = records.tolist()
        refs: dict[int, Ref] = {}
        sizes: list[list[int]] = []

        def usable() -> Iterator[Any]:
            for start in range(0, len(numbers), 4 * _SOME):
                some = numbers[start : start + 4 * _SOME]
                found = self._reader.read([(number, seeds[0]) for number in some])
                for number, examples in zip(some, found, strict=True):
                    converted = list(map(self._packing.convert, examples))
                    sizes.append([len(example.tokens) for example in converted])
                    for part, example in enumerate(converted):
                        if self._packing.usable(example):
                            refs[id(example)] = Ref(number, part)
                            yield example

        how = self._packing
        rows = [
            [[refs.pop(id(example)) for example in segment] for segment in row]
            for row in packing.group(
                usable(), how.length, PackingReport(),
                pack=how.pack, share_beginnings=how.share_beginnings,
            )
        ]  # fmt: skip
        again = self._reader.read([(number, seeds[1]) for number in numbers[:_COMPARED]])
        compared = [
            [len(self._packing.convert(features).tokens) for features in examples]
            for examples in again
        ]
        return RowPlan.of(rows, varies=compared != sizes[:_COMPARED])

    def _key(self, order: np.ndarray) -> str:
        """A digest of all that the plan depends on: records, preprocessors, vocabulary, packing."""
        reading, how = self._reading, self._packing
        settings = (
            reading.split, reading.lengths, how.length, how.pack, how.share_beginnings,
            describe(how.convert), describe(how.usable), describe(how.settings),
        )  # fmt: skip
        of_task = (
            self.task.name, repr(settings), *map(describe, self.task.preprocessors),
            *(describe(feature.vocabulary) for feature in self.task.output_features.values()),
        )  # fmt: skip
        return digest(itertools.chain(of_task, self._reader.texts(order.tolist())))


class _HeldPieces:
    """A cache for records that give several examples (long documents), of which a row needs one.

    It holds only the examples of the latest epoch.
    """

    def __init__(self) -> None:
        self._held: collections.OrderedDict[tuple[int, int], list[Any]] = collections.OrderedDict()
        self._tokens = 0

    def get(self, record: tuple[int, int]) -> list[Any] | None:
        """The examples of a record in an epoch; None if they are not held."""
        return self._held.get(record)

    def hold(self, record: tuple[int, int], examples: list[Any]) -> None:
        """Holds examples, and drops the oldest if there are too many."""
        if len(examples) < 2:
            return
        self._held[record] = examples
        self._tokens += _tokens(examples)
        while self._tokens > _HELD_TOKENS and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            self._tokens -= _tokens(oldest)


def _tokens(examples: list[Any]) -> int:
    return sum(len(example.tokens) for example in examples)


def _refs(planned: list[tuple[int, PlannedRow]]) -> Iterator[tuple[int, Ref]]:
    for epoch, row in planned:
        for segment in row:
            for ref in segment:
                yield epoch, ref

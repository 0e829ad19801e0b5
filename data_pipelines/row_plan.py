"""Which examples of a split share a row, computed in one pass over the split and saved in files.

What a filter drops, and how long an example is, is known only once the example has been built. So a
task's examples are built once, in blocks of records, and each block is packed separately. The plan
that is saved says which examples are in each row. After that, any row can be built without the
rows before it.

Each block has its own file, which is either complete or absent. So several processes can share the
pass, and an interrupted pass can be resumed. The file's name depends on everything that the rows
depend on, including the records.
"""

import dataclasses
import hashlib
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from jaxtyping import Int

from gophercite.storage.paths import naming_storage, write_file

BLOCK = 1024  # records
_log = logging.getLogger(__name__)


class Ref(NamedTuple):
    """An example: the number of its record, and its index among the record's examples."""

    record: int
    part: int


PlannedRow = list[list[Ref]]  # segments of examples


@dataclasses.dataclass(frozen=True, eq=False)
class RowPlan:
    """The rows of one pass over a split.

    Attributes:
      examples: record and index of each, in the order of the rows.
      segment_ends: for each segment, the number of examples up to its end.
      row_ends: for each row, the number of segments up to its end.
      varies: whether lengths change with each epoch's random draws; the plan uses one epoch's.
    """

    examples: Int[np.ndarray, "examples 2"]
    segment_ends: Int[np.ndarray, " segments"]
    row_ends: Int[np.ndarray, " rows"]
    varies: bool

    @classmethod
    def of(cls, rows: Sequence[PlannedRow], varies: bool) -> "RowPlan":
        """Returns the plan that has these rows."""
        segments = [segment for row in rows for segment in row]
        examples = [ref for segment in segments for ref in segment]
        return cls(
            np.asarray(examples, np.int64).reshape(-1, 2),
            np.cumsum([len(segment) for segment in segments], dtype=np.int64),
            np.cumsum([len(row) for row in rows], dtype=np.int64),
            varies,
        )

    @classmethod
    def joined(cls, plans: Sequence["RowPlan"]) -> "RowPlan":
        """Returns a plan with the rows of several plans, one after the other."""

        def ends(name: str) -> np.ndarray:
            before, found = 0, [np.zeros(0, np.int64)]
            for plan in plans:
                values = getattr(plan, name)
                found.append(values + before)
                before += int(values[-1]) if len(values) else 0
            return np.concatenate(found)

        examples = [np.zeros((0, 2), np.int64), *(plan.examples for plan in plans)]
        varies = any(plan.varies for plan in plans)
        return cls(np.concatenate(examples), ends("segment_ends"), ends("row_ends"), varies)

    def __len__(self) -> int:
        return len(self.row_ends)

    def row(self, number: int) -> PlannedRow:
        """Returns the segments of a row."""
        first = int(self.row_ends[number - 1]) if number else 0
        segments = []
        for segment in range(first, int(self.row_ends[number])):
            start = int(self.segment_ends[segment - 1]) if segment else 0
            found = self.examples[start : int(self.segment_ends[segment])].tolist()
            segments.append([Ref(*ref) for ref in found])
        return segments

    def to_bytes(self) -> bytes:
        """Returns the plan as the content of a file."""
        file = io.BytesIO()
        np.savez_compressed(file, **dataclasses.asdict(self))
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, records: Int[np.ndarray, " records"]) -> "RowPlan":
        """The inverse of `to_bytes`.

        Args:
          content: the result of `to_bytes`, possibly damaged or replaced.
          records: the record numbers that the plan may contain.

        Raises:
          ValueError: the content is not a valid plan.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                names = [field.name for field in dataclasses.fields(cls)]
                values = {name: file[name] for name in names}
        except Exception as error:  # zipfile, zlib and numpy have many kinds of errors for this
            raise ValueError(f"is not a plan of rows: {error}") from None
        plan = cls(**{**values, "varies": bool(values["varies"].any())})
        plan._check(records)
        return plan

    def _check(self, records: Int[np.ndarray, " records"]) -> None:
        """Refuses examples of other records, and rows that don't partition the examples."""
        parts = (self.examples, 2), (self.segment_ends, 1), (self.row_ends, 1)
        if any(part.dtype != np.int64 or part.ndim != ndim for part, ndim in parts):
            raise ValueError("is not a plan of rows: its lists do not hold 64-bit integers")
        if self.examples.shape[1] != 2 or (self.examples < 0).any():
            raise ValueError(
                "is not a plan of rows: an example must be a record's number and a part's number"
            )
        if not np.isin(self.examples[:, 0], records).all():
            raise ValueError("is not a plan of rows: it names a record that the block doesn't have")
        divided = len(self.examples)
        for name in ("segment_ends", "row_ends"):
            ends = getattr(self, name)
            if (np.diff(ends, prepend=0) < 1).any() or (ends[-1] if len(ends) else 0) != divided:
                raise ValueError(f"is not a plan of rows: {name} don't divide {divided}")
            divided = len(ends)


def plan_rows(
    order: Int[np.ndarray, " records"],
    measure: Callable[[Int[np.ndarray, " some"]], RowPlan],
    folder: epath.PathLike | None,
    key: str,
    process_index: int = 0,
    process_count: int = 1,
) -> RowPlan:
    """Returns the plan of a split, from its files or by a pass over the records.

    Args:
      order: the records' numbers, in the order in which they are packed.
      measure: packs a block of records.
      folder: where blocks are saved, on a disk or in a bucket; None saves nothing.
      key: identifies everything that the plan depends on, with characters allowed in file names.
      process_index, process_count: the processes that share the pass. Each begins with a different
        block, and reads the blocks that others have finished from the folder.

    Raises:
      StorageError: the bucket can't be used.
    """
    starts = range(0, len(order), BLOCK)
    first = process_index * len(starts) // process_count
    found: dict[int, RowPlan] = {}
    warned = False
    for number in (*range(first, len(starts)), *range(first)):
        path = None if folder is None else epath.Path(folder) / f"rows-{key}" / f"{number:06d}.npz"
        block = order[starts[number] : starts[number] + BLOCK]
        plan = None if path is None else _read(path, block)
        if plan is None:
            if not warned and len(starts) > 1:
                _log.info(
                    "measuring %d records, once, to decide which of them share a row", len(order)
                )
                warned = True
            plan = measure(block)
            if path is not None:
                _write(path, plan.to_bytes())
        found[number] = plan
    return RowPlan.joined([found[number] for number in range(len(starts))])


def digest(parts: Iterator[str]) -> str:
    """Returns a name for a sequence of texts, equal for the same texts in the same order."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:".encode())
        found.update(part.encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:32]


def _read(path: epath.Path, records: Int[np.ndarray, " records"]) -> RowPlan | None:
    """The plan in a file; None if the file is missing or can't be read."""
    with naming_storage(path):
        if not path.exists():
            return None
        content = b"" if path.is_dir() else path.read_bytes()
    try:
        return RowPlan.from_bytes(content, records)
    except ValueError as error:
        _log.warning("%s: %s; building it again", path, error)
        return None


def _write(path: epath.Path, content: bytes) -> None:
    """Writes a complete file; several processes may write the same content at once.

    If the folder is not writable, this run continues, but the next start needs another pass.
    """
    try:
        write_file(path, content)
    except OSError as error:
        _log.warning("%s can't be written, so the next start will build it again: %s", path, error)

"""Packs examples of any length into rows of one length, several per row, without cutting any.

A row contains whole examples as segments 1, 2, …, each with positions from 0. Attention stays
inside a segment, so an example trains the same wherever it is placed. An example longer than a row
is dropped and counted: cutting it would train a model to break off its quote.

Examples that begin alike, such as questions about one page, can share a segment. Their common
beginning is then read once, as branch 0. Each example continues from there in its own branch, which
sees only branch 0 and itself (`models.attention.Branched`). Losses and gradients are the same as
with separate segments.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Int32

Row = dict[str, np.ndarray]

BATCH_FEATURES = {
    "tokens": np.dtype(np.int32),
    "targets": np.dtype(np.int32),
    "weights": np.dtype(np.float32),
    "positions": np.dtype(np.int32),
    "segments": np.dtype(np.int32),
}
BRANCHES = "branches"  # an additional feature of rows whose segments may branch
# Shorter beginnings are not worth a branch.
_LEAST_SHARED = 16


@dataclass(frozen=True, eq=False)
class Example:
    """Tokens, and the weight of predicting each of them in the loss.

    The weight of the first token is not used, because there is no token before it to predict it.
    """

    tokens: Int32[np.ndarray, " tokens"]
    weights: Float32[np.ndarray, " tokens"]


Segment = Sequence[Example]  # one example, or several that begin alike


@dataclass
class PackingReport:
    """Counts of what packing did.

    Attributes:
      packed: number of examples that were placed.
      dropped: number of examples that are longer than a row.
      longest_dropped: number of tokens in the longest of these.
      empty: number of examples without tokens, which are also dropped.
      tokens: number of tokens in the placed examples; tokens that examples share count once.
      rows: number of rows that they fill.
    """

    packed: int = 0
    dropped: int = 0
    longest_dropped: int = 0
    empty: int = 0
    tokens: int = 0
    rows: int = 0

    def drop(self, tokens: int) -> None:
        """Counts an example that is longer than a row."""
        self.dropped += 1
        self.longest_dropped = max(self.longest_dropped, tokens)


@dataclass(eq=False)
class _OpenRow:
    segments: list[list[Example]] = field(default_factory=list)
    used: int = 0

    def add(self, example: Example) -> None:
        self.segments.append([example])
        self.used += len(example.tokens)

    def join(self, example: Example, length: int) -> bool:
        """Adds an example to the last segment, if they begin alike and the row has room."""
        together = [*self.segments[-1], example]
        shared = shared_beginning(together)
        used = self.used + _size(together) - _size(self.segments[-1])
        if shared < _LEAST_SHARED or used > length:
            return False
        self.segments[-1].append(example)
        self.used = used
        return True


def shared_beginning(segment: Segment) -> int:
    """Counts the tokens that examples share at their beginning.

    Only tokens without weight can be shared. At least one such token is left in each branch,
    because nothing predicts the first token of a branch.

    Args:
      segment: the examples; for a single one, all of it is shared.
    """
    first, *others = segment
    if not others:
        return len(first.tokens)
    shared = min(_unweighted(example) - 1 for example in segment)
    for other in others:
        differ = np.flatnonzero(first.tokens[:shared] != other.tokens[:shared])
        shared = int(differ[0]) if len(differ) else shared
    return max(shared, 0)


def _unweighted(example: Example) -> int:
    """Number of tokens before the first one with a weight; the first token never has one."""
    weighted = np.flatnonzero(example.weights[1:])
    return int(weighted[0]) + 1 if len(weighted) else len(example.tokens)


def used_tokens(row: Iterable[Segment]) -> int:
    """Counts the tokens of a row; tokens that several examples share count once."""
    return sum(map(_size, row))


def _size(segment: Segment) -> int:
    shared = shared_beginning(segment)
    return shared + sum(len(example.tokens) - shared for example in segment)


def group(
    examples: Iterable[Example],
    length: int,
    report: PackingReport,
    *,
    pack: bool = True,
    share_beginnings: bool = False,
    open_rows: int = 16,
) -> Iterator[list[Segment]]:
    """Yields the segments of one row after another.

    This is best-fit packing: an example goes to the open row with the least remaining room that
    still fits it. If no row has room and there are already `open_rows` of them, the fullest row is
    closed. The result depends only on the examples and their order.

    Args:
      examples: the examples in order.
      length: tokens in a row.
      report: counts what was placed and dropped.
      pack: False puts each segment into a separate row.
      share_beginnings: whether an example that begins like the previous one shares its segment.
      open_rows: maximum number of rows that are open at a time.
    """
    waiting: list[_OpenRow] = []
    newest: _OpenRow | None = None  # the row whose last segment is the previous example's
    for example in examples:
        size = len(example.tokens)
        if size > length:
            report.drop(size)
            continue
        if not size:
            report.empty += 1
            continue
        report.packed += 1
        if share_beginnings and newest is not None:
            before = newest.used
            if newest.join(example, length):
                report.tokens += newest.used - before
                continue
        report.tokens += size
        fitting = [row for row in waiting if row.used + size <= length] if pack else []
        if fitting:
            newest = max(fitting, key=lambda row: row.used)
            newest.add(example)
            continue
        if len(waiting) == (open_rows if pack else 1):
            fullest = max(waiting, key=lambda row: row.used)
            waiting.remove(fullest)
            report.rows += 1
            yield list(fullest.segments)
        newest = _OpenRow()
        newest.add(example)
        waiting.append(newest)
    for row in waiting:
        report.rows += 1
        yield list(row.segments)


def fill(
    planned: Iterable[Example],
    others: Iterator[Example],
    rows: int,
    length: int,
    *,
    pack: bool = True,
    share_beginnings: bool = False,
) -> list[list[Segment]]:
    """Returns the segments of a given number of rows, each with at least one example.

    It packs by best fit, as in `group`, but adds no rows. Planned examples that fit nowhere are
    left out. Then other examples are added, until the number of those that fit nowhere exceeds a
    quarter of the rows. (A higher limit fills rows a little better, but skips long examples.)

    Args:
      planned: examples that are meant for these rows, in order; each fits into a row.
      others: endless examples that fill the remaining room; each fits into a row.
      rows: number of rows.
      length: tokens in a row.
      pack: False puts each example into a separate row.
      share_beginnings: as in `group`.
    """
    open_rows: list[_OpenRow] = []
    newest: _OpenRow | None = None

    def placed(example: Example) -> bool:
        nonlocal newest
        size = len(example.tokens)
        if share_beginnings and newest is not None and newest.join(example, length):
            return True
        fitting = [row for row in open_rows if row.used + size <= length] if pack else []
        if fitting:
            newest = max(fitting, key=lambda row: row.used)
        elif len(open_rows) < rows:
            newest = _OpenRow()
            open_rows.append(newest)
        else:
            return False
        newest.add(example)
        return True

    for example in planned:
        placed(example)
    patience = rows // 4
    while patience >= 0 and (pack or len(open_rows) < rows):
        patience -= not placed(next(others))
    return [list(row.segments) for row in open_rows]


def row_features(branches: bool) -> dict[str, np.dtype]:
    """Returns the features of a row: `branches` is among them if segments may branch."""
    return BATCH_FEATURES | ({BRANCHES: np.dtype(np.int32)} if branches else {})


def build_row(segments: Iterable[Segment], length: int, *, branches: bool = False) -> Row:
    """Returns a row: `tokens`, `targets`, `weights`, `positions` and `segments`, each [length].

    `targets[t]` is the token after `tokens[t]` in the same branch, 0 if there is none, and
    `weights[t]` is the weight of predicting it.

    Args:
      segments: each with one example, or several that begin alike.
      length: tokens in the row.
      branches: add the feature `branches`, which is 0 for the shared beginning of a segment's
        examples, and 1, 2, … for their continuations. If False, a segment must have one example.
    """
    row = {name: np.zeros(length, dtype) for name, dtype in row_features(branches).items()}
    start = 0

    def add(example: Example, segment: int, branch: int, part: slice) -> None:
        nonlocal start
        tokens, weights = example.tokens[part], example.weights[part]
        end = start + len(tokens)
        row["tokens"][start:end] = tokens
        row["targets"][start : end - 1] = tokens[1:]
        row["weights"][start : end - 1] = weights[1:]
        row["positions"][start:end] = np.arange(len(example.tokens))[part]
        row["segments"][start:end] = segment
        if branches:
            row[BRANCHES][start:end] = branch
        start = end

    for number, segment in enumerate(segments, start=1):
        shared = shared_beginning(segment)
        add(segment[0], number, 0, slice(0, shared))
        if len(segment) > 1:
            for branch, example in enumerate(segment, start=1):
                add(example, number, branch, slice(shared, None))
    return row


def stack_rows(rows: Iterable[Row], length: int, *, branches: bool = False) -> Row:
    """Returns rows as a batch, each feature [rows, length]; there may be none."""
    listed = list(rows)
    return {
        name: np.stack([row[name] for row in listed]) if listed else np.zeros((0, length), dtype)
        for name, dtype in row_features(branches).items()
    }

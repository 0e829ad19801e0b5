"""Packing examples of any length into rows of one length, several to a row, none cut.

A row holds whole examples as segments: 1, 2, … with positions that restart at 0; attention stays
inside a segment, so an example is trained the same wherever it lands. An example longer than a row
is dropped and counted: cutting it would train a model to break off its quote.
"""

from collections.abc import Iterable, Iterator
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


@dataclass(frozen=True, eq=False)
class Example:
    """Tokens, and the weight that the loss gives to predicting each of them.

    The first token has nothing before it that could predict it; its weight is not used.
    """

    tokens: Int32[np.ndarray, "tokens"]
    weights: Float32[np.ndarray, "tokens"]


@dataclass
class PackingReport:
    """What packing did: how many examples it placed, and which it dropped for their length."""

    packed: int = 0
    dropped: int = 0
    longest_dropped: int = 0
    tokens: int = 0
    rows: int = 0

    def drop(self, tokens: int) -> None:
        """Counts an example that is longer than a row."""
        self.dropped += 1
        self.longest_dropped = max(self.longest_dropped, tokens)


@dataclass(eq=False)
class _OpenRow:
    examples: list[Example] = field(default_factory=list)
    used: int = 0

    def add(self, example: Example) -> None:
        self.examples.append(example)
        self.used += len(example.tokens)


def group(
    examples: Iterable[Example],
    length: int,
    report: PackingReport,
    *,
    pack: bool = True,
    open_rows: int = 16,
) -> Iterator[list[Example]]:
    """Yields the examples of one row after the other.

    Best fit: an example goes to the open row that it leaves fullest; when none has room and
    `open_rows` are open already, the fullest is closed. The result depends on the order of the
    examples and on nothing else.

    Args:
      examples: in order.
      length: tokens in a row.
      report: is told what was placed and dropped.
      pack: False gives each example a row of its own.
      open_rows: how many rows wait for examples that fit.
    """
    waiting: list[_OpenRow] = []
    for example in examples:
        size = len(example.tokens)
        if size > length:
            report.drop(size)
            continue
        report.packed += 1
        report.tokens += size
        fitting = [row for row in waiting if row.used + size <= length] if pack else []
        if fitting:
            max(fitting, key=lambda row: row.used).add(example)
            continue
        if len(waiting) == (open_rows if pack else 1):
            fullest = max(waiting, key=lambda row: row.used)
            waiting.remove(fullest)
            report.rows += 1
            yield fullest.examples
        waiting.append(_OpenRow())
        waiting[-1].add(example)
    for row in waiting:
        report.rows += 1
        yield row.examples


def build_row(examples: Iterable[Example], length: int) -> Row:
    """Returns a row: `tokens`, `targets`, `weights`, `positions` and `segments`, each [length].

    `targets[t]` is the token after `tokens[t]` in the same segment, 0 where there is none, and
    `weights[t]` is the weight of predicting it.
    """
    row = {name: np.zeros(length, dtype) for name, dtype in BATCH_FEATURES.items()}
    start = 0
    for segment, example in enumerate(examples, start=1):
        end = start + len(example.tokens)
        row["tokens"][start:end] = example.tokens
        row["targets"][start : end - 1] = example.tokens[1:]
        row["weights"][start : end - 1] = example.weights[1:]
        row["positions"][start:end] = np.arange(end - start)
        row["segments"][start:end] = segment
        start = end
    return row


def stack_rows(rows: Iterable[Row], length: int) -> Row:
    """Returns rows as a batch, each feature [rows, length]; there may be none."""
    listed = list(rows)
    return {
        name: np.stack([row[name] for row in listed]) if listed else np.zeros((0, length), dtype)
        for name, dtype in BATCH_FEATURES.items()
    }

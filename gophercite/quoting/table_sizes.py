"""How large the tables of a batch of prompts are, so that one program serves nearly all batches.

A program is compiled for the tables' shapes, and no two batches have graphs of one size. So tables
are filled up: to sizes that a run fixes at its beginning, or to powers of two.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_DEVIATIONS = 5  # of a batch's size, by which it exceeds the usual one hardly ever
_STEPS = 8  # sizes between a power of two and the next


class TableSizes(NamedTuple):
    """Nodes and edges, of one prompt's graph or of the tables of a batch."""

    nodes: int = 0
    edges: int = 0

    def holding(self, nodes: int, edges: int) -> "TableSizes":
        """These sizes, but a power of two for what they don't hold."""
        least = TableSizes(max(nodes, LEAST.nodes), max(edges, LEAST.edges))
        return TableSizes(*map(_held, self, least))


# Tables of all batches have so many at least, about a mebibyte in all: short pages, which differ in
# size by more than long ones, would have a program for each power of two else.
LEAST = TableSizes(4096, 32768)


def usual_sizes(graphs: Sequence[TableSizes], prompts: int) -> TableSizes:
    """Sizes that hold the tables of nearly every batch.

    Args:
      graphs: of some prompts like those to come; a few dozen tell enough.
      prompts: of a batch.

    Returns:
      What so many such prompts have on average and five standard deviations more, rounded up;
      nothing where no prompt is given.
    """
    if not graphs:
        return TableSizes()
    means, deviations = np.mean(graphs, axis=0), np.std(graphs, axis=0)
    usual = means * prompts + _DEVIATIONS * deviations * math.sqrt(prompts)
    return TableSizes(*(_rounded(max(math.ceil(n), m)) for n, m in zip(usual, LEAST, strict=True)))


def filled_up(parts: Sequence[np.ndarray], size: int, value: int) -> np.ndarray:
    """Returns arrays one after the other, and a value behind them up to `size` entries."""
    whole = np.full((size, *parts[0].shape[1:]), value, parts[0].dtype)
    np.concatenate(parts, out=whole[: sum(map(len, parts))])
    return whole


def _held(size: int, least: int) -> int:
    return size if 0 < size >= least else 1 << (least - 1).bit_length()


def _rounded(size: int) -> int:
    step = 1 << max(0, size.bit_length() - _STEPS.bit_length())
    return -(-size // step) * step

"""The sizes of a batch's tables, chosen so that one compiled program serves nearly all batches.

A program is compiled for the shapes of its tables, but no two batches have graphs of the same size.
So tables are padded, either to sizes that a run fixes at its beginning or to powers of two.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_DEVIATIONS = 5  # standard deviations above the mean that a batch's size hardly ever exceeds
_STEPS = 8  # number of sizes from one power of two to the next


class TableSizes(NamedTuple):
    """Numbers of nodes and edges, of one prompt's graph or of a batch's tables."""

    nodes: int = 0
    edges: int = 0

    def holding(self, nodes: int, edges: int) -> "TableSizes":
        """These sizes, each raised to a power of two if it is too small."""
        least = TableSizes(max(nodes, LEAST.nodes), max(edges, LEAST.edges))
        return TableSizes(*map(_held, self, least))


# Minimum sizes of all tables, about a mebibyte in all. Without them, short pages, whose sizes vary
# more than those of long ones, would need a program for each power of two.
LEAST = TableSizes(4096, 32768)


def usual_sizes(graphs: Sequence[TableSizes], prompts: int) -> TableSizes:
    """Sizes that hold the tables of nearly every batch.

    Args:
      graphs: sizes of the graphs of some typical prompts; a few dozen are enough.
      prompts: number of prompts per batch.

    Returns:
      The mean size for that many prompts plus five standard deviations, rounded up; zeros if
      `graphs` is empty.
    """
    if not graphs:
        return TableSizes()
    means, deviations = np.mean(graphs, axis=0), np.std(graphs, axis=0)
    usual = means * prompts + _DEVIATIONS * deviations * math.sqrt(prompts)
    return TableSizes(*(_rounded(max(math.ceil(n), m)) for n, m in zip(usual, LEAST, strict=True)))


def filled_up(parts: Sequence[np.ndarray], size: int, value: int) -> np.ndarray:
    """Returns the concatenated arrays, padded with `value` to `size` entries."""
    whole = np.full((size, *parts[0].shape[1:]), value, parts[0].dtype)
    np.concatenate(parts, out=whole[: sum(map(len, parts))])
    return whole


def _held(size: int, least: int) -> int:
    return size if 0 < size >= least else 1 << (least - 1).bit_length()


def _rounded(size: int) -> int:
    step = 1 << max(0, size.bit_length() - _STEPS.bit_length())
    return -(-size // step) * step

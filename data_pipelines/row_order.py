"""Which row of which task stands where in a run: pure functions of the seed and of a row's number.

Nothing here reads data. Steps are counted in periods: in each, a row of the batch takes the rows of
one group of one task, one a step. So a host that has some rows of each batch needs only the groups
of those, and whoever starts at step n needs only the groups of n's period.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from data_pipelines.randomness import draws, epoch_seed

_PARTS = 2**40  # into which shares are cut, so that counting is exact


def interleave(rates: Sequence[float], slot: int) -> tuple[int, int]:
    """Returns which of several sequences has a slot, and the how-manieth it is of that one's.

    Each sequence has its share of every run of slots, as evenly as whole numbers allow.

    Args:
      rates: of the sequences, above 0.
      slot: from 0.
    """
    left = float(sum(rates))
    for number, rate in enumerate(rates[:-1]):
        share = min(round(rate / left * _PARTS), _PARTS)
        before, after = slot * share // _PARTS, (slot + 1) * share // _PARTS
        if after > before:
            return number, before
        slot -= before
        left -= rate
    return len(rates) - 1, slot


def place_in_epoch(seed: int, task: str, number: int, count: int, shuffle: bool) -> tuple[int, int]:
    """Returns the epoch of something that comes `number`-th, and its place among `count`.

    Args:
      seed: of the run.
      task: what is counted, so that tasks have orders of their own.
      number: from 0, over all epochs.
      count: how many an epoch has.
      shuffle: whether each epoch has an order of its own.
    """
    epoch, place = divmod(number, count)
    return epoch, int(_order(seed, task, epoch, count)[place]) if shuffle else place


@functools.lru_cache(maxsize=8)
def _order(seed: int, task: str, epoch: int, count: int) -> Int[np.ndarray, " count"]:
    return np.random.default_rng(epoch_seed(seed, task, epoch)).permutation(count)


def drawn_numbers(seed: int, purpose: str, group: int, count: int) -> Iterator[int]:
    """Yields numbers below `count` without end, drawn at random for one group."""
    draw = draws(seed, purpose, str(group))
    while True:
        yield draw.randrange(count)

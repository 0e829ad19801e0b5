"""Decides which row of which task comes where in a run, from the seed and the row's number alone.

Nothing here reads data. Steps are grouped into periods. In each period, a row of the batch takes
its examples from one group of one task, one row of the group per step. So a host with some rows of
each batch needs only the groups of these rows, and a run that starts at step n needs only the
groups of n's period.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from data_pipelines.randomness import draws, epoch_seed

_PARTS = 2**40  # resolution of the shares, so that counting is exact


def interleave(rates: Sequence[float], slot: int) -> tuple[int, int]:
    """Returns which of several sequences owns a slot, and the slot's index within that sequence.

    Each sequence has its share of any consecutive slots, as evenly as whole numbers allow.

    Args:
      rates: relative rates of the sequences, above 0.
      slot: number of the slot, from 0.
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
    """Returns the epoch of item `number`, and its position among the `count` items of the epoch.

    Args:
      seed: the run's seed.
      task: name of what is counted, so that tasks have different orders.
      number: index over all epochs, from 0.
      count: number of items per epoch.
      shuffle: whether each epoch has a different order.
    """
    epoch, place = divmod(number, count)
    return epoch, int(_order(seed, task, epoch, count)[place]) if shuffle else place


@functools.lru_cache(maxsize=8)
def _order(seed: int, task: str, epoch: int, count: int) -> Int[np.ndarray, " count"]:
    return np.random.default_rng(epoch_seed(seed, task, epoch)).permutation(count)


def drawn_numbers(seed: int, purpose: str, group: int, count: int) -> Iterator[int]:
    """Yields random numbers below `count` without end, for one group."""
    draw = draws(seed, purpose, str(group))
    while True:
        yield draw.randrange(count)

"""What the processes of a run tell one another while each acts in its own environments."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

_POLLS = 64  # how often several processes ask together whether to stop, in one rollout
_LEAST = 1024  # bytes; texts are padded to powers of two, so that few programs are compiled


def gather_json(value: Any) -> list[Any]:
    """Gives every process the values of all; all processes must call it together.

    Args:
      value: this process's value, as JSON.

    Returns:
      The values of all processes, in their order.
    """
    if jax.process_count() == 1:
        return [value]
    text = json.dumps(value).encode()
    sizes = multihost_utils.process_allgather(np.int32(len(text)))
    room = max(_LEAST, 1 << (int(sizes.max()) - 1).bit_length())
    padded = np.frombuffer(text.ljust(room), np.uint8)
    return [json.loads(row.tobytes()) for row in multihost_utils.process_allgather(padded)]


def summed(
    of_processes: Sequence[Mapping[str, Sequence[float]]],
) -> dict[str, tuple[float, float]]:
    """Adds up the processes' totals and weights.

    Args:
      of_processes: by name, each process's total and weight; a name may be missing in some.
    """
    sums: dict[str, tuple[float, float]] = {}
    for name, (total, weight) in itertools.chain.from_iterable(of.items() for of in of_processes):
        before = sums.get(name, (0.0, 0.0))
        sums[name] = before[0] + total, before[1] + weight
    return sums


class Polls:
    """Asks whether to stop, as often in one process as in another.

    The processes agree to stop at the same number of questions, so a process asks when it has
    played another share of its rollout; a single process asks whenever it can.

    Args:
      interrupted: whether to stop; in several processes, what all of them answer alike when they
        are asked for the n-th time.
      several: whether there are several processes.
    """

    def __init__(self, interrupted: Callable[[], bool], several: bool) -> None:
        self._interrupted, self._several, self._made = interrupted, several, 0

    def __call__(self, share: float) -> bool:
        """Whether to stop, when a share has been played."""
        if not self._several:
            return self._interrupted()
        while self._made < int(share * _POLLS):
            self._made += 1
            if self._interrupted():
                return True
        return False

    def last(self) -> bool:
        """Whether to stop after all has been played."""
        return self._several and self(1.0)

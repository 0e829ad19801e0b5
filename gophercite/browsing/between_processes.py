"""What the processes of a run tell one another while each acts in its own environments."""

import itertools
from collections.abc import Callable, Mapping, Sequence

_POLLS = 64  # how often several processes ask together whether to stop, in one rollout


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

"""What training carries from step to step, and what a learner must be able to do with it."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from gophercite.models.parameters import Params

Batch = dict[str, Array]
Metrics = dict[str, Float[Array, ""]]
Totals = dict[str, tuple[Float[Array, "..."], Float[Array, "..."]]]
HostTotals = Mapping[str, tuple[np.ndarray, np.ndarray]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that the next step depends on beside its batch.

    Attributes:
      step: updates done.
      params: all parameters, frozen ones among them.
      optimizer: the optimiser's state, for the trained parts alone.
      ema: exponential moving average of the trained parts in float32; None when off.
      key: the run's PRNG key; a step folds its number in, so that step n draws the same whether or
        not the run was interrupted before it.
    """

    step: Int[Array, ""]
    params: Params
    optimizer: Any
    ema: Params | None
    key: Key[Array, ""]


class Learner(Protocol):
    """What is optimised; the training loop knows no more of it than this."""

    def init_state(self, params: Params, key: Key[Array, ""]) -> TrainState:
        """A state at step 0."""
        ...

    def state_axes(self, params: Params) -> TrainState:
        """Logical axis names of each array of the state, as a tree like it."""
        ...

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step; pure."""
        ...

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals and their weights, to be summed over batches; pure."""
        ...

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a whole set from the sums of its batches' totals: `means` of most."""
        ...


def means(totals: HostTotals) -> dict[str, float]:
    """Each total divided by its weight; NaN without weight."""
    return {
        name: float(total / weight) if weight else float("nan")
        for name, (total, weight) in totals.items()
    }

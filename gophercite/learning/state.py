"""What training carries from step to step, and what a learner must be able to do with it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from gophercite.models.parameters import Params

Batch = dict[str, Array]
Metrics = dict[str, Float[Array, ""]]
HostBatch = Mapping[str, Any]  # arrays of rows; or trees of arrays that are the whole batch's
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
        """One step; pure. Where a `Collector` acts, the batch is experience."""
        ...

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals and their weights, to be summed over batches; pure. Batches are as in `update`."""
        ...

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a whole set from the sums of its batches' totals: `means` of most."""
        ...


class Collected(NamedTuple):
    """What a collector made of a batch.

    Attributes:
      experience: this process's rows of what the learner learns from, on the host; of the same
        shapes each time.
      totals: what only the host knows, each with its weight: see `means`.
    """

    experience: HostBatch
    totals: Mapping[str, tuple[float, float]]


class Collector(Protocol):
    """Acts in environments on the host, between the programs that sample and the one that learns.

    A learner whose samples need no environment collects on the device, inside `update`.
    """

    def collect(
        self,
        params: Params,
        batch: HostBatch,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """Goes on in the environments.

        Args:
          params: of the policy that acts.
          batch: what the input gives, on the host.
          key: of all draws.
          interrupted: asked now and then.

        Returns:
          Experience; None when interrupted: the environments are then as they were before.
        """
        ...

    def rehearse(
        self,
        params: Params,
        batch: HostBatch,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """Likewise for evaluation, in environments of its own that it leaves nothing in."""
        ...

    def environments(self) -> Any:
        """How far the environments are, as JSON: a checkpoint keeps it."""
        ...

    def resume(self, environments: Any) -> None:
        """Takes the environments back to what `environments` gave; to their beginning for None."""
        ...


def means(totals: HostTotals) -> dict[str, float]:
    """Each total divided by its weight; NaN without weight."""
    return {
        name: float(total / weight) if weight else float("nan")
        for name, (total, weight) in totals.items()
    }

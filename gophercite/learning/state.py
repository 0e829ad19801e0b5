"""The training state, and the interfaces of learners and collectors."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from gophercite.models.parameters import Params

Batch = dict[str, Array]
Metrics = dict[str, Float[Array, ""]]
HostBatch = Mapping[str, Any]  # arrays of rows, or trees of arrays for the entire batch
Totals = dict[str, tuple[Float[Array, "..."], Float[Array, "..."]]]
HostTotals = Mapping[str, tuple[np.ndarray, np.ndarray]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """Everything that the next step depends on except its batch.

    Attributes:
      step: number of updates so far.
      params: all parameters, including frozen ones.
      optimizer: the optimiser's state, for the trained parts only.
      ema: exponential moving average of the trained parts in float32; None if off.
      key: the run's PRNG key; each step folds in its number, so that step n draws the same numbers
        whether or not the run was interrupted before it.
    """

    step: Int[Array, ""]
    params: Params
    optimizer: Any
    ema: Params | None
    key: Key[Array, ""]


class Learner(Protocol):
    """What the training loop requires of a learner."""

    def init_state(self, params: Params, key: Key[Array, ""]) -> TrainState:
        """A state at step 0."""
        ...

    def state_axes(self, params: Params) -> TrainState:
        """Logical axis names of each array of the state, as a tree like the state."""
        ...

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """One step; pure. With a `Collector`, the batch is experience."""
        ...

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        """Totals and their weights, to sum over batches; pure. Batches are as in `update`."""
        ...

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        """Metrics of a dataset from its batches' summed totals: usually their `means`."""
        ...


class Collected(NamedTuple):
    """What a collector returns for a batch.

    Attributes:
      experience: this process's rows of experience for the learner, on the host; the same shapes
        each time.
      totals: metrics that only the hosts know, of all processes, each with its weight (see
        `means`).
    """

    experience: HostBatch
    totals: Mapping[str, tuple[float, float]]


class Collector(Protocol):
    """Acts in environments on the host, between the sampling programs and the learning program.

    A learner that needs no environment samples on the device, inside `update`. All processes of a
    run call the methods together.
    """

    def collect(
        self,
        params: Params,
        batch: HostBatch,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """Continues in the environments.

        Args:
          params: the acting policy's parameters.
          batch: the input's batch, on the host.
          key: random key of all draws.
          interrupted: polled from time to time; returns True to stop.

        Returns:
          Experience; None if interrupted, in which case the environments are unchanged.
        """
        ...

    def rehearse(
        self,
        params: Params,
        batch: HostBatch,
        key: Key[Array, ""],
        interrupted: Callable[[], bool],
    ) -> Collected | None:
        """The same for evaluation, in separate environments that are reset afterwards."""
        ...

    def environments(self) -> Any:
        """The progress of all processes' environments as JSON, to store in a checkpoint."""
        ...

    def resume(self, environments: Any) -> None:
        """Restores the environments to a value of `environments`; to their beginning for None."""
        ...


def means(totals: HostTotals) -> dict[str, float]:
    """Each total divided by its weight; NaN without weight."""
    return {
        name: float(total / weight) if weight else float("nan")
        for name, (total, weight) in totals.items()
    }

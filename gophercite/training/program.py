"""The compiled parts of a run: initial state, training step, evaluation, each with its shardings.

Everything is compiled ahead of time for fixed shapes: nothing recompiles during a run, and a
program's memory use is known before it starts.
"""

import ctypes
import dataclasses
import functools
from collections.abc import Hashable
from typing import Any, Protocol

import jax
from jaxtyping import Array, Key

from gophercite.learning.state import Learner, TrainState
from gophercite.model_folders.checkpoint_files import Base
from gophercite.models.parameters import Params
from gophercite.partitioning import Partitioner
from gophercite.training.feed import DeviceBatch


class Initialisation(Protocol):
    """A source of a run's initial parameters."""

    def shapes(self) -> Params:
        """Shapes and dtypes, without drawing or reading the parameters."""
        ...

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """The parameters, already sharded."""
        ...

    def base(self) -> Base | None:
        """For a run with adapters, the models it starts from, which no checkpoint holds."""
        ...


@dataclasses.dataclass(frozen=True)
class Program:
    """A learner on a mesh.

    Attributes:
      learner: defines the objective and its update.
      initialisation: source of the initial parameters.
      partitioner: mesh and rules.
    """

    learner: Learner
    initialisation: Initialisation
    partitioner: Partitioner

    def state_target(self) -> TrainState:
        """The state as shapes, dtypes and shardings; nothing is computed."""
        return self._state_target

    @functools.cached_property
    def _state_target(self) -> TrainState:
        shapes = jax.eval_shape(
            self.learner.init_state, self.initialisation.shapes(), jax.random.key(0)
        )
        shardings = self.partitioner.shardings(self.learner.state_axes(shapes.params), shapes)
        return jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            shapes,
            shardings,
        )

    def initial_state(self, seed: int) -> TrainState:
        """The state at step 0."""
        places = jax.tree.map(lambda leaf: leaf.sharding, self.state_target())
        run_key = jax.random.split(jax.random.key(seed))[1]
        params = self.initial_parameters(seed)
        # The parameters are donated, because they pass through unchanged and need no second copy.
        make = jax.jit(self.learner.init_state, out_shardings=places, donate_argnums=0)
        with self.partitioner.activate():
            return make(params, run_key)

    def initial_parameters(self, seed: int) -> Params:
        """The parameters at step 0."""
        places = jax.tree.map(lambda leaf: leaf.sharding, self.state_target().params)
        return self.initialisation.parameters(jax.random.split(jax.random.key(seed))[0], places)

    def compile_update(self, batch: DeviceBatch | Any) -> jax.stages.Compiled:
        """Compiles the training step, (state, batch) to (state, metrics); it donates the state.

        Args:
          batch: a batch on the devices, or its shapes with shardings.

        Returns:
          The compiled step.
        """
        target = self.state_target()
        places = jax.tree.map(lambda leaf: leaf.sharding, target)
        step = jax.jit(
            self.learner.update,
            donate_argnums=0,
            out_shardings=(places, self.partitioner.replicated),
        )
        with self.partitioner.activate():
            return compile_lowered(step.lower(target, batch))

    def compile_evaluate(self, batch: DeviceBatch | Any) -> jax.stages.Compiled:
        """Compiles the evaluation of a batch: (state, batch) to totals and weights."""

        def evaluate(state: TrainState, batch: DeviceBatch) -> Any:
            return self.learner.evaluate(evaluated_params(state), batch)

        target = self.state_target()  # before the mesh is set, which may lack devices for a key
        step = jax.jit(evaluate, out_shardings=self.partitioner.replicated)
        with self.partitioner.activate():
            return compile_lowered(step.lower(target, batch))


def shapes_of(batch: DeviceBatch) -> Hashable:
    """The shapes that a program is compiled for; nearly all batches of a run have the same."""
    leaves, tree = jax.tree.flatten(batch)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def compile_lowered(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compiles a program, and returns memory that the compiler has freed to the system.

    glibc would keep it for later small allocations, which a step does not make; for a small model
    on CPU it is as much as the step itself needs.
    """
    compiled = lowered.compile()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # other C libraries lack it
        library.malloc_trim(0)
    return compiled


def evaluated_params(state: TrainState) -> Params:
    """The parameters that evaluations use: their moving average if the run keeps one."""
    if state.ema is None:
        return state.params
    averaged = {
        name: jax.tree.map(lambda mean, now: mean.astype(now.dtype), part, state.params[name])
        for name, part in state.ema.items()
    }
    return {**state.params, **averaged}

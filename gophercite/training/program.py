"""The compiled parts of a run: initial state, training step, evaluation, each with its shardings.

Everything is compiled ahead, for fixed shapes: nothing can recompile once a run goes, and what a
program takes of memory is known before it starts.
"""

import ctypes
import dataclasses
from collections.abc import Hashable
from typing import Any, Protocol

import jax
from jaxtyping import Array, Key

from gophercite.learning.state import Learner, TrainState
from gophercite.models.checkpoint_files import Base
from gophercite.models.parameters import Params
from gophercite.partitioning import Partitioner
from gophercite.training.feed import DeviceBatch


class Initialisation(Protocol):
    """Where a run's first parameters come from."""

    def shapes(self) -> Params:
        """Shapes and dtypes, without making or reading the parameters."""
        ...

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """The parameters, already in their shards."""
        ...

    def base(self) -> Base | None:
        """Of a run with adapters the models that it begins with, which no checkpoint holds."""
        ...


@dataclasses.dataclass(frozen=True)
class Program:
    """A learner on a mesh.

    Attributes:
      learner: what is optimised.
      initialisation: where the first parameters come from.
      partitioner: mesh and rules.
    """

    learner: Learner
    initialisation: Initialisation
    partitioner: Partitioner

    def state_target(self) -> TrainState:
        """The state as shapes, dtypes and shardings; nothing is computed."""
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
        # The parameters are donated: they pass through unchanged and need no second copy.
        make = jax.jit(self.learner.init_state, out_shardings=places, donate_argnums=0)
        with self.partitioner.activate():
            return make(params, run_key)

    def initial_parameters(self, seed: int) -> Params:
        """The parameters at step 0."""
        places = jax.tree.map(lambda leaf: leaf.sharding, self.state_target().params)
        return self.initialisation.parameters(jax.random.split(jax.random.key(seed))[0], places)

    def compile_update(self, batch: DeviceBatch | Any) -> jax.stages.Compiled:
        """The training step: (state, batch) to (state, metrics); it takes the state's memory over.

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
        """Evaluation of a batch: (state, batch) to totals and weights."""

        def evaluate(state: TrainState, batch: DeviceBatch) -> Any:
            return self.learner.evaluate(evaluated_params(state), batch)

        target = self.state_target()  # before the mesh is set: it may have no devices to make a key
        step = jax.jit(evaluate, out_shardings=self.partitioner.replicated)
        with self.partitioner.activate():
            return compile_lowered(step.lower(target, batch))


def shapes_of(batch: DeviceBatch) -> Hashable:
    """What a program is compiled for; nearly all batches of a run have the same."""
    leaves, tree = jax.tree.flatten(batch)
    return tree, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


# Parameters of glibc's `mallopt` (malloc.h).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def compile_lowered(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compiles, and has the C library handle memory as steps need it.

    What the compiler has freed goes back to the system: glibc would keep it for small allocations
    to come, which a step does not make, and of a small model on CPU it is as much as the step
    itself takes. What a step on CPU frees is kept for the next: glibc would hand large buffers back
    and get new ones for every step, and each of their pages would fault again.
    """
    compiled = lowered.compile()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # other C libraries have neither
        library.malloc_trim(0)
        if jax.default_backend() == "cpu":
            library.mallopt(_MMAP_MAX, 0)
            library.mallopt(_TRIM_THRESHOLD, -1)
    return compiled


def evaluated_params(state: TrainState) -> Params:
    """The parameters that evaluations use: their moving average where the run keeps one."""
    if state.ema is None:
        return state.params
    averaged = {
        name: jax.tree.map(lambda mean, now: mean.astype(now.dtype), part, state.params[name])
        for name, part in state.ema.items()
    }
    return {**state.params, **averaged}

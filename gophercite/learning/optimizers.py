"""Optimisers that update a model's parameters in place, one layer at a time.

An optimiser is a rule for one parameter, applied to all of them. Factored statistics need the mean
of an entire matrix before any of its values can be updated. So stacks of matrices are updated by a
loop that carries parameters and statistics: only one layer's float32 temporaries exist at a time,
and donated buffers are updated in place (280B parameters over 128 cores leave no room for a second
copy, nor for one in float32). Elementwise updates are fused and don't need this.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32, PRNGKeyArray

from gophercite.learning.adafactor import AdafactorRule
from gophercite.learning.adam import AdamRule
from gophercite.learning.ranges import require_number
from gophercite.learning.rounding import stochastic_round

# In a part of the parameters with this suffix, all leaves have a leading layer axis.
_STACK_SUFFIX = "_layers"

Statistics = dict[str, jax.Array]
# Maps gradient, statistics, parameter and key to the new parameter and statistics.
_UpdateArray = Callable[[Array, Statistics, Array, PRNGKeyArray], tuple[Array, Statistics]]


@runtime_checkable
class Rule(Protocol):
    """How one parameter (of one layer) is updated. All arithmetic is float32."""

    def statistics(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Which axes of a parameter of this shape each of its statistics keeps, in order."""
        ...

    def direction(
        self,
        gradient: Float32[Array, "*shape"],
        statistics: Statistics,
        parameter: Float32[Array, "*shape"],
        step: Int32[Array, ""],
    ) -> tuple[Float32[Array, "*shape"], Statistics]:
        """What to subtract per unit of learning rate, and the new statistics. Steps count from 1.

        Statistics are zeros before the first step.
        """
        ...


class OptimizerState(NamedTuple):
    """An optimiser's state.

    Attributes:
      count: number of updates so far, int32 [].
      statistics: the parameters' tree with a dict of float32 arrays in place of each leaf; the
        arrays of stacked layers have the leading layer axis, too.
    """

    count: Any
    statistics: Any


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """A rule and how its result is applied.

    Attributes:
      rule: how one parameter is updated.
      weight_decay: subtracted as `learning_rate * weight_decay * parameter` (decoupled, Loshchilov
        and Hutter 2019) from parameters with two dimensions, so not from norms and biases.
      stochastic_rounding: round bfloat16 parameters stochastically after an update; without it, an
        update smaller than half the gap to the next bfloat16 is lost. Other dtypes are not
        affected.
    """

    rule: Rule
    weight_decay: float = 0.0
    stochastic_rounding: bool = True

    def __post_init__(self) -> None:
        """Checks the weight decay.

        Raises:
          ValueError: it is not a finite number of at least 0.
        """
        require_number("optimizer: weight_decay", self.weight_decay, least=0)

    def init(self, params: Any) -> OptimizerState:
        """The state before the first update.

        Args:
          params: tree of arrays or shapes. In parts named `…_layers`, also within other
            parts, the first axis of every leaf is the layer.

        Returns:
          A count of 0 and statistics of zeros.
        """

        def zeros(path: tuple[Any, ...], parameter: jax.Array | jax.ShapeDtypeStruct) -> Statistics:
            kept = self._kept_axes(path, parameter.shape)
            return {
                name: jnp.zeros([parameter.shape[axis] for axis in axes], jnp.float32)
                for name, axes in kept.items()
            }

        return OptimizerState(
            count=jnp.zeros((), jnp.int32),
            statistics=jax.tree_util.tree_map_with_path(zeros, params),
        )

    def state_axes(self, params_axes: Any, params: Any) -> OptimizerState:
        """Logical axis names of the state's arrays, which determine their shardings.

        Args:
          params_axes: the parameters' tree with a tuple of logical axis names for each leaf.
          params: tree of arrays, or of shapes.

        Returns:
          A tree like the state, with tuples of names; `()` for the count.
        """

        def names(
            path: tuple[Any, ...],
            parameter: jax.Array | jax.ShapeDtypeStruct,
            axes: tuple[str | None, ...],
        ) -> dict[str, tuple[str | None, ...]]:
            kept = self._kept_axes(path, parameter.shape)
            return {name: tuple(axes[axis] for axis in kept[name]) for name in kept}

        return OptimizerState(
            count=(), statistics=jax.tree_util.tree_map_with_path(names, params, params_axes)
        )

    def update(
        self,
        grads: Any,
        state: OptimizerState,
        params: Any,
        *,
        learning_rate: Float32[Array, ""] | float,
        key: PRNGKeyArray,
    ) -> tuple[Any, OptimizerState]:
        """One step down the gradient. Pure; donate `state` and `params` to update them in place.

        Args:
          grads: tree like `params`, of any floating dtype.
          state: from `init` or the previous update.
          params: tree of arrays.
          learning_rate: the learning rate of this step.
          key: for stochastic rounding, a new key each step. Draws are keyed by the parameter's name
            and layer.

        Returns:
          The new parameters, in their own dtypes, and the new state.
        """
        step = state.count + 1

        def update_leaf(
            path: tuple[Any, ...], parameter: Array, gradient: Array, statistics: Statistics
        ) -> tuple[Array, Statistics]:
            stacked = _is_stacked(path)
            is_matrix = parameter.ndim - stacked >= 2
            update_array = functools.partial(
                self._update_array,
                direction=self.rule.direction,
                weight_decay=self.weight_decay if is_matrix else 0.0,
                step=step,
                learning_rate=learning_rate,
            )
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            leaf_key = jax.random.fold_in(key, zlib.crc32(name.encode()))
            if stacked and _keeps_every_value(statistics, parameter):
                # The update is elementwise, or the array is small: no large temporaries.
                over_layers = jax.vmap(self.rule.direction, in_axes=(0, 0, 0, None))
                update_array = functools.partial(update_array, direction=over_layers)
            elif stacked:
                update_array = functools.partial(_walk_layers, update_array)
            return update_array(gradient, statistics, parameter, leaf_key)

        updated = jax.tree_util.tree_map_with_path(update_leaf, params, grads, state.statistics)
        new_params = jax.tree.map(lambda _, pair: pair[0], params, updated)
        statistics = jax.tree.map(lambda _, pair: pair[1], params, updated)
        return new_params, OptimizerState(step, statistics)

    def _update_array(
        self,
        gradient: Array,
        statistics: Statistics,
        parameter: Array,
        key: PRNGKeyArray,
        *,
        direction: Callable[[Array, Statistics, Array, Array], tuple[Array, Statistics]],
        weight_decay: float,
        step: Int32[Array, ""],
        learning_rate: Float32[Array, ""] | float,
    ) -> tuple[Array, Statistics]:
        """Updates one array along its rule's direction and rounds it to its dtype."""
        value = parameter.astype(jnp.float32)
        step_direction, statistics = direction(
            gradient.astype(jnp.float32), statistics, value, step
        )
        value -= learning_rate * (step_direction + weight_decay * value)
        if self.stochastic_rounding and parameter.dtype == jnp.bfloat16:
            return stochastic_round(value, key), statistics
        return value.astype(parameter.dtype), statistics

    def _kept_axes(
        self, path: tuple[Any, ...], shape: tuple[int, ...]
    ) -> dict[str, tuple[int, ...]]:
        """The axes of a leaf that its statistics keep, including a stack's layer axis."""
        if not _is_stacked(path):
            return self.rule.statistics(shape)
        kept = self.rule.statistics(shape[1:])
        return {name: (0, *(axis + 1 for axis in axes)) for name, axes in kept.items()}


def adafactor(
    decay_rate: float = 0.8,
    clipping_threshold: float | None = 1.0,
    min_dim_size_to_factor: int = 128,
    multiply_by_parameter_scale: bool = False,
    epsilon: float = 1e-30,
    weight_decay: float = 0.0,
    stochastic_rounding: bool = True,
) -> Optimizer:
    """Adafactor as in T5X and Optax, with float32 statistics for any parameter dtype.

    Args:
      decay_rate: at step t, the old moving average has weight 1 - t**-decay_rate.
      clipping_threshold: maximum root mean square of a matrix's update; None never clips.
      min_dim_size_to_factor: the second moment of a matrix with a smaller side is not factored.
      multiply_by_parameter_scale: make the learning rate relative to a matrix's root mean square
        (as in T5's pretraining); the papers' rates, such as GopherCite's 3e-6, are absolute.
      epsilon: added to squared gradients.
      weight_decay: see `Optimizer`.
      stochastic_rounding: see `Optimizer`.

    Returns:
      The optimiser.

    Raises:
      ValueError: a setting is out of range.
    """
    rule = AdafactorRule(
        decay_rate, clipping_threshold, min_dim_size_to_factor, multiply_by_parameter_scale, epsilon
    )
    return Optimizer(rule, weight_decay, stochastic_rounding)


def adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    stochastic_rounding: bool = True,
) -> Optimizer:
    """Adam, or AdamW when `weight_decay` is not 0, with float32 moments.

    Args:
      b1: decay of the gradient's average.
      b2: decay of the squared gradient's average.
      eps: added to the root of the second moment.
      weight_decay: see `Optimizer`.
      stochastic_rounding: see `Optimizer`.

    Returns:
      The optimiser.

    Raises:
      ValueError: a setting is out of range.
    """
    return Optimizer(AdamRule(b1, b2, eps), weight_decay, stochastic_rounding)


def _is_stacked(path: tuple[Any, ...]) -> bool:
    """Whether a key of a leaf's path names a stack of layers: a model's, or of one within it."""
    return any(jax.tree_util.keystr((key,), simple=True).endswith(_STACK_SUFFIX) for key in path)


def _keeps_every_value(statistics: Statistics, parameter: Array) -> bool:
    """Whether a leaf's statistics have its shape, so that the rule is elementwise."""
    return all(array.shape == parameter.shape for array in statistics.values())


def _walk_layers(
    update_array: _UpdateArray,
    gradients: Array,
    statistics: Statistics,
    parameters: Array,
    key: PRNGKeyArray,
) -> tuple[Array, Statistics]:
    """Updates a stack layer by layer, in the stack's own buffers."""

    def body(layer: Int32[Array, ""], stacks: tuple[Array, Statistics]) -> tuple[Array, Statistics]:
        gradient, (parameter, layer_statistics) = jax.tree.map(
            lambda stack: jax.lax.dynamic_index_in_dim(stack, layer, keepdims=False),
            (gradients, stacks),
        )
        updated = update_array(
            gradient, layer_statistics, parameter, jax.random.fold_in(key, layer)
        )
        return jax.tree.map(
            lambda stack, value: jax.lax.dynamic_update_index_in_dim(stack, value, layer, 0),
            stacks,
            updated,
        )

    return jax.lax.fori_loop(0, parameters.shape[0], body, (parameters, statistics))

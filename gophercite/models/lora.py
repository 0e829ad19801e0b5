"""Low-rank adapters: a few weights to train in addition to a model's own (LoRA, Hu et al. 2021).

A matrix W [in, out] is unchanged, and its product becomes (their section 4.1)

    y = x W + (alpha / rank) (x A) B        A [in, rank], B [rank, out]

B is zero at first, so that a run starts from the base model itself. W has no gradient and no
optimiser state, so nothing else of its size is allocated. The adapters of all layers above the
frozen ones are a part of the parameters, stacked like the layers:

    {"adapter_layers": {"query": {"a": [layers, d_model, rank], "b": [layers, rank, heads]}, ...}}

They are float32, whatever the base model's dtype. A is sharded like W's input axis, B like W's
output axis; the rank is not sharded.
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import ADAPTERS, TRAINED, Axes, Params, depth
from gophercite.models.products import kept, product

OF_LAYER = "adapters"  # key of the adapters, by name of matrix, among a layer's weights


class Adapter(NamedTuple):
    """The adapter of one matrix of one layer.

    Attributes:
      a: maps the matrix's inputs to the rank.
      b: maps the rank to its outputs.
      scale: factor on their product.
    """

    a: Float[Array, "inputs rank"]
    b: Float[Array, "rank outputs"]
    scale: float

    def __call__(self, rows: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        """The term to add to the rows' products with the matrix, in the rows' dtype."""
        inner = kept(product(rows, self.a.astype(rows.dtype)))
        return product(inner, (self.scale * self.b).astype(rows.dtype))


@dataclasses.dataclass(frozen=True)
class LoRA:
    """Which matrices are adapted, and how.

    Attributes:
      rank: rank of the update to a matrix.
      alpha: the update is multiplied by alpha / rank, so that the learning rate need not change
        with the rank.
      targets: names of a layer's matrices: "query", "key", "value" and "out" of attention, "up",
        "down" and (if it is gated) "gate" of the MLP, "relative" of Transformer-XL's positions. The
        paper adapts queries and values.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        """Checks the settings.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        if isinstance(self.targets, list):  # JSON and gin have lists; settings must be hashable
            object.__setattr__(self, "targets", tuple(self.targets))
        whole = isinstance(self.rank, int) and not isinstance(self.rank, bool)
        if not whole or self.rank < 1:
            raise ValueError(f"LoRA.rank = {self.rank!r}: must be a whole number, at least 1")
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha < math.inf):
            raise ValueError(f"LoRA.alpha = {self.alpha!r}: must be a number above 0")
        names = self.targets
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise ValueError(
                f"LoRA.targets = {names!r}: must be different names of matrices, such as "
                '("query", "value")'
            )

    @property
    def scale(self) -> float:
        """Factor on the adapters' product."""
        return self.alpha / self.rank

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {**dataclasses.asdict(self), "targets": list(self.targets)}

    def check(self, config: TransformerConfig) -> None:
        """Checks that the layers of an architecture have all targets, and room for the rank.

        Raises:
          ValueError: a target is unknown; the message lists those that exist. Or the rank is larger
            than that of any matrix.
        """
        if self.rank > config.d_model:  # each matrix has it as one of its sides
            raise ValueError(
                f"LoRA.rank = {self.rank}: must be at most {config.d_model} (the model's d_model), "
                "the largest rank of its matrices"
            )
        there = adaptable(config)
        if unknown := [name for name in self.targets if name not in there]:
            raise ValueError(
                f"LoRA.targets names {', '.join(map(repr, unknown))}, but a layer of this model "
                f"has the matrices {', '.join(there)}"
            )

    def init(self, key: Key[Array, ""], layers: Params, frozen: int) -> Params:
        """Initial adapters of the layers above the frozen ones, which leave the base unchanged.

        A is drawn with variance 1 / (3 · inputs), as in the authors' software, and does not depend
        on the number of frozen layers; B is zero.

        Args:
          key: a typed PRNG key.
          layers: one stack of all layers' weights, or of their shapes.
          frozen: number of layers below the adapted ones.

        Returns:
          The part `adapter_layers`, float32.
        """
        count = depth(layers)

        def adapter(name: str) -> Params:
            _, inputs, outputs = layers[name].shape
            keys = jax.random.split(jax.random.fold_in(key, zlib.crc32(name.encode())), count)
            draw = jax.vmap(lambda key: jax.random.normal(key, (inputs, self.rank)))
            return {
                "a": draw(keys[frozen:]) * (3 * inputs) ** -0.5,
                "b": jnp.zeros((count - frozen, self.rank, outputs), jnp.float32),
            }

        return {name: adapter(name) for name in self.targets}

    def axes(self, layers: Axes) -> Axes:
        """Logical axis names of the adapters' arrays, from those of the matrices."""
        adapters: Axes = {}
        for name in self.targets:
            stack, inputs, outputs = layers[name]
            adapters[name] = {"a": (stack, inputs, None), "b": (stack, None, outputs)}
        return adapters

    def merge(self, params: Params, dtype: Any = None) -> Params:
        """Merges the adapters into their base model: W + (alpha / rank) A B.

        The sum is computed in float32 and rounded once, one layer at a time.

        Args:
          params: parameters with one stack of layers, and adapters of the last layers.
          dtype: dtype of the changed matrices; their own when None.

        Returns:
          Parameters without adapters; arrays stay on their devices.
        """
        rest = {name: part for name, part in params.items() if name != ADAPTERS}
        stack = dict(rest[TRAINED])
        for name, adapter in params[ADAPTERS].items():
            matrices = stack[name]
            merge = _merging(getattr(matrices, "sharding", None))
            to = dtype or matrices.dtype
            stack[name] = merge(matrices, adapter["a"], adapter["b"], self.scale, to)
        return {**rest, TRAINED: stack}


def adaptable(config: TransformerConfig) -> tuple[str, ...]:
    """Names of the matrices that a layer of an architecture has."""
    relative = ("relative",) if config.position == "transformer_xl" else ()
    gate = ("gate",) if config.gated_mlp else ()
    return ("query", "key", "value", "out", *relative, "up", *gate, "down")


def with_adapters(weights: Any, adapters: Any) -> Any:
    """Adds adapters to the weights of a layer, of a stack, or of an unstacked stack.

    Args:
      weights: the base model's weights.
      adapters: adapters of the same layers; None adds none.

    Returns:
      Weights for `Block`; `adapter_of` looks the adapters up.
    """
    if adapters is None:
        return weights
    if isinstance(weights, tuple):
        return tuple(map(with_adapters, weights, adapters))
    return {**weights, OF_LAYER: adapters}


def adapter_of(layer: Mapping[str, Any] | None, name: str, scale: float) -> Adapter | None:
    """The adapter of one of a layer's matrices.

    Args:
      layer: the layer's adapters; None if it has none.
      name: the matrix's name.
      scale: factor on the adapters' products.

    Returns:
      The adapter; None for a matrix without one.
    """
    found = None if layer is None else layer.get(name)
    return None if found is None else Adapter(found["a"], found["b"], scale)


@functools.cache
def _merging(sharding: jax.sharding.Sharding | None) -> Any:
    """The function that merges matrices placed so, compiled once for all of the same shape."""
    return jax.jit(_merged, static_argnums=(3, 4), out_shardings=sharding)


def _merged(
    matrices: Float[Array, "layers inputs outputs"],
    a: Float[Array, "adapted inputs rank"],
    b: Float[Array, "adapted rank outputs"],
    scale: float,
    dtype: Any,
) -> Float[Array, "layers inputs outputs"]:
    """A stack of matrices, with adapters added to the last ones."""
    first = matrices.shape[0] - a.shape[0]

    def merge(layer: tuple[Array, Array, Array]) -> Array:
        matrix, a, b = layer
        product = jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
        return (matrix.astype(jnp.float32) + scale * product).astype(dtype)

    adapted = jax.lax.map(merge, (matrices[first:], a, b))
    return jnp.concatenate([matrices[:first].astype(dtype), adapted])

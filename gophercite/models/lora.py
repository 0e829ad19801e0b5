"""Low-rank adapters: a few weights to train beside a model's own (LoRA, Hu et al. 2021).

A matrix W [in, out] stays as it is, and what it computes becomes (their section 4.1)

    y = x W + (alpha / rank) (x A) B        A [in, rank], B [rank, out]

B is zero at first, so that a run's first step sees the base model itself. W has no gradient, so
none of its size is ever made, and no optimiser state. The adapters of all layers above the frozen
ones are a part of the parameters, a stack like the layers' own:

    {"adapter_layers": {"query": {"a": [layers, d_model, rank], "b": [layers, rank, heads]}, ...}}

They are float32 whatever the base model is kept in. A is cut over devices as W's input axis is, B
as W's output axis; the rank is never cut.
"""

import dataclasses
import math
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import ADAPTERS, TRAINED, Axes, Params, depth

OF_LAYER = "adapters"  # where a layer's weights have its adapters, by the names of matrices


class Adapter(NamedTuple):
    """What is added to one matrix of one layer.

    Attributes:
      a: from the matrix' inputs to the rank.
      b: from the rank to its outputs.
      scale: of their product.
    """

    a: Float[Array, "inputs rank"]
    b: Float[Array, "rank outputs"]
    scale: float

    def __call__(self, rows: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
        """What is added to the rows' products with the matrix, in the rows' dtype."""
        return (rows @ self.a.astype(rows.dtype)) @ (self.scale * self.b).astype(rows.dtype)


@dataclasses.dataclass(frozen=True)
class LoRA:
    """Which matrices are adapted, and how.

    Attributes:
      rank: of what is added to a matrix.
      alpha: what is added is multiplied by alpha / rank, so that the learning rate need not follow
        the rank.
      targets: names of a layer's matrices: "query", "key", "value" and "out" of attention, "up",
        "down" and (where it is gated) "gate" of the MLP, "relative" of Transformer-XL's positions.
        The paper's are queries' and values'.
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")

    def __post_init__(self) -> None:
        """Refuses settings that adapt nothing.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        if isinstance(self.targets, list):  # JSON and gin have lists; a frozen setting is hashable
            object.__setattr__(self, "targets", tuple(self.targets))
        whole = isinstance(self.rank, int) and not isinstance(self.rank, bool)
        if not whole or self.rank < 1:
            raise ValueError(f"LoRA.rank = {self.rank!r}: must be a whole number from 1")
        if not (isinstance(self.alpha, int | float) and 0 < self.alpha < math.inf):
            raise ValueError(f"LoRA.alpha = {self.alpha!r}: must be a number over 0")
        names = self.targets
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise ValueError(
                f"LoRA.targets = {names!r}: must be names of matrices, each once, such as "
                '("query", "value")'
            )

    @property
    def scale(self) -> float:
        """What the adapters' product is multiplied by."""
        return self.alpha / self.rank

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return {**dataclasses.asdict(self), "targets": list(self.targets)}

    def check(self, config: TransformerConfig) -> None:
        """Refuses targets that the layers of an architecture don't have.

        Raises:
          ValueError: one is unknown; the message names those that exist.
        """
        there = adaptable(config)
        if unknown := [name for name in self.targets if name not in there]:
            raise ValueError(
                f"LoRA.targets names {', '.join(map(repr, unknown))}, but a layer of this model "
                f"has the matrices {', '.join(there)}"
            )

    def init(self, key: Key[Array, ""], layers: Params, frozen: int) -> Params:
        """The adapters of the layers above the frozen ones, whose sum with the base is the base.

        A is drawn with the variance 1 / (3 · inputs), as the authors' own software does, and does
        not depend on how many layers are frozen; B is zero.

        Args:
          key: a typed PRNG key.
          layers: one stack of all layers' weights, or of their shapes.
          frozen: layers below the adapted ones.

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
        """The model that the adapters make of their base: W + (alpha / rank) A B.

        The sum is made in float32 and rounded once, one layer at a time.

        Args:
          params: parameters with one stack of layers, and adapters of the last ones.
          dtype: of the changed matrices; their own when None.

        Returns:
          Parameters without adapters; arrays stay where they are.
        """
        rest = {name: part for name, part in params.items() if name != ADAPTERS}
        stack = dict(rest[TRAINED])
        for name, adapter in params[ADAPTERS].items():
            matrices = stack[name]
            merge = jax.jit(
                partial(_merged, scale=self.scale, dtype=dtype or matrices.dtype),
                out_shardings=getattr(matrices, "sharding", None),
            )
            stack[name] = merge(matrices, adapter["a"], adapter["b"])
        return {**rest, TRAINED: stack}


def adaptable(config: TransformerConfig) -> tuple[str, ...]:
    """Names of the matrices that a layer of an architecture has."""
    relative = ("relative",) if config.position == "transformer_xl" else ()
    gate = ("gate",) if config.gated_mlp else ()
    return ("query", "key", "value", "out", *relative, "up", *gate, "down")


def with_adapters(weights: Any, adapters: Any) -> Any:
    """Weights with adapters among them: of a layer, of a stack, or of a stack taken apart.

    Args:
      weights: the base model's.
      adapters: of the same layers; None adds none.

    Returns:
      What `Block` reads; `adapter_of` finds the adapters again.
    """
    if adapters is None:
        return weights
    if isinstance(weights, tuple):
        return tuple(map(with_adapters, weights, adapters))
    return {**weights, OF_LAYER: adapters}


def adapter_of(layer: Mapping[str, Any] | None, name: str, scale: float) -> Adapter | None:
    """What is added to a matrix of a layer.

    Args:
      layer: the layer's adapters; None when it has none.
      name: the matrix'.
      scale: of the adapters' products.

    Returns:
      None for a matrix without an adapter.
    """
    found = None if layer is None else layer.get(name)
    return None if found is None else Adapter(found["a"], found["b"], scale)


def _merged(
    matrices: Float[Array, "layers inputs outputs"],
    a: Float[Array, "adapted inputs rank"],
    b: Float[Array, "adapted rank outputs"],
    scale: float,
    dtype: Any,
) -> Float[Array, "layers inputs outputs"]:
    """A stack of matrices, to the last of which adapters are added."""
    first = matrices.shape[0] - a.shape[0]

    def merge(layer: tuple[Array, Array, Array]) -> Array:
        matrix, a, b = layer
        product = jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
        return (matrix.astype(jnp.float32) + scale * product).astype(dtype)

    adapted = jax.lax.map(merge, (matrices[first:], a, b))
    return jnp.concatenate([matrices[:first].astype(dtype), adapted])

"""Runs a stack of layers: one scan, with groups of layers rematerialised in the backward pass.

`jax.lax.scan` over `jax.checkpoint` does this if the group size divides the number of layers. For
Gopher's 80 layers in groups of three it doesn't, and splitting a stacked array in two copies it.
Also, the scan's transpose puts the gradients into a separate buffer, which gradient accumulation
then adds to another: at 280 billion parameters each such copy takes a third of a core's memory.
Here the backward pass is written by hand: it goes through the groups from last to first and adds
each layer's gradient to one buffer in place, which may hold the accumulated gradient of earlier
microbatches.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_policies
from jaxtyping import Array

from gophercite.models.cache import LayerCache
from gophercite.models.parameters import depth
from gophercite.models.products import KEPT

# (layer's parameters, layer's settings, residual stream, shared arrays) -> residual stream
Layer = Callable[[Any, Any, Array, Any], Array]
# (stream, layer's parameters and settings, its keys and values) -> stream, new keys and values
CachedLayer = Callable[[Array, tuple[Any, Any], LayerCache], tuple[Array, LayerCache]]


def run_stack(
    layer: Layer,
    params: Any,
    settings: Any,
    x: Array,
    shared: Any,
    *,
    remat_every: int = 0,
    remat_elementwise: bool = False,
    unroll: bool = False,
    accumulated: Any = None,
) -> Array:
    """Applies a stack of layers.

    Args:
      layer: one layer; pure.
      params: parameters, each leaf with a leading axis of layers.
      settings: per-layer settings, with the same leading axis; not differentiated.
      x: input of the first layer.
      shared: arrays that all layers read; not differentiated.
      remat_every: number of layers per group; only a group's input is kept for the backward pass.
        The last group may be smaller. 0 is no groups.
      remat_elementwise: without groups, compute everything that is not `products.kept` again in the
        backward pass.
      unroll: unroll the loop; only without groups.
      accumulated: gradients like `params`. The gradient of this call with respect to `params` is
        then `accumulated` plus its own, in the same buffer. Needs `remat_every`.

    Returns:
      Output of the last layer.
    """
    if remat_every:
        return _grouped(layer, remat_every, params, accumulated, settings, x, shared)
    if accumulated is not None:
        raise ValueError("accumulated gradients need remat_every >= 1")

    def body(x: Array, leaf: tuple[Any, Any]) -> tuple[Array, None]:
        return layer(*leaf, x, shared), None

    if remat_elementwise:
        body = jax.checkpoint(body, policy=_is_kept, prevent_cse=False)
    return jax.lax.scan(body, x, (params, settings), unroll=unroll)[0]


def _is_kept(primitive: Any, *avals: Any, **params: Any) -> bool:
    """Whether the backward pass finds a result of the forward pass in memory."""
    # cuDNN's attention keeps a vector beside its output, which has no name.
    if primitive.name.startswith("dot_product_attention_fwd"):
        return True
    return bool(checkpoint_policies.save_only_these_names(KEPT)(primitive, *avals, **params))


def _layer_at(tree: Any, index: Array | int) -> Any:
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree
    )


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _grouped(
    layer: Layer, every: int, params: Any, accumulated: Any, settings: Any, x: Array, shared: Any
) -> Array:
    return _grouped_forward(layer, every, params, accumulated, settings, x, shared)[0]


def _grouped_forward(
    layer: Layer, every: int, params: Any, accumulated: Any, settings: Any, x: Array, shared: Any
) -> tuple[Array, Any]:
    groups, rest = divmod(depth(params), every)

    def run(x: Array, first: Array | int, count: int) -> Array:
        for i in range(count):
            x = layer(_layer_at(params, first + i), _layer_at(settings, first + i), x, shared)
        return x

    def body(x: Array, group: Array) -> tuple[Array, Array]:
        return run(x, group * every, every), x

    x, inputs = jax.lax.scan(body, x, jnp.arange(groups))
    y = run(x, groups * every, rest)
    return y, (params, accumulated, settings, inputs, x, shared)


def _grouped_backward(layer: Layer, every: int, residuals: Any, dy: Array) -> tuple[Any, ...]:
    params, accumulated, settings, inputs, last, shared = residuals
    groups, rest = divmod(depth(params), every)

    def pull_back(
        x: Array, first: Array | int, count: int, dy: Array, gradients: Any
    ) -> tuple[Array, Any]:
        """Recomputes a group from its input and adds its layers' gradients in place."""

        def run(layers: list[Any], x: Array) -> Array:
            for i, weights in enumerate(layers):
                x = layer(weights, _layer_at(settings, first + i), x, shared)
            return x

        layers = [_layer_at(params, first + i) for i in range(count)]
        pull = jax.vjp(run, layers, x)[1]
        for_layers, dx = pull(dy)
        for i, for_layer in enumerate(for_layers):
            gradients = jax.tree.map(
                lambda total, new, at=first + i: jax.lax.dynamic_update_index_in_dim(
                    total,
                    jax.lax.dynamic_index_in_dim(total, at, keepdims=False)
                    + new.astype(total.dtype),
                    at,
                    0,
                ),
                gradients,
                for_layer,
            )
        return dx, gradients

    gradients = jax.tree.map(jnp.zeros_like, params) if accumulated is None else accumulated
    if rest:
        dy, gradients = pull_back(last, groups * every, rest, dy, gradients)

    def body(carry: tuple[Array, Any], group: tuple[Array, Array]) -> tuple[Any, None]:
        x, index = group
        return pull_back(x, index * every, every, *carry), None

    (dx, gradients), _ = jax.lax.scan(
        body, (dy, gradients), (inputs, jnp.arange(groups)), reverse=True
    )
    return gradients, None, None, dx, None


_grouped.defvjp(_grouped_forward, _grouped_backward)


def run_cached_stack(
    layer: CachedLayer, x: Array, stack: tuple[Any, Any], cache: LayerCache, first: int
) -> tuple[Array, LayerCache]:
    """Applies a stack of layers to new tokens, which are added to the cache in place.

    Args:
      layer: one layer; pure.
      x: input of the first layer.
      stack: parameters and settings, each leaf with a leading axis of layers.
      cache: the cache of all of the model's layers, with the same leading axis.
      first: index of the stack's first layer in the cache.

    Returns:
      Output of the last layer, and the cache with the new tokens in the stack's layers.
    """

    def body(
        carry: tuple[Array, Array, Array], leaf: tuple[Any, ...]
    ) -> tuple[tuple[Array, Array, Array], None]:
        x, keys, values = carry
        weights_and_settings, prompt_keys, prompt_values, relative, index = leaf
        before = LayerCache(prompt_keys, prompt_values, keys, values, relative, index)
        x, after = layer(x, weights_and_settings, before)
        return (x, after.keys, after.values), None

    last = first + depth(stack[0])
    constant_parts = (cache.prompt_keys, cache.prompt_values, cache.relative)
    constant_parts = jax.tree.map(lambda leaf: leaf[first:last], constant_parts)
    leaves = (stack, *constant_parts, jnp.arange(first, last))
    (x, keys, values), _ = jax.lax.scan(body, (x, cache.keys, cache.values), leaves)
    return x, cache._replace(keys=keys, values=values)

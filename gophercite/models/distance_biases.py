"""T5's positions: a bias on each head's scores by distance, shared by all layers.

Raffel et al. 2020, section 2.1: distances are put into buckets: one for each distance up to half
the number of buckets, then increasingly wide ones, and the last for all distances of `max_distance`
or more. The table is stored once, with the embeddings. The gradient of a stack of layers covers
only the layers' own parameters (`run_stack`), so each layer gets a copy of the table while a stack
runs: the sum of the layers' gradients is the table's gradient.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params, depth
from gophercite.models.positions import align_distances

DISTANCE_BIASES = "distance_biases"

Biases = Float[Array, "heads distances"]


def buckets_of_distances(buckets: int, max_distance: int) -> Int[np.ndarray, " distances"]:
    """The bucket of each distance from 0 to `max_distance`; larger ones share the last bucket.

    Args:
      buckets: number of buckets.
      max_distance: distance from which on all distances share the last bucket.
    """
    exact = buckets // 2
    distances = np.arange(max_distance + 1)
    # In float32, slightly above the quotient, because bucket boundaries depend on rounding.
    turns = np.maximum(distances, 1).astype(np.float32) / exact + np.finfo(np.float32).eps
    share = np.log(turns) / np.float32(np.log(max_distance / exact))
    wide = exact + (share * (buckets - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(wide, buckets - 1))


def biases_by_distance(
    config: TransformerConfig, table: Float[Array, "heads buckets"] | None
) -> Biases | None:
    """The bias for each distance up to `config.max_distance`; None without a table."""
    if table is None or config.distance_buckets is None or config.max_distance is None:
        return None
    buckets = buckets_of_distances(config.distance_buckets, config.max_distance)
    return table.astype(jnp.float32)[:, buckets]


def shared_biases(config: TransformerConfig, params: Params) -> Biases | None:
    """A model's biases; None for other kinds of positions."""
    return biases_by_distance(config, params["embed"].get(DISTANCE_BIASES))


def lend_table(params: Params, stack: str) -> Any:
    """A stack of layers, with the table among each layer's parameters if the model has one."""
    table = params["embed"].get(DISTANCE_BIASES)
    if table is None:
        return params[stack]
    copies = jnp.broadcast_to(table, (depth(params[stack]), *table.shape))
    return {**params[stack], DISTANCE_BIASES: copies}


def lend_room(accumulated: Any, stack: Any) -> Any:
    """Accumulated gradients of a stack, with room for the table's gradient if there is a table."""
    if accumulated is None or DISTANCE_BIASES not in stack:
        return accumulated
    return {**accumulated, DISTANCE_BIASES: jnp.zeros_like(stack[DISTANCE_BIASES])}


def take_back(config: TransformerConfig, weights: Params) -> tuple[Params, Biases | None]:
    """Separates a layer's own parameters from its copy of the table, returned as biases."""
    own = {name: value for name, value in weights.items() if name != DISTANCE_BIASES}
    return own, biases_by_distance(config, weights.get(DISTANCE_BIASES))


def bias_by_key(biases: Biases, rows: int, keys: int) -> Float[Array, "heads rows keys"]:
    """The biases of the last `rows` of `keys` positions for each key.

    Biases of keys after a row's own position are garbage and must be masked.
    """
    falling = np.minimum(np.arange(keys)[::-1], biases.shape[1] - 1)
    by_distance = biases[:, None, falling]
    return align_distances(jnp.broadcast_to(by_distance, (biases.shape[0], rows, keys)))


def bias_at(
    biases: Biases, distance: Int[Array, "*batch length entries"]
) -> Float[Array, "heads *batch length entries"]:
    """The bias for each distance; arbitrary for negative ones, which must be masked."""
    return jnp.take(biases, distance, axis=1, mode="clip")

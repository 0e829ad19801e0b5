"""Search in sorted stretches of an array, on the device."""

import jax.numpy as jnp
from jaxtyping import Array, Int


def first_not_less(
    keys: Int[Array, " keys"],
    wanted: Int[Array, " searches"],
    low: Int[Array, " searches"],
    high: Int[Array, " searches"],
    halvings: int,
) -> Int[Array, " searches"]:
    """The first places whose keys are not less than what is wanted.

    Args:
      keys: rising within each stretch that is searched.
      wanted: a key for each search.
      low: where each one's stretch begins.
      high: where it ends; what is returned where all of its keys are less.
      halvings: enough for the longest stretch, of fewer than two to their power keys.

    Returns:
      Places.
    """
    last = keys.shape[0] - 1
    for _ in range(halvings):
        middle = (low + high) // 2
        less = (keys[jnp.minimum(middle, last)] < wanted) & (low < high)
        low, high = jnp.where(less, middle + 1, low), jnp.where(less, high, middle)
    return low

"""Binary search in sorted segments of an array, on the device."""

import jax.numpy as jnp
from jaxtyping import Array, Int


def first_not_less(
    keys: Int[Array, " keys"],
    wanted: Int[Array, " searches"],
    low: Int[Array, " searches"],
    high: Int[Array, " searches"],
    halvings: int,
) -> Int[Array, " searches"]:
    """The first positions whose keys are not less than the wanted ones.

    Args:
      keys: keys, rising within each segment that is searched.
      wanted: the wanted key of each search.
      low: where the segment of each search begins.
      high: where it ends; returned if all of its keys are less.
      halvings: number of bisection steps; segments must have fewer than 2**halvings keys.

    Returns:
      One position per search.
    """
    for _ in range(halvings):
        # A shift and an index without wrap-around compile to one operation each. `//` and `[]` take
        # ten, to handle negative numbers, which do not occur, and the loop is unrolled.
        middle = (low + high) >> 1
        key = keys.at[middle].get(mode="clip", wrap_negative_indices=False)
        less = (key < wanted) & (low < high)
        low, high = jnp.where(less, middle + 1, low), jnp.where(less, high, middle)
    return low

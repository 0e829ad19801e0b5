"""Reading tables at indices that are known to be within them, and binary search, on the device.

`table[index]` also wraps negative indices around, which takes five operations more, and those of
`jnp.take_along_axis` take twenty. A sampling program has a hundred of them.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


def look_up(table: Array, *index: Int[Array, "..."]) -> Array:
    """Reads some entries of a table.

    Args:
      table: any array.
      *index: an index from 0 for each of the table's first axes, of shapes that broadcast; one past
        the end reads the last entry.

    Returns:
      `table[*index]`.
    """
    # As `table.at[index].get(mode="clip", wrap_negative_indices=False)`, which takes several times
    # as long to trace.
    index = tuple(jnp.broadcast_arrays(*index))
    where, firsts = index[0].ndim, tuple(range(len(index)))
    rest = table.shape[len(index) :]
    starts = [jax.lax.expand_dims(each, (where,)) for each in index]
    return jax.lax.gather(
        table,
        jax.lax.concatenate(starts, where) if len(starts) > 1 else starts[0],
        jax.lax.GatherDimensionNumbers(
            offset_dims=tuple(range(where, where + len(rest))),
            collapsed_slice_dims=firsts,
            start_index_map=firsts,
        ),
        slice_sizes=(1,) * len(index) + rest,
        mode="clip",
    )


def look_up_by_row(table: Array, index: Int[Array, "rows columns"]) -> Array:
    """Reads some entries of each row.

    Args:
      table: an array with as many rows as `index`.
      index: columns, from 0 and below the number of columns.

    Returns:
      An array of the shape of `index`, and of further axes that the table has.
    """
    index = index.reshape(*index.shape, *[1] * (table.ndim - 2))
    return jnp.take_along_axis(table, index, axis=1, mode="promise_in_bounds")


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
        # A shift compiles to one operation. `//` takes ten, to handle negative numbers, which don't
        # occur, and the loop is unrolled.
        middle = (low + high) >> 1
        less = (look_up(keys, middle) < wanted) & (low < high)
        low, high = jnp.where(less, middle + 1, low), jnp.where(less, high, middle)
    return low

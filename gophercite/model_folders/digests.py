"""Digests of arrays that don't depend on the arrays' sharding.

Orbax silently restores a file with a flipped bit, so checkpoints store a digest of every array. A
cryptographic hash would need each entire array, in order, on one host. Ours is two sums modulo 2³²
over the bit patterns of the elements and their indices. Addition is commutative, so it runs inside
the compiled program on sharded arrays of many processes, transfers 8 bytes per array, and is the
same on every mesh. It guards against accidents, not against forgery: any change of a single element
is always detected, and any other damage except with probability about 2⁻³².
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt32

_GOLDEN = 0x9E3779B9


class Digest(NamedTuple):
    """The two sums of one array, and the number of its elements that are NaN or infinite."""

    place_weighted: int
    mixed: int
    non_finite: int


def digests(arrays: Mapping[str, Shaped[Array, "..."]]) -> dict[str, Digest]:
    """Digests of many arrays; waits for them.

    Args:
      arrays: named arrays with any sharding; in a run of several processes, all must call this
        together.

    Returns:
      The digest of each, the same in every process.
    """
    # In the same order in all processes, and one after the other: there may be collectives in each.
    return {name: Digest(*np.asarray(_digest(arrays[name])).tolist()) for name in sorted(arrays)}


@jax.jit  # compiled once per shape and sharding; a model with its optimizer has many equal ones
def _digest(array: Shaped[Array, "..."]) -> UInt32[Array, "3"]:
    bits = _bits(array)
    place = _places(bits.shape)
    # An odd factor has an inverse modulo 2³², so a change of one element is always detected.
    weighted = bits * (place * 2 + 1)
    mixed = _avalanche(bits ^ _avalanche(place * np.uint32(_GOLDEN) + 1))
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    non_finite = jnp.sum(~jnp.isfinite(array), dtype=jnp.uint32) if floating else jnp.uint32(0)
    total = functools.partial(jnp.sum, dtype=jnp.uint32)
    return jnp.stack([total(weighted), total(mixed), non_finite])


def _bits(array: Shaped[Array, "..."]) -> UInt32[Array, "..."]:
    """The elements' bit patterns; an element of eight bytes becomes a pair."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    width = min(array.dtype.itemsize, 4)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[width]
    return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)


def _places(shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Each element's index in row-major order, modulo 2³²."""
    place = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        index = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place += index * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return place


def _avalanche(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection of 32 bits in which every input bit affects every output bit (MurmurHash3's)."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

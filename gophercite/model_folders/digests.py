"""Digests of arrays that don't depend on the arrays' sharding.

Orbax silently restores a file with a flipped bit, so checkpoints store a digest of every array. A
cryptographic hash would need each entire array, in order, on one host. Ours is two sums modulo 2³²
over the bit patterns of the elements and their indices. Addition is commutative, so it runs inside
the compiled program on sharded arrays of many processes, transfers 8 bytes per array, and is the
same on every mesh. It guards against accidents, not against forgery: any change of a single element
is always detected, and any other damage except with probability about 2⁻³².

A small array that this process can read is summed on the host: to compile a program for its shape
would take longer.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt32

_GOLDEN = 0x9E3779B9
_SMALL = 2**16  # bytes
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
# Numbers of JAX or of NumPy.
A = TypeVar("A", bound=Any)


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
    return {name: _digest(arrays[name]) for name in sorted(arrays)}


def _digest(array: Shaped[Array, "..."]) -> Digest:
    is_small = array.is_fully_addressable and array.nbytes <= _SMALL
    sums = _sums_on_host(np.asarray(array)) if is_small else np.asarray(_sums(array))
    return Digest(*sums.tolist())


@jax.jit  # compiled once per shape and sharding; a model with its optimizer has many equal ones
def _sums(array: Shaped[Array, "..."]) -> UInt32[Array, "3"]:
    bits = _bits(array)
    weighted, mixed = _weighted_and_mixed(bits, _places(bits.shape))
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    non_finite = jnp.sum(~jnp.isfinite(array), dtype=jnp.uint32) if floating else jnp.uint32(0)
    total = functools.partial(jnp.sum, dtype=jnp.uint32)
    return jnp.stack([total(weighted), total(mixed), non_finite])


def _sums_on_host(array: Shaped[np.ndarray, "..."]) -> UInt32[np.ndarray, "3"]:
    """What `_sums` computes, without a program."""
    unsigned = _UNSIGNED[min(array.dtype.itemsize, 4)]
    bits = np.frombuffer(array.tobytes(), unsigned).astype(np.uint32)
    weighted, mixed = _weighted_and_mixed(bits, np.arange(bits.size, dtype=np.uint32))
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    non_finite = np.sum(~np.isfinite(array)) if floating else 0
    total = functools.partial(np.sum, dtype=np.uint32)
    return np.array([total(weighted), total(mixed), non_finite], np.uint32)


def _weighted_and_mixed(bits: A, place: A) -> tuple[A, A]:
    # An odd factor has an inverse modulo 2³², so a change of one element is always detected.
    weighted = bits * (place * 2 + 1)
    return weighted, _avalanche(bits ^ _avalanche(place * np.uint32(_GOLDEN) + 1))


def _bits(array: Shaped[Array, "..."]) -> UInt32[Array, "..."]:
    """The elements' bit patterns; an element of eight bytes becomes a pair."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.uint32)
    unsigned = _UNSIGNED[min(array.dtype.itemsize, 4)]
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


def _avalanche(x: A) -> A:
    """A bijection of 32 bits in which every input bit affects every output bit (MurmurHash3's)."""
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

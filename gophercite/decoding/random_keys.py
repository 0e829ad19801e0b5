"""Random keys, made by NumPy: JAX would compile a few small programs, which take 0.1 s to begin."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Int, Key


def keys_of_seeds(seeds: Sequence[int]) -> Key[Array, " seeds"]:
    """Returns `jax.random.key` of each seed.

    Args:
      seeds: integers, of which the lowest 32 bits count.
    """
    low = np.array([seed % (1 << 32) for seed in seeds], np.uint32)
    usual = jax.config.jax_default_prng_impl  # type: ignore[attr-defined]
    if usual == "threefry2x32":  # its key is the seed, in two words
        words = jax.device_put(np.stack([np.zeros_like(low), low], axis=1))
        return jax.random.wrap_key_data(words, impl=usual)
    return jax.vmap(jax.random.key)(low)


def take_keys(keys: Key[Array, "*keys"], rows: Int[np.ndarray, " rows"]) -> Key[Array, " rows"]:
    """Returns the keys at some indices.

    Args:
      keys: several keys, or a single one, which is at all indices.
      rows: the indices.
    """
    words = np.asarray(jax.random.key_data(keys))
    chosen = np.stack([words] * len(rows)) if keys.ndim == 0 else words[rows]
    return jax.random.wrap_key_data(jax.device_put(chosen), impl=jax.random.key_impl(keys))

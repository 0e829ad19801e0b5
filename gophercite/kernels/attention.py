"""Attention of samples to their prompt and to their own tokens, for XLA's CPU backend.

XLA's own code writes all scores to memory, reads all entries of a cache, whether filled or not, and
reads a row's own entries on a single core. It takes up to four times as long as `attention.cc`
(benchmarks/kernel_attention.py).
"""

import functools
import math
import pathlib

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.kernels.compilation import library

LANES = 16  # `head_dim` is a multiple of this, the number of floats in the widest vectors
NAME = "gophercite_shared_prompt_attention"


@functools.cache
def is_available() -> bool:
    """Whether the kernel can be used: not if this machine can't compile it.

    The first call on a machine compiles it, which takes seconds.
    """
    compiled = library(pathlib.Path(__file__).with_suffix(".cc"))
    if compiled is None:
        return False
    jax.ffi.register_ffi_target(NAME, jax.ffi.pycapsule(compiled.SharedPromptAttention))
    return True


def shared_prompt_attention(
    q: Float[Array, "prompts kv_heads samples queries head_dim"],
    prompt_keys: Float[Array, "prompts kv_heads length head_dim"],
    prompt_values: Float[Array, "prompts kv_heads length head_dim"],
    own_keys: Float[Array, "*rows capacity head_dim"],
    own_values: Float[Array, "*rows capacity head_dim"],
    seen: Bool[Array, "prompts samples new capacity"],
    lengths: Int[Array, " prompts"],
    taken: Int[Array, ""],
    layer: Int[Array, ""],
) -> Float[Array, "prompts kv_heads samples queries head_dim"]:
    """Attends from new tokens to their prompt, which samples share, and to their sample's tokens.

    Nothing out of bounds is read: lengths, `taken` or a layer out of range are errors when the
    program runs (ValueError or `jax.errors.JaxRuntimeError`).

    Args:
      q: scaled queries. The axis `queries` of a sample has the query heads that share a key head in
        order, and for each of these all new tokens in order. `head_dim` is a multiple of 16.
      prompt_keys: the prompts' keys.
      prompt_values: the prompts' values.
      own_keys: keys of each sample's own tokens: [prompts, kv_heads, samples, capacity, head_dim],
        or with a leading axis of layers; axes of size 1 may be dropped.
      own_values: values of each sample's own tokens, likewise.
      seen: which of its sample's own entries each new token attends to, including itself. A token
        that attends to none is padding; its result is finite but meaningless.
      lengths: number of tokens in each prompt; each new token attends to all of them, and not to
        padding.
      taken: no token attends to own entries from here on.
      layer: index of the layer in own keys and values; 0 without a layer axis.

    Returns:
      The weighted values, in float32.

    Raises:
      RuntimeError: the kernel is not available.
      TypeError: keys or values are not float32.
      ValueError: an argument's size does not fit the others'.
    """
    if not is_available():
        raise RuntimeError("the attention kernel was not compiled: check is_available() first")
    keys_and_values = prompt_keys, prompt_values, own_keys, own_values
    if names := sorted({str(x.dtype) for x in keys_and_values} - {"float32"}):
        raise TypeError(f"keys and values must be float32, and some are {', '.join(names)}")
    prompts, kv_heads, samples, queries, width = q.shape
    (_, _, length, _), (_, _, new, capacity) = prompt_keys.shape, seen.shape
    sizes_fit = (
        prompt_keys.shape == prompt_values.shape == (prompts, kv_heads, length, width)
        and own_keys.shape == own_values.shape == (*own_keys.shape[:-2], capacity, width)
        and math.prod(own_keys.shape[:-2]) % max(1, prompts * kv_heads * samples) == 0
        and seen.shape == (prompts, samples, new, capacity)
        and lengths.shape == (prompts,)
        and 0 not in (*q.shape, new, capacity)
        and queries % new == width % LANES == 0
    )
    arguments = q.astype(jnp.float32), *keys_and_values, seen, lengths, taken, layer
    if not sizes_fit:
        shapes = ", ".join(str(jnp.shape(x)) for x in arguments)
        raise ValueError(f"shared_prompt_attention: sizes do not fit each other: {shapes}")
    call = jax.ffi.ffi_call(NAME, jax.ShapeDtypeStruct(q.shape, jnp.float32))
    return call(*arguments[:6], *(jnp.asarray(x, jnp.int32) for x in arguments[6:]))

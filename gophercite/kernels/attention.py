"""Attention of samples to their prompt and to their own tokens, for XLA's CPU backend.

XLA's own code writes all scores to memory, reads all entries of a cache, filled or not, and reads a
row's own entries with a single core; that takes up to four times as long as `attention.cc`
(benchmarks/kernel_attention.py).
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.kernels.compilation import library

_NAME = "gophercite_shared_prompt_attention"


@functools.cache
def is_available() -> bool:
    """Whether the kernel is there: if this machine can't compile it, it isn't.

    The first call on a machine takes the seconds of the compilation.
    """
    compiled = library(pathlib.Path(__file__).with_suffix(".cc"))
    if compiled is None:
        return False
    handler = jax.ffi.pycapsule(compiled.GophercitePromptAttention)
    jax.ffi.register_ffi_target(_NAME, handler, platform="cpu")
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

    Sizes that don't fit each other, and lengths, `taken` or a layer out of range, are errors when
    the program runs (ValueError or `jax.errors.JaxRuntimeError`): nothing out of bounds is read.

    Args:
      q: scaled queries; for each sample, the query heads that share a key head in order, and within
        each of them all new tokens in order. `head_dim` is a multiple of 16.
      prompt_keys: the prompts' keys.
      prompt_values: the prompts' values.
      own_keys: keys of each sample's own tokens: [prompts, kv_heads, samples, capacity, head_dim],
        or with a leading axis of layers; axes of size 1 may be dropped.
      own_values: the same for values.
      seen: which of its sample's own entries each new token attends to, including itself; a token
        that attends to none is padding, and its result is finite but meaningless.
      lengths: number of tokens in each prompt; each new token attends to all of them, and not to
        padding.
      taken: no token attends to own entries from here on.
      layer: index of the layer in own keys and values; 0 without a layer axis.

    Returns:
      The weighted values, in float32.

    Raises:
      RuntimeError: the kernel is not available.
      TypeError: keys and values are neither all float32 nor all bfloat16.
    """
    if not is_available():
        raise RuntimeError("the attention kernel was not compiled: check is_available() first")
    dtypes = {x.dtype for x in (prompt_keys, prompt_values, own_keys, own_values)}
    if len(dtypes) > 1 or not dtypes <= {jnp.dtype("float32"), jnp.dtype("bfloat16")}:
        names = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"keys and values are {names}; all must be float32, or all bfloat16")
    q = q.astype(jnp.float32)
    call = jax.ffi.ffi_call(_NAME, jax.ShapeDtypeStruct(q.shape, q.dtype))
    integers = (x.astype(jnp.int32) for x in map(jnp.asarray, (lengths, taken, layer)))
    return call(q, prompt_keys, prompt_values, own_keys, own_values, seen, *integers)

"""Attention with the kernel of `gophercite.kernels`, for models and machines that it supports.

It has no gradients: sampling and scoring use it, training does not.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from gophercite.kernels.attention import LANES, is_available, shared_prompt_attention
from gophercite.models.attention import Heads, KeyHeads
from gophercite.models.cache import Entries, LayerCache
from gophercite.models.cached_attention import by_prompt, by_token
from gophercite.models.config import TransformerConfig
from gophercite.partitioning import active_platform

_BLOCK = 64  # queries of a prompt: larger blocks read more masked keys, smaller need more calls


def has_kernel(config: TransformerConfig) -> bool:
    """Whether our kernel supports a model's attention on this machine.

    It is for CPUs on which it can be compiled, for a single device, and for scores that depend only
    on query and key. It reads only the filled entries of the samples in a cache; without it, all
    entries are read.

    Args:
      config: the model's configuration.
    """
    return (
        active_platform() == "cpu"
        and jax.sharding.get_abstract_mesh().size <= 1
        and config.attention_kernel == "auto"
        and config.dtype == "float32"
        and config.head_dim % LANES == 0
        and config.position in ("rope", "learned")
        and config.window is None
        and config.attention_softcap is None
        and is_available()
    )


def cached_attention_by_kernel(
    q: Heads,
    cache: LayerCache,
    positions: Int[Array, "batch length"],
    entries: Entries,
    *,
    scale: float | None = None,
) -> Heads:
    """Like `cached_attention`, for models with `has_kernel`; arguments as there."""
    content = by_prompt(q, cache, scale)
    places = positions.reshape(*entries.positions.shape[:2], -1, 1)
    mixed = shared_prompt_attention(
        content.reshape(*content.shape[:3], -1, content.shape[-1]),
        cache.prompt_keys,
        cache.prompt_values,
        cache.keys,
        cache.values,
        entries.attended() & (places >= entries.positions[:, :, None]),
        entries.lengths,
        jnp.minimum(entries.next, entries.filled.shape[2]),
        jnp.zeros((), jnp.int32) if cache.layer is None else cache.layer,
    )
    return by_token(mixed.reshape(content.shape), q.shape).astype(q.dtype)


def causal_attention_by_kernel(
    q: Heads,
    k: KeyHeads,
    v: KeyHeads,
    lengths: Int[Array, " batch"],
    *,
    scale: float | None = None,
) -> Heads:
    """Like `attention.attention` with one sequence per row, for models with `has_kernel`.

    Each block of queries is treated as the new tokens of a sample: the tokens before the block are
    its prompt, and the block is the sample's own entries. Keys are read in place.

    Args:
      q: queries, unscaled.
      k: keys.
      v: values.
      lengths: number of tokens in each row; the rest is padding.
      scale: factor on queries; `head_dim ** -0.5` when None.

    Returns:
      The weighted values, in `q`'s dtype. Rows of padding are finite but meaningless.
    """
    batch, length, heads, head_dim = q.shape
    kv_heads, block = k.shape[2], min(_BLOCK, length)
    blocks = -(-length // block)

    def by_head(x: Array) -> Array:
        """[batch, kv_heads, groups, blocks * block, head_dim]."""
        x = jnp.pad(x, ((0, 0), (0, -length % block), (0, 0), (0, 0)))
        return jnp.moveaxis(x, 1, 2).reshape(batch, kv_heads, -1, blocks * block, head_dim)

    def in_blocks(x: Array) -> Array:
        """[blocks, batch, kv_heads, 1, groups * block, head_dim]."""
        x = jnp.moveaxis(x.reshape(*x.shape[:3], blocks, block, head_dim), 3, 0)
        return x.reshape(blocks, batch, kv_heads, 1, -1, head_dim)

    queries = in_blocks(by_head(q * (head_dim**-0.5 if scale is None else scale)))
    keys, values = by_head(k), by_head(v)
    own_keys, own_values = in_blocks(keys), in_blocks(values)
    before = jnp.tril(jnp.ones((block, block), bool))
    seen = jnp.broadcast_to(before, (batch, 1, block, block))

    def attend(of_block: tuple[Array, Array]) -> Array:
        queries, i = of_block
        shown = jnp.minimum(lengths, i * block)
        whole = jnp.asarray(block, jnp.int32)
        return shared_prompt_attention(
            queries, keys[:, :, 0], values[:, :, 0], own_keys, own_values, seen, shown, whole, i
        )

    mixed = jax.lax.map(attend, (queries, jnp.arange(blocks, dtype=jnp.int32)))
    mixed = mixed.reshape(blocks, batch, heads, block, head_dim)
    mixed = jnp.transpose(mixed, (1, 0, 3, 2, 4)).reshape(batch, -1, heads, head_dim)
    return mixed[:, :length].astype(q.dtype)

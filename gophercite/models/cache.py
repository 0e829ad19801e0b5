"""The KV cache: keys and values of each prompt once, and of each of its samples separately.

N samples of one prompt share its keys and values without a copy: their queries are rows of one
matrix, which is multiplied with the prompt's keys. Only the tokens that a sample adds have their
own entries. The tokens of sample j of prompt p are in row `p * samples + j` of a batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.models.positions import Rotations
from gophercite.partitioning import constrain


class LayerCache(NamedTuple):
    """One layer's keys and values, and (Transformer-XL) its projected distances.

    Attributes:
      prompt_keys: the prompts' keys; padding repeats the key of a prompt's first token.
      prompt_values: the prompts' values; zeros on padding.
      keys: keys of the tokens that each sample added, [prompts, kv_heads, samples, capacity,
        head_dim], with axes of size 1 among the first three dropped. (XLA's CPU backend would drop
        them where the keys are read, not where they are written, and copy all keys in every step.)
      values: the same for values.
      relative: Transformer-XL's key for each distance.
      layer: this layer's index, if `keys` and `values` hold all layers on a leading axis; None if
        they hold only this layer.
    """

    prompt_keys: Float[Array, "prompts kv_heads length head_dim"]
    prompt_values: Float[Array, "prompts kv_heads length head_dim"]
    keys: Float[Array, "*rows capacity head_dim"]
    values: Float[Array, "*rows capacity head_dim"]
    relative: Float[Array, "distances heads head_dim"] | None
    layer: Int[Array, ""] | None = None


class Entries(NamedTuple):
    """The cache's layout: which token is where; the same for all layers.

    Attributes:
      lengths: number of tokens in each prompt; its remaining entries are padding.
      positions: position in its sequence of each sample's own entry.
      filled: whether each of the samples' own entries holds a token.
      next: number of tokens added to each row so far. They take its entries in turn; when all are
        taken, the oldest is overwritten.
      seen: in a pass, the entries that each new token may attend to. None means all those of its
        row.
    """

    lengths: Int[Array, " prompts"]
    positions: Int[Array, "prompts samples capacity"]
    filled: Bool[Array, "prompts samples capacity"]
    next: Int[Array, ""]
    seen: Bool[Array, "prompts samples length capacity"] | None = None

    def attended(self) -> Bool[Array, "prompts samples #length capacity"]:
        """The entries that new tokens may attend to; those of later positions are left out, too."""
        return self.filled[:, :, None] if self.seen is None else self.seen


class Cache(NamedTuple):
    """A model's KV cache.

    Attributes:
      layers: keys and values of all layers: one `LayerCache` with a leading axis of layers, or one
        per layer.
      entries: their layout.
      rotations: rotary angles of all positions that there is room for; None for other kinds of
        positions.
    """

    layers: LayerCache | tuple[LayerCache, ...]
    entries: Entries
    rotations: Rotations | None


def empty_entries(lengths: Int[Array, " prompts"], samples: int, capacity: int) -> Entries:
    """The layout right after the prompts.

    Args:
      lengths: number of tokens in each prompt.
      samples: number of rows that continue each prompt.
      capacity: number of tokens that each row may add.

    Returns:
      Empty entries.
    """
    shape = (lengths.shape[0], samples, capacity)
    return Entries(
        lengths, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool), jnp.zeros((), jnp.int32)
    )


def enter_tokens(
    entries: Entries, positions: Int[Array, "batch length"], real: Bool[Array, "batch length"]
) -> Entries:
    """Assigns the next entries to new tokens.

    Args:
      entries: the layout before.
      positions: the new tokens' positions in their sequences.
      real: False where a token is padding.

    Returns:
      The layout with the new tokens.
    """

    def put(old: Array, new: Array) -> Array:
        rows = new.reshape(*old.shape[:2], -1)
        return jax.lax.dynamic_update_slice_in_dim(old, rows, first_entry(entries, 0), axis=2)

    return Entries(
        entries.lengths,
        put(entries.positions, positions),
        put(entries.filled, real),
        entries.next + positions.shape[1],
    )


def first_entry(entries: Entries, back: int) -> Int[Array, ""]:
    """The entry `back` tokens before the next; that many entries must not wrap around the end."""
    return (entries.next - back) % entries.positions.shape[2]


def forget_rows(cache: Cache, forgotten: Bool[Array, "prompts samples"]) -> Cache:
    """Removes all tokens that some rows added to their prompts, so that they can start again."""
    entries = cache.entries
    return cache._replace(entries=entries._replace(filled=entries.filled & ~forgotten[..., None]))


def replace_prompts(cache: Cache, places: Int[Array, " some"], other: Cache) -> Cache:
    """Replaces prompts in the cache.

    Args:
      cache: the cache of all prompts; rows must have no tokens after the prompts to be replaced.
      places: indices of the prompts to be replaced.
      other: the cache of the new prompts, padded to the same length.

    Returns:
      The cache with the new prompts.
    """

    def put(layer: LayerCache, new: LayerCache) -> LayerCache:
        return layer._replace(
            prompt_keys=layer.prompt_keys.at[..., places, :, :, :].set(new.prompt_keys),
            prompt_values=layer.prompt_values.at[..., places, :, :, :].set(new.prompt_values),
        )

    layers: LayerCache | tuple[LayerCache, ...]
    if isinstance(cache.layers, LayerCache) or isinstance(other.layers, LayerCache):
        assert isinstance(cache.layers, LayerCache)
        assert isinstance(other.layers, LayerCache)
        layers = put(cache.layers, other.layers)
    else:
        layers = tuple(map(put, cache.layers, other.layers))
    lengths = cache.entries.lengths.at[places].set(other.entries.lengths)
    return cache._replace(layers=layers, entries=cache.entries._replace(lengths=lengths))


def with_capacity(cache: Cache, capacity: int) -> Cache:
    """Adds entries to each row; no entry may have been overwritten yet.

    Args:
      cache: a cache with fewer entries.
      capacity: new number of entries per row.

    Returns:
      The cache; existing tokens stay where they were.
    """
    added = capacity - cache.entries.filled.shape[2]

    def longer(x: Array, axis: int) -> Array:
        return jnp.pad(x, [(0, added if i == axis % x.ndim else 0) for i in range(x.ndim)])

    def enlarged(layer: LayerCache) -> LayerCache:
        return layer._replace(keys=longer(layer.keys, -2), values=longer(layer.values, -2))

    layers: LayerCache | tuple[LayerCache, ...]
    if isinstance(cache.layers, LayerCache):
        layers = enlarged(cache.layers)
    else:
        layers = tuple(map(enlarged, cache.layers))
    entries = cache.entries._replace(
        positions=longer(cache.entries.positions, -1), filled=longer(cache.entries.filled, -1)
    )
    return cache._replace(layers=layers, entries=entries)


def empty_rows(
    prompt_keys: Float[Array, "prompts kv_heads length head_dim"], samples: int, capacity: int
) -> Float[Array, "*rows capacity head_dim"]:
    """Allocates the keys, or values, of `capacity` tokens after each sample's prompt."""
    prompts, kv_heads, _, head_dim = prompt_keys.shape
    return _stored(jnp.zeros((prompts, kv_heads, samples, capacity, head_dim), prompt_keys.dtype))


def add_tokens(
    cache: LayerCache,
    keys: Float[Array, "batch length kv_heads head_dim"],
    values: Float[Array, "batch length kv_heads head_dim"],
    start: Int[Array, ""],
) -> LayerCache:
    """Writes new tokens' keys and values into the entries from `start` on."""
    prompts = cache.prompt_keys.shape[0]
    batch, length, kv_heads, head_dim = keys.shape

    def put(old: Array, new: Array) -> Array:
        rows = new.reshape(prompts, batch // prompts, length, kv_heads, head_dim)
        rows = _stored(jnp.transpose(rows, (0, 3, 1, 2, 4)))
        if cache.layer is None:
            return jax.lax.dynamic_update_slice_in_dim(old, rows, start, axis=old.ndim - 2)
        # Only these entries of all layers' rows are written.
        at: list[Array | int] = [cache.layer, *[0] * (rows.ndim - 2), start, 0]
        return jax.lax.dynamic_update_slice(old, rows[None], at)

    return cache._replace(keys=put(cache.keys, keys), values=put(cache.values, values))


def own_rows(cache: LayerCache) -> tuple[Array, Array]:
    """A layer's keys and values of the tokens that each sample added.

    Args:
      cache: the layer's cache.

    Returns:
      Both, [prompts, kv_heads, samples, capacity, head_dim].
    """
    prompts, kv_heads = cache.prompt_keys.shape[:2]

    def of_layer(rows: Array) -> Array:
        if cache.layer is not None:
            rows = jax.lax.dynamic_index_in_dim(rows, cache.layer, keepdims=False)
        return rows.reshape(prompts, kv_heads, -1, *rows.shape[-2:])

    return of_layer(cache.keys), of_layer(cache.values)


def _stored(
    rows: Float[Array, "prompts kv_heads samples length head_dim"],
) -> Float[Array, "*rows length head_dim"]:
    """Drops axes of size 1; shards by prompt over the mesh, or by sample if that doesn't divide."""
    axes = [
        (name, size)
        for name, size in zip(("batch", "kv_heads", "batch"), rows.shape[:3], strict=True)
        if size > 1
    ]
    rows = rows.reshape(*(size for _, size in axes), *rows.shape[3:])
    return constrain(rows, *(name for name, _ in axes), None, None)

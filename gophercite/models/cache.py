"""Keys and values of what was read so far: of prompts once, of each of their samples apart.

N samples of one prompt share its keys and values without a copy: their queries are rows of one
matrix that meets the prompt's keys, and only what each sample added is its own. The tokens of
sample j of prompt p stand in row `p * samples + j` of a batch.
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
      prompt_keys: of the prompts; the padding behind one repeats its first token's.
      prompt_values: of the prompts; zeros behind them.
      keys: of what each sample added, [prompts, kv_heads, samples, capacity, head_dim], without
        those of the first three axes that have one element. (XLA's CPU backend would leave them out
        where the keys are read, not where they are written, and copy all keys in every step.)
      values: likewise.
      relative: Transformer-XL's key of each distance.
      layer: where `keys` and `values` are all layers', on a leading axis, which of them this one
        is; None where they are its own.
    """

    prompt_keys: Float[Array, "prompts kv_heads length head_dim"]
    prompt_values: Float[Array, "prompts kv_heads length head_dim"]
    keys: Float[Array, "*rows capacity head_dim"]
    values: Float[Array, "*rows capacity head_dim"]
    relative: Float[Array, "distances heads head_dim"] | None
    layer: Int[Array, ""] | None = None


class Entries(NamedTuple):
    """Which token lies where in the cache; the same for all layers.

    Attributes:
      lengths: tokens of each prompt; what its other entries hold is padding.
      positions: each own entry's place in its sequence.
      filled: own entries that hold a token.
      next: tokens that were added to each row. They take its entries in turn; when all are taken,
        the oldest token's is taken again.
    """

    lengths: Int[Array, " prompts"]
    positions: Int[Array, "prompts samples capacity"]
    filled: Bool[Array, "prompts samples capacity"]
    next: Int[Array, ""]


class Cache(NamedTuple):
    """What a model has read.

    Attributes:
      layers: keys and values of all layers: one with a leading axis of layers, or one for each.
      entries: where they lie.
      rotations: rotary angles of all places that there is room for; None with other positions.
    """

    layers: LayerCache | tuple[LayerCache, ...]
    entries: Entries
    rotations: Rotations | None


def empty_entries(lengths: Int[Array, " prompts"], samples: int, capacity: int) -> Entries:
    """The layout after the prompts.

    Args:
      lengths: tokens of each prompt.
      samples: rows that go on from each prompt.
      capacity: tokens that each row may add.

    Returns:
      Entries without a token.
    """
    shape = (lengths.shape[0], samples, capacity)
    return Entries(
        lengths, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool), jnp.zeros((), jnp.int32)
    )


def enter_tokens(
    entries: Entries, positions: Int[Array, "batch length"], real: Bool[Array, "batch length"]
) -> Entries:
    """Gives new tokens the next entries.

    Args:
      entries: the layout before.
      positions: the new tokens' places in their sequences.
      real: False where a token is padding.

    Returns:
      The layout with them.
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
    """The entry of the token so many before the next; several must not run past the end."""
    return (entries.next - back) % entries.positions.shape[2]


def forget_rows(cache: Cache, forgotten: Bool[Array, "prompts samples"]) -> Cache:
    """Takes back all that rows added to their prompts, so that they can begin anew."""
    entries = cache.entries
    return cache._replace(entries=entries._replace(filled=entries.filled & ~forgotten[..., None]))


def replace_prompts(cache: Cache, places: Int[Array, " some"], other: Cache) -> Cache:
    """Puts prompts in the place of others.

    Args:
      cache: of all prompts, with nothing that rows added to those which go.
      places: of these.
      other: what was read of those that come; as long, with padding.

    Returns:
      The cache with them.
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


def keep_first(cache: Cache, kept: Int[Array, "prompts samples"], length: int) -> Cache:
    """Takes back all but the first of the tokens that were just added.

    Args:
      cache: with them.
      kept: of each row, how many stay.
      length: how many were added.

    Returns:
      The cache; entries of what was taken back stay empty until `compact`.
    """
    entries = cache.entries
    added = jnp.arange(entries.filled.shape[2]) - first_entry(entries, length)
    dropped = (added >= kept[..., None]) & (added < length)
    return cache._replace(entries=entries._replace(filled=entries.filled & ~dropped))


def compact(cache: Cache) -> Cache:
    """Moves each row's tokens to its first entries, so that those behind them can be taken anew."""
    entries = cache.entries
    order = jnp.argsort(~entries.filled, axis=-1, stable=True)
    moved = lambda x: jnp.take_along_axis(x, order, axis=-1)  # noqa: E731
    filled = moved(entries.filled)

    # Of one sample of one prompt; whole rows of a head's are moved, not elements.
    of_sample = lambda rows, order: jnp.take(rows, order, axis=1, mode="clip")  # noqa: E731
    of_all = jax.vmap(jax.vmap(of_sample, in_axes=(1, 0), out_axes=1))

    def move(layer: LayerCache) -> LayerCache:
        prompts, kv_heads = layer.prompt_keys.shape[:2]
        shape = (prompts, kv_heads, entries.filled.shape[1], *layer.keys.shape[-2:])
        keys, values = (
            _stored(of_all(rows.reshape(shape), order)) for rows in (layer.keys, layer.values)
        )
        return layer._replace(keys=keys, values=values)

    if isinstance(cache.layers, LayerCache):
        layers: LayerCache | tuple[LayerCache, ...] = jax.vmap(move)(cache.layers)
    else:
        layers = tuple(move(layer) for layer in cache.layers)
    taken = jnp.max(jnp.sum(filled, axis=-1)).astype(jnp.int32)
    entries = Entries(entries.lengths, moved(entries.positions), filled, taken)
    return cache._replace(layers=layers, entries=entries)


def with_capacity(cache: Cache, capacity: int) -> Cache:
    """Gives rows that have taken none of their entries twice more of them.

    Args:
      cache: with fewer.
      capacity: entries that each row has then.

    Returns:
      The cache; what was read lies where it was.
    """
    more = capacity - cache.entries.filled.shape[2]

    def longer(x: Array, axis: int) -> Array:
        return jnp.pad(x, [(0, more if i == axis % x.ndim else 0) for i in range(x.ndim)])

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
    """Room for the keys, or values, of so many tokens after each sample's prompt."""
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
        # Of all layers' rows nothing but these is written.
        at: list[Array | int] = [cache.layer, *[0] * (rows.ndim - 2), start, 0]
        return jax.lax.dynamic_update_slice(old, rows[None], at)

    return cache._replace(keys=put(cache.keys, keys), values=put(cache.values, values))


def own_rows(cache: LayerCache) -> tuple[Array, Array]:
    """A layer's keys and values of what each sample added.

    Args:
      cache: the layer's.

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
    """Without axes of one element; over the mesh by prompt, or by sample where that doesn't go."""
    axes = [
        (name, size)
        for name, size in zip(("batch", "kv_heads", "batch"), rows.shape[:3], strict=True)
        if size > 1
    ]
    rows = rows.reshape(*(size for _, size in axes), *rows.shape[3:])
    return constrain(rows, *(name for name, _ in axes), None, None)

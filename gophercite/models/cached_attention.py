"""Attention from new tokens to a KV cache: a prompt shared by samples, and each sample's tokens."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.models.attention import MASKED, Heads, RelativePositions, Window
from gophercite.models.cache import Entries, LayerCache, own_rows
from gophercite.models.distance_biases import Biases, bias_at
from gophercite.models.soft_capping import soft_cap

Content = Float[Array, "prompts kv_heads samples groups length head_dim"]


def cached_attention(
    q: Heads,
    cache: LayerCache,
    positions: Int[Array, "batch length"],
    entries: Entries,
    *,
    relative: RelativePositions | None = None,
    biases: Biases | None = None,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Heads:
    """Attends from new tokens to a cache that already holds them.

    All samples of a prompt are multiplied with its keys in one product; the two parts of each
    softmax, over the prompt and over the sample's own tokens, are combined through their sums.

    Args:
      q: queries of the new tokens, unscaled.
      cache: keys and values, including the new tokens'.
      positions: positions of the new tokens in their sequences.
      entries: the cache's layout.
      relative: Transformer-XL's positions.
      biases: T5's positions.
      window: number of tokens back that a query attends to, including itself.
      scale: factor on queries; `head_dim ** -0.5` when None.
      softcap: soft cap on the scores; None for none.

    Returns:
      The weighted values, in `q`'s dtype.
    """
    length, heads, head_dim = q.shape[1:]
    prompts, samples = entries.positions.shape[:2]
    kv_heads = cache.prompt_keys.shape[1]
    groups = heads // kv_heads
    own_keys, own_values = own_rows(cache)

    prepared = partial(by_prompt, cache=cache, scale=scale)
    content = prepared(q if relative is None else q + relative.content_bias.astype(q.dtype))
    biased = None
    if relative is not None:
        biased = prepared(q + relative.position_bias.astype(q.dtype))
    places = positions.reshape(prompts, samples, length, 1)

    def scores(keys: Array, key_places: Array, filled: Array, masked: bool = True) -> Array:
        """[prompts, kv_heads, samples, groups, length, entries]."""
        if keys.ndim == 4:  # the prompt's keys, shared by all samples
            rows = content.reshape(prompts, kv_heads, -1, head_dim)
            found = jnp.einsum("pkrd,pkjd->pkrj", rows, keys, preferred_element_type=jnp.float32)
        else:
            rows = content.reshape(prompts, kv_heads, samples, -1, head_dim)
            found = jnp.einsum("pknrd,pknjd->pknrj", rows, keys, preferred_element_type=jnp.float32)
        found = found.reshape(*content.shape[:-1], -1)
        distance = places - key_places
        if relative is not None and biased is not None:
            found += _by_distance(biased, relative.keys, distance)
        if biases is not None:
            by_slot = bias_at(biases, distance).reshape(kv_heads, groups, *distance.shape)
            found += jnp.transpose(by_slot, (2, 0, 3, 1, 4, 5))
        found = soft_cap(found, softcap)
        if not masked:
            return found
        mask = (distance >= 0) & filled
        if window is not None:
            mask &= distance < window
        return jnp.where(mask[:, None, :, None], found, MASKED)

    prompt_places = jnp.arange(cache.prompt_keys.shape[2])
    in_prompt = prompt_places < entries.lengths[:, None, None, None]
    # If a key's position doesn't matter, padding scores like the first token: it does not change
    # the maximum, and its values are zeros. So it only has to be left out of the sum of the
    # weights, which saves passes over all scores.
    places_matter = window is not None or relative is not None or biases is not None
    far = scores(cache.prompt_keys, prompt_places, in_prompt, masked=places_matter)
    near = scores(own_keys, entries.positions[:, :, None], entries.attended())
    counted = None if places_matter else in_prompt[:, 0, 0]
    mixed = _mix_values(far, near, counted, cache.prompt_values, own_values, q.dtype)
    return by_token(mixed, q.shape)


def by_prompt(q: Heads, cache: LayerCache, scale: float | None) -> Content:
    """Scales the queries and groups those that attend to the same keys."""
    batch, length, heads, head_dim = q.shape
    prompts, kv_heads = cache.prompt_keys.shape[:2]
    q = q * (head_dim**-0.5 if scale is None else scale)
    q = q.reshape(prompts, batch // prompts, length, kv_heads, heads // kv_heads, head_dim)
    return jnp.transpose(q, (0, 3, 1, 4, 2, 5))


def by_token(mixed: Content, shape: tuple[int, ...]) -> Heads:
    """Restores the layout of the queries."""
    return jnp.transpose(mixed, (0, 2, 4, 1, 3, 5)).reshape(shape)


def _mix_values(
    far: Float[Array, "prompts kv_heads samples groups length prompt_slots"],
    near: Float[Array, "prompts kv_heads samples groups length capacity"],
    counted: Bool[Array, "prompts prompt_slots"] | None,
    prompt_values: Float[Array, "prompts kv_heads prompt_slots head_dim"],
    own_values: Float[Array, "prompts kv_heads samples capacity head_dim"],
    dtype: jnp.dtype,
) -> Content:
    """Weights values by one softmax over the scores of the prompt and of the sample's own tokens.

    Entries of the prompt that are not counted get no weight; their values must be 0.
    """
    prompts, kv_heads, samples = far.shape[:3]
    shape = (*far.shape[:-1], prompt_values.shape[-1])
    peak = jnp.maximum(far.max(axis=-1, keepdims=True), near.max(axis=-1, keepdims=True))
    far, near = jnp.exp(far - peak), jnp.exp(near - peak)
    of_prompt = far.sum(axis=-1, keepdims=True)
    if counted is not None:
        # In float32: an accelerator's default precision would round the weights.
        of_prompt = jnp.einsum(
            "pknglj,pj->pkngl", far, counted.astype(far.dtype), precision=jax.lax.Precision.HIGHEST
        )[..., None]
    total = of_prompt + near.sum(axis=-1, keepdims=True)
    mixed = jnp.einsum(
        "pkrj,pkjd->pkrd",
        far.astype(dtype).reshape(prompts, kv_heads, -1, far.shape[-1]),
        prompt_values,
        preferred_element_type=jnp.float32,
    ).reshape(shape)
    mixed += jnp.einsum(
        "pknrj,pknjd->pknrd",
        near.astype(dtype).reshape(prompts, kv_heads, samples, -1, near.shape[-1]),
        own_values,
        preferred_element_type=jnp.float32,
    ).reshape(shape)
    return (mixed / total).astype(dtype)


def _by_distance(
    biased: Content,
    keys: Float[Array, "distances heads head_dim"],
    distance: Int[Array, "prompts samples length entries"],
) -> Float[Array, "prompts kv_heads samples groups length entries"]:
    """Transformer-XL's scores of the distances between new tokens and entries."""
    kv_heads, groups, head_dim = biased.shape[1], biased.shape[3], biased.shape[5]
    found = jnp.einsum(
        "pkngqd,ikgd->pkngqi",
        biased,
        keys.reshape(-1, kv_heads, groups, head_dim).astype(biased.dtype),
        preferred_element_type=jnp.float32,
    )
    index = jnp.clip(distance, 0, keys.shape[0] - 1)[:, None, :, None]
    return jnp.take_along_axis(found, index, axis=-1)

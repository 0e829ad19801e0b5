"""Causal attention: our own in blocks, cuDNN's, and the TPU's splash kernel."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gophercite.models.distance_biases import Biases, bias_by_key
from gophercite.models.positions import align_distances
from gophercite.models.products import KEPT, batched_product, kept
from gophercite.models.soft_capping import soft_cap
from gophercite.partitioning import active_platform, active_spec

# Not -inf: a row in which everything is masked (padding) must stay finite.
MASKED = -1e30

Heads = Float[Array, "batch length heads head_dim"]
KeyHeads = Float[Array, "batch length kv_heads head_dim"]
Window = int | Int[Array, ""] | None


class Branched(NamedTuple):
    """Segments that may branch: several texts with a common prefix, which is computed once.

    A token attends to the earlier tokens of its segment that are in branch 0, the prefix, or in its
    own branch. In each branch, positions count from the start of the segment.

    Attributes:
      segments: segment number of each token in packed sequences; 0 is padding.
      branches: 0 for a segment's prefix, then 1, 2, … for its continuations.
    """

    segments: Int[Array, "batch length"]
    branches: Int[Array, "batch length"]


Segments = Int[Array, "batch length"] | Branched


def sees(segments: Segments, rows: slice, keys: slice) -> Bool[Array, "batch rows keys"]:
    """Whether a query's and a key's token belong to the same text, in either order.

    Args:
      segments: the segments of a batch's tokens.
      rows: the queries' tokens.
      keys: the keys' tokens.
    """
    if not isinstance(segments, Branched):
        return segments[:, rows, None] == segments[:, None, keys]
    numbers, branches = segments
    same = numbers[:, rows, None] == numbers[:, None, keys]
    of_key = branches[:, None, keys]
    return same & ((of_key == 0) | (of_key == branches[:, rows, None]))


class RelativePositions(NamedTuple):
    """Transformer-XL's additional inputs to the scores (Dai et al. 2019, section 3.3).

    Attributes:
      keys: the projected sinusoid of each distance, W_r R_d; row d is for distance d.
      content_bias: u, added to the query before the product with keys.
      position_bias: v, added to the query before the product with distances.
    """

    keys: Float[Array, "distances heads head_dim"]
    content_bias: Float[Array, "heads head_dim"]
    position_bias: Float[Array, "heads head_dim"]


def attention(
    q: Heads,
    k: KeyHeads,
    v: KeyHeads,
    segments: Segments,
    *,
    relative: RelativePositions | None = None,
    biases: Biases | None = None,
    window: Window = None,
    scale: float | None = None,
    softcap: float | None = None,
    kernel: str = "auto",
    block: int = 512,
    remat: bool = True,
) -> Heads:
    """Causal attention within segments; each token attends to itself, too.

    Args:
      q: queries, unscaled.
      k: keys; query head h uses key head `h // (heads / kv_heads)`.
      v: values.
      segments: segment number of each token in packed sequences; 0 is padding. Segments may branch
        if positions are already in queries and keys: without window, `relative` or `biases`, and
        not with "splash".
      relative: Transformer-XL's positions; None if rotary positions are already in `q` and `k`.
      biases: T5's positions, added to the scores.
      window: number of tokens back that a query attends to, including itself.
      scale: factor on queries; `head_dim ** -0.5` when None.
      softcap: soft cap on the scores; None for none.
      kernel: "auto", "blocks", "cudnn" or "splash" (see `TransformerConfig.attention_kernel`).
      block: number of query rows per block of our own attention.
      remat: recompute probabilities in the backward pass of our own attention.

    Returns:
      The weighted values, in `q`'s dtype. Rows of padding are finite but meaningless.

    Raises:
      ValueError: segments branch where this is not supported, or the fused kernel that `kernel`
        names can't run here.
    """
    chosen = kernel
    positions_apart = relative is not None or biases is not None
    if kernel == "auto":
        chosen = "blocks" if positions_apart else _platform_kernel(q, window, softcap)
        if chosen == "splash" and isinstance(segments, Branched):
            chosen = "blocks"
    if isinstance(segments, Branched) and (
        positions_apart or window is not None or chosen == "splash"
    ):
        # All of these compute distances from the tokens' places in the row.
        raise ValueError(
            "rows with branching segments (Input.share_beginnings) need rotary or learned "
            "positions, no window, and an attention_kernel other than 'splash'"
        )
    _check_kernel(chosen, q.shape[1])
    if chosen == "cudnn":
        return _cudnn(q, k, v, segments, window, scale)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if chosen == "splash" and not isinstance(segments, Branched):
        return _splash(q, k, v, segments, window, scale, softcap)
    return _blocks(q, k, v, segments, relative, biases, window, scale, softcap, block, remat)


def _platform_kernel(q: Heads, window: Window, softcap: float | None) -> str:
    """The fused kernel that applies here, or "blocks".

    Both fused kernels need static windows, full tiles of 128 tokens and heads of 64 or 128; cuDNN
    also needs half precision and no soft cap.
    """
    tiles = q.shape[1] % 128 == 0 and q.shape[-1] in (64, 128)
    if isinstance(window, jax.Array) or not tiles:
        return "blocks"
    platform = active_platform()
    if platform == "gpu" and q.dtype in (jnp.bfloat16, jnp.float16) and softcap is None:
        return "cudnn"
    if platform == "tpu" and q.shape[-1] == 128:
        return "splash"
    return "blocks"


def _check_kernel(kernel: str, length: int) -> None:
    """Refuses a fused kernel where it can't run, before its own less readable errors."""
    otherwise = "; attention_kernel = 'auto' takes a fused kernel only where one can run"
    if kernel == "splash" and length % 128:
        raise ValueError(
            f"attention_kernel = 'splash': rows have {length} tokens, and this kernel needs a "
            f"multiple of 128{otherwise}"
        )
    platform = active_platform()
    if kernel == "cudnn" and platform != "gpu":
        raise ValueError(
            f"attention_kernel = 'cudnn': this is a {platform}, and this kernel needs a GPU"
            f"{otherwise}"
        )


def _blocks(
    q: Heads,
    k: KeyHeads,
    v: KeyHeads,
    segments: Segments,
    relative: RelativePositions | None,
    biases: Biases | None,
    window: Window,
    scale: float,
    softcap: float | None,
    block: int,
    remat: bool,
) -> Heads:
    """Attends in blocks of rows, each to the keys up to its last row: skips later keys."""
    length, heads, head_dim = q.shape[1:]
    groups = heads // k.shape[2]
    content, position = q, None
    if relative is not None:
        content = q + relative.content_bias.astype(q.dtype)
        position = _by_head((q + relative.position_bias.astype(q.dtype)) * scale, groups)
    queries = _by_head(content * scale, groups)  # [batch, kv_heads, groups, length, head_dim]
    keys, values = (jnp.moveaxis(x, 2, 1) for x in (k, v))  # [batch, kv_heads, length, head_dim]
    rows = np.arange(length)

    def attend(start: int, stop: int) -> Callable[..., Float[Array, "b k g rows d"]]:
        first = 0
        if isinstance(window, int):
            first = max(0, start - window + 1) if relative is None else 0

        def run(
            queries: Array, position: Array | None, keys: Array, values: Array, segments: Segments
        ) -> Array:
            scores = _scores(queries[..., start:stop, :], keys[..., first:stop, :])
            if relative is not None and position is not None:
                falling = jnp.flip(relative.keys[:stop], 0).astype(queries.dtype)
                by_distance = jnp.einsum(
                    "bkgqd,jkgd->bkgqj",
                    position[..., start:stop, :],
                    falling.reshape(stop, -1, groups, head_dim),
                    preferred_element_type=jnp.float32,
                )
                scores += align_distances(by_distance)
            if biases is not None:
                by_key = bias_by_key(biases, stop - start, stop - first)
                scores += by_key.reshape(scores.shape[1:])
            scores = soft_cap(scores, softcap)
            distance = rows[start:stop, None] - rows[None, first:stop]
            seen = jnp.asarray(distance >= 0)
            if window is not None:
                seen &= jnp.asarray(distance) < window
            same = sees(segments, slice(start, stop), slice(first, stop))
            mask = (seen & same)[:, None, None]
            return _mix(not remat, scores, mask, values[..., first:stop, :])

        return jax.checkpoint(run) if remat else run

    outputs = [
        attend(start, min(start + block, length))(queries, position, keys, values, segments)
        for start in range(0, length, block)
    ]
    mixed = kept(jnp.concatenate(outputs, axis=-2))
    return jnp.moveaxis(mixed.reshape(mixed.shape[0], heads, length, head_dim), 1, 2)


def _scores(
    queries: Float[Array, "batch kv_heads groups rows head_dim"],
    keys: Float[Array, "batch kv_heads entries head_dim"],
) -> Float[Array, "batch kv_heads groups rows entries"]:
    """Float32 products of queries and keys.

    A group's queries are rows of one matrix: for gradients of a product over two axes, operands
    would first be transposed in memory, which on CPU costs more than the product.
    """
    scores = batched_product("bkqd,bkjd->bkqj", _rows(queries), keys, dtype=jnp.float32)
    return scores.reshape(*queries.shape[:-1], -1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mix(
    keep: bool,
    scores: Float[Array, "batch kv_heads groups rows entries"],
    mask: Bool[Array, "batch 1 1 rows entries"],
    values: Float[Array, "batch kv_heads entries head_dim"],
) -> Float[Array, "batch kv_heads groups rows head_dim"]:
    """Values weighted by the softmax of the unmasked scores; rows as in `_scores`.

    The softmax's gradient needs each row's mean slope, which is the product of the output and its
    gradient (Dao et al. 2022, appendix B.2). Autodiff would sum it over the entries and apply the
    mask again. `keep` is whether the weights are `kept` for it.
    """
    return _mix_forward(keep, scores, mask, values)[0]


def _mix_forward(keep: bool, scores: Array, mask: Array, values: Array) -> tuple[Array, Any]:
    weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1)
    weights = weights.astype(values.dtype)
    if keep:
        weights = kept(weights)
    mixed = batched_product("bkqj,bkjd->bkqd", _rows(weights), values)
    mixed = mixed.reshape(*weights.shape[:-1], -1)
    return mixed, (weights, values, mixed)


def _mix_backward(keep: bool, residuals: Any, slope: Array) -> tuple[Array, None, Array]:
    weights, values, mixed = residuals
    for_values = batched_product("bkqj,bkqd->bkjd", _rows(weights), _rows(slope))
    for_weights = batched_product(
        "bkqd,bkjd->bkqj", _rows(slope), values, dtype=jnp.float32
    ).reshape(weights.shape)
    mean = jnp.sum(slope.astype(jnp.float32) * mixed, axis=-1, keepdims=True)
    return weights * (for_weights - mean), None, for_values


_mix.defvjp(_mix_forward, _mix_backward)


def _rows(x: Float[Array, "batch kv_heads groups rows n"]) -> Float[Array, "batch kv_heads q n"]:
    """Flattens the queries that share a key head to rows of one matrix."""
    return x.reshape(*x.shape[:2], -1, x.shape[-1])


def _by_head(x: Heads, groups: int) -> Float[Array, "batch kv_heads groups length head_dim"]:
    """Groups query heads by the key head that they share."""
    batch, length, heads, head_dim = x.shape
    return jnp.moveaxis(x, 1, 2).reshape(batch, heads // groups, groups, length, head_dim)


def _cudnn(
    q: Heads,
    k: KeyHeads,
    v: KeyHeads,
    segments: Segments,
    window: Window,
    scale: float | None,
) -> Heads:
    """cuDNN's fused attention; segments become its mask."""
    same = sees(segments, slice(None), slice(None))[:, None]
    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        mask=same,
        scale=scale,
        is_causal=True,
        local_window_size=(int(window) - 1, 0) if window is not None else None,
        implementation="cudnn",
    )


def _splash(
    q: Heads,
    k: KeyHeads,
    v: KeyHeads,
    segments: Int[Array, "batch length"],
    window: Window,
    scale: float,
    softcap: float | None,
) -> Heads:
    """The TPU's splash attention: block-sparse, so fully masked blocks cost nothing.

    The partitioner can't shard a Pallas call, so `shard_map` gives each device its rows and heads.
    On platforms other than TPU the kernel is interpreted, which is meant for tests.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel as kernel,
    )
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    shape = (q.shape[1], q.shape[1])
    mask = (
        masks.CausalMask(shape)
        if window is None
        else masks.LocalMask(shape, (int(window) - 1, 0), 0)
    )
    interpret = active_platform() != "tpu"

    def run(queries: Array, keys: Array, values: Array, segments: Array) -> Array:
        attend = kernel.make_splash_mha_single_device(
            masks.MultiHeadMask([mask] * queries.shape[1]),
            attn_logits_soft_cap=softcap,
            residual_checkpoint_name=KEPT,
            interpret=interpret,
        )
        ids = kernel.SegmentIds(segments, segments)
        return jax.vmap(attend)(queries, keys, values, segment_ids=ids)

    groups = q.shape[2] // k.shape[2]
    queries, keys, values = (jnp.moveaxis(x, 1, 2) for x in (q * scale, k, v))
    keys, values = (jnp.repeat(x, groups, axis=1) for x in (keys, values))
    if not jax.sharding.get_abstract_mesh().empty:
        by_head = active_spec(("batch", "heads", None, None), queries.shape)
        by_row = active_spec(("batch", None), segments.shape)
        run = jax.shard_map(
            run, in_specs=(by_head, by_head, by_head, by_row), out_specs=by_head, check_vma=False
        )
    return jnp.moveaxis(run(queries, keys, values, segments), 1, 2).astype(q.dtype)

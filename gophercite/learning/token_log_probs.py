"""Log-probabilities of sampled tokens, differentiable, without ever holding all logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from gophercite.learning.cross_entropy import in_chunks
from gophercite.models.attention import MASKED
from gophercite.models.unembedding import Unembedding


class TokenLogProbs(NamedTuple):
    """Statistics of the next-token distribution at each position.

    Attributes:
      log_prob: log-probability of the drawn token, renormalised over the allowed ones, in nats.
      entropy: entropy of the distribution over the allowed tokens, in nats; not differentiable.
    """

    log_prob: Float[Array, "rows places"]
    entropy: Float[Array, "rows places"]


def token_log_probs(
    hidden: Float[Array, "rows places d_model"],
    unembedding: Unembedding,
    tokens: Int[Array, "rows places"],
    allowed: UInt8[Array, "rows places bytes"] | None,
    vocabulary_size: int,
    chunk: int | None = None,
) -> TokenLogProbs:
    """Computes the drawn tokens' log-probabilities; the gradient recomputes each chunk's logits.

    Args:
      hidden: representations before each token.
      unembedding: maps them to logits.
      tokens: the drawn tokens.
      allowed: which tokens could be drawn (`Experience.allowed`); all when None.
      vocabulary_size: the model's ids from here on are unused and never drawn.
      chunk: number of positions whose logits are in memory at once, over all rows; None is the
        platform's usual number.
    """

    @jax.checkpoint
    def of_chunk(leaf: tuple[Array, ...]) -> tuple[Array, Array]:
        x, drawn, *masks = leaf
        logits = unembedding.logits_by_row(x)[..., :vocabulary_size]
        if masks:
            logits = jnp.where(unpacked(masks[0], vocabulary_size), logits, MASKED)
        log_p = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_p, drawn[..., None], axis=-1)[..., 0]
        return chosen, -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    parts = (hidden, tokens) if allowed is None else (hidden, tokens, allowed)
    by_chunk = jax.lax.map(of_chunk, in_chunks(chunk, *parts))
    rows, places = tokens.shape
    log_prob, entropy = (
        jnp.moveaxis(part, 0, 1).reshape(rows, -1)[:, :places] for part in by_chunk
    )
    return TokenLogProbs(log_prob, jax.lax.stop_gradient(entropy))


def unpacked(bits: UInt8[Array, "*rows bytes"], size: int) -> Array:
    """Unpacks booleans from bits, eight to a byte, the first in the lowest bit.

    Args:
      bits: bits as returned by `packed`.
      size: size of the result's last axis.
    """
    apart = (bits[..., None] >> jnp.arange(8, dtype=jnp.uint8)) & 1
    return apart.reshape(*bits.shape[:-1], -1)[..., :size].astype(bool)


def packed(mask: Array) -> UInt8[Array, "*rows bytes"]:
    """The inverse of `unpacked`; the last byte is padded with zeros."""
    missing = -mask.shape[-1] % 8
    whole = jnp.pad(mask.astype(jnp.uint8), [(0, 0)] * (mask.ndim - 1) + [(0, missing)])
    apart = whole.reshape(*whole.shape[:-1], -1, 8)
    return jnp.sum(apart << jnp.arange(8, dtype=jnp.uint8), axis=-1, dtype=jnp.uint8)

"""Cross-entropy over a vocabulary, without ever holding all logits.

The logits of 4096 tokens over 32,000 pieces are half a gigabyte, and autodiff keeps them twice.
Here tokens go in chunks, and each chunk's gradient is formed while its logits are still at hand:
they are made once, used, and gone.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.soft_capping import before_soft_cap
from gophercite.models.unembedding import Unembedding
from gophercite.partitioning import constrain


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def cross_entropy(
    hidden: Float[Array, "batch length d_model"],
    unembedding: Unembedding,
    targets: Int[Array, "batch length"],
    weights: Float[Array, "batch length"],
    z_loss: float = 0.0,
    chunk: int = 512,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Weighted sum of the tokens' losses.

    Args:
      hidden: the model's representations.
      unembedding: what turns them into logits.
      targets: the token that should come next.
      weights: of each token's loss; 0 leaves it out.
      z_loss: coefficient of log²Z, which keeps logits from drifting (Chowdhery et al. 2022, 5).
      chunk: tokens whose logits exist at once, over all sequences of the batch.

    Returns:
      The objective, Σ w (nll + z_loss · log²Z), which is differentiable in `hidden` and
      `unembedding`, and Σ w · nll in nats, which is not.
    """

    def body(
        sums: tuple[Array, Array], leaf: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], None]:
        x, target, weight = leaf
        logits = unembedding.logits_by_row(x)
        log_z = jax.nn.logsumexp(logits, axis=-1)
        nll = weight * (log_z - _at(logits, target))
        z = z_loss * weight * jnp.square(log_z)
        return (sums[0] + jnp.sum(nll + z), sums[1] + jnp.sum(nll)), None

    zeros = (jnp.zeros(()), jnp.zeros(()))
    return jax.lax.scan(body, zeros, in_chunks(chunk, hidden, targets, weights))[0]


def _forward(
    hidden: Array,
    unembedding: Unembedding,
    targets: Array,
    weights: Array,
    z_loss: float,
    chunk: int,
) -> tuple[tuple[Array, Array], tuple[Array, Unembedding]]:
    kernel = unembedding.kernel

    def body(
        sums: tuple[Array, Array, Array], leaf: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        objective, total, for_kernel = sums
        x, target, weight = leaf
        logits = unembedding.logits_by_row(x)
        peak = jnp.max(logits, axis=-1, keepdims=True)
        exponentials = jnp.exp(logits - peak)
        partition = jnp.sum(exponentials, axis=-1, keepdims=True)
        log_z = (jnp.log(partition) + peak)[..., 0]
        nll = weight * (log_z - _at(logits, target))
        z = z_loss * weight * jnp.square(log_z)
        scale = weight * (1.0 + 2.0 * z_loss * log_z)
        slope = exponentials * (scale[..., None] / partition)
        hit = jnp.arange(kernel.shape[0]) == target[..., None]
        slope = jnp.where(hit, slope - weight[..., None], slope)
        slope = before_soft_cap(slope, logits, unembedding.softcap).astype(hidden.dtype)
        slope = constrain(slope, "batch", "length", "vocab")
        # Tokens as rows of one matrix: see `Unembedding.logits_by_row`.
        rows, inputs = slope.reshape(-1, slope.shape[-1]), x.reshape(-1, x.shape[-1])
        for_hidden = (rows @ kernel.astype(hidden.dtype)).reshape(x.shape)
        for_kernel += jnp.einsum("tv,td->vd", rows, inputs, preferred_element_type=jnp.float32)
        return (objective + jnp.sum(nll + z), total + jnp.sum(nll), for_kernel), for_hidden

    zeros = (jnp.zeros(()), jnp.zeros(()), jnp.zeros(kernel.shape, jnp.float32))
    chunks = in_chunks(chunk, hidden, targets, weights)
    (objective, total, for_kernel), for_hidden = jax.lax.scan(body, zeros, chunks)
    batch, length, width = hidden.shape
    for_hidden = jnp.moveaxis(for_hidden, 0, 1).reshape(batch, -1, width)[:, :length]
    for_unembedding = Unembedding(for_kernel.astype(kernel.dtype), unembedding.softcap)
    return (objective, total), (for_hidden, for_unembedding)


def _backward(
    z_loss: float,
    chunk: int,
    gradients: tuple[Array, Unembedding],
    slopes: tuple[Array, Array],
) -> tuple[Array, Unembedding, None, None]:
    slope = slopes[0]  # the second value only reports; the docstring says so
    scaled: tuple[Array, Unembedding] = jax.tree.map(
        lambda gradient: gradient * slope.astype(gradient.dtype), gradients
    )
    return (*scaled, None, None)


cross_entropy.defvjp(_forward, _backward)


def correct_predictions(
    hidden: Float[Array, "batch length d_model"],
    unembedding: Unembedding,
    targets: Int[Array, "batch length"],
    weights: Float[Array, "batch length"],
    chunk: int = 512,
) -> Float[Array, ""]:
    """Weighted count of tokens whose likeliest prediction is right (arguments as above)."""

    def body(total: Array, leaf: tuple[Array, ...]) -> tuple[Array, None]:
        x, target, weight = leaf
        right = jnp.argmax(unembedding.logits_by_row(x), axis=-1) == target
        return total + jnp.sum(weight * right), None

    return jax.lax.scan(body, jnp.zeros(()), in_chunks(chunk, hidden, targets, weights))[0]


def _at(logits: Array, target: Array) -> Array:
    return jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]


def in_chunks(chunk: int, *arrays: Array) -> tuple[Array, ...]:
    """Cuts [batch, length, …] along the length into [chunks, batch, tokens, …], padded with zeros.

    Cutting the length and not the flat list of tokens leaves the batch's sharding alone.
    """
    batch, length = arrays[0].shape[:2]
    tokens = max(1, min(length, chunk // batch))
    count = -(-length // tokens)

    def cut(array: Array) -> Array:
        room = [(0, 0), (0, count * tokens - length)] + [(0, 0)] * (array.ndim - 2)
        padded = jnp.pad(array, room)
        return jnp.moveaxis(padded.reshape(batch, count, tokens, *array.shape[2:]), 1, 0)

    return tuple(cut(array) for array in arrays)

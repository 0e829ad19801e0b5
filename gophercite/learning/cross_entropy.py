"""Cross-entropy over a vocabulary, without ever holding all logits.

The logits of 4096 tokens over 32,000 pieces take half a gigabyte, and autodiff keeps them twice.
Here tokens are processed in chunks, and each chunk's gradient is computed while its logits are in
memory: logits are computed once, used, and freed. Tokens of weight 0 (prompts and padding, which
are most tokens in fine-tuning) need no logits at all: each row's weighted tokens are moved to the
front, and the loop over chunks stops after the last of them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.products import product
from gophercite.models.soft_capping import before_soft_cap
from gophercite.models.unembedding import Unembedding
from gophercite.partitioning import active_platform, constrain

# Tokens in a chunk: a CPU's caches hold the logits of few, an accelerator is only busy with many.
_ON_CPU, _ON_ACCELERATOR = 512, 4096

_Sums = TypeVar("_Sums")


@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def cross_entropy(
    hidden: Float[Array, "batch length d_model"],
    unembedding: Unembedding,
    targets: Int[Array, "batch length"],
    weights: Float[Array, "batch length"],
    z_loss: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Weighted sum of the tokens' losses.

    Args:
      hidden: the model's representations.
      unembedding: maps them to logits.
      targets: the next token at each position.
      weights: weight of each token's loss; 0 leaves it out.
      z_loss: coefficient of log²Z, which keeps logits from drifting (Chowdhery et al. 2022, 5).
      chunk: number of tokens whose logits are in memory at once, over all sequences of the batch;
        None is the platform's usual number.

    Returns:
      The objective, Σ w (nll + z_loss · log²Z), which is differentiable in `hidden` and
      `unembedding`, and Σ w · nll in nats, which is not.
    """

    def body(sums: tuple[Array, Array], leaf: Chunk) -> tuple[Array, Array]:
        logits = unembedding.logits_by_row(leaf.hidden)
        log_z = jax.nn.logsumexp(logits, axis=-1)
        nll = leaf.weights * (log_z - _at(logits, leaf.targets))
        z = z_loss * leaf.weights * jnp.square(log_z)
        return sums[0] + jnp.sum(nll + z), sums[1] + jnp.sum(nll)

    chunks = _weighted_first(chunk, hidden, targets, weights)
    return chunks.fold(body, (jnp.zeros(()), jnp.zeros(())))


class Chunk(NamedTuple):
    """Some tokens of each row, [batch, tokens, …], with their targets and weights."""

    hidden: Float[Array, "*rows tokens d_model"]
    targets: Int[Array, "*rows tokens"]
    weights: Float[Array, "*rows tokens"]


class _Chunks(NamedTuple):
    """A batch's tokens in chunks; in each row, tokens with nonzero weight come first.

    Attributes:
      leaves: all chunks, [chunks, batch, tokens, …].
      needed: number of chunks that hold a token with nonzero weight.
      places: the original position in its row of each token in the new order.
    """

    leaves: Chunk
    needed: Int[Array, ""]
    places: Int[Array, "batch length"]

    def fold(self, body: Callable[[_Sums, Chunk], _Sums], sums: _Sums) -> _Sums:
        """Folds `body` over the needed chunks."""
        return self.loop(lambda i, sums: body(sums, self.at(i)), sums)

    def loop(self, body: Callable[[Array, _Sums], _Sums], sums: _Sums) -> _Sums:
        """Runs `body` for each needed chunk's number; named for `planning.compiled`."""
        with jax.named_scope(f"at_most.{len(self.leaves.weights)}"):
            return jax.lax.fori_loop(0, self.needed, body, sums)

    def at(self, i: Array) -> Chunk:
        """Chunk i."""
        pick = partial(jax.lax.dynamic_index_in_dim, index=i, keepdims=False)
        return Chunk(*(pick(leaf) for leaf in self.leaves))

    def in_place(
        self, by_chunk: Float[Array, "chunks batch tokens d_model"]
    ) -> Float[Array, "batch length d_model"]:
        """Moves what was computed for each token back to the token's original position."""
        batch, length = self.places.shape
        joined = jnp.moveaxis(by_chunk, 0, 1).reshape(batch, -1, by_chunk.shape[-1])[:, :length]
        back = jnp.argsort(self.places, axis=1)
        return jnp.take_along_axis(joined, back[..., None], axis=1)


def _weighted_first(chunk: int | None, hidden: Array, targets: Array, weights: Array) -> _Chunks:
    counts = weights != 0
    places = jnp.argsort(~counts, axis=1, stable=True)
    leaves = Chunk(
        *in_chunks(
            chunk,
            jnp.take_along_axis(hidden, places[..., None], axis=1),
            jnp.take_along_axis(targets, places, axis=1),
            jnp.take_along_axis(weights, places, axis=1),
        )
    )
    longest = jnp.max(jnp.sum(counts, axis=1))
    return _Chunks(leaves, -(-longest // leaves.weights.shape[2]), places)


def _forward(
    hidden: Array,
    unembedding: Unembedding,
    targets: Array,
    weights: Array,
    z_loss: float,
    chunk: int | None,
) -> tuple[tuple[Array, Array], tuple[Array, Unembedding]]:
    kernel = unembedding.kernel

    chunks = _weighted_first(chunk, hidden, targets, weights)

    def body(
        i: Array, sums: tuple[Array, Array, Array, Array]
    ) -> tuple[Array, Array, Array, Array]:
        objective, total, for_kernel, for_hidden = sums
        x, target, weight = chunks.at(i)
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
        # Flatten tokens to rows of one matrix: see `Unembedding.logits_by_row`.
        rows, inputs = slope.reshape(-1, slope.shape[-1]), x.reshape(-1, x.shape[-1])
        of_x = product(rows, kernel.astype(hidden.dtype)).reshape(x.shape)
        for_kernel += jnp.einsum("tv,td->vd", rows, inputs, preferred_element_type=jnp.float32)
        for_hidden = jax.lax.dynamic_update_index_in_dim(for_hidden, of_x, i, 0)
        return objective + jnp.sum(nll + z), total + jnp.sum(nll), for_kernel, for_hidden

    zeros = (
        jnp.zeros(()),
        jnp.zeros(()),
        jnp.zeros(kernel.shape, jnp.float32),
        jnp.zeros_like(chunks.leaves.hidden),
    )
    objective, total, for_kernel, by_chunk = chunks.loop(body, zeros)
    for_unembedding = Unembedding(for_kernel.astype(kernel.dtype), unembedding.softcap)
    return (objective, total), (chunks.in_place(by_chunk), for_unembedding)


def _backward(
    z_loss: float,
    chunk: int | None,
    gradients: tuple[Array, Unembedding],
    slopes: tuple[Array, Array],
) -> tuple[Array, Unembedding, None, None]:
    slope = slopes[0]  # the second value is not differentiable (see the docstring)
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
    chunk: int | None = None,
) -> Float[Array, ""]:
    """Weighted count of tokens that are predicted correctly by argmax (arguments as above)."""

    def body(total: Array, leaf: Chunk) -> Array:
        right = jnp.argmax(unembedding.logits_by_row(leaf.hidden), axis=-1) == leaf.targets
        return total + jnp.sum(leaf.weights * right)

    return _weighted_first(chunk, hidden, targets, weights).fold(body, jnp.zeros(()))


def _at(logits: Array, target: Array) -> Array:
    return jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]


def in_chunks(chunk: int | None, *arrays: Array) -> tuple[Array, ...]:
    """Splits [batch, length, …] along the length into [chunks, batch, tokens, …], zero-padded.

    Splitting the length, not the flattened tokens, preserves the batch's sharding. None is the
    platform's usual number of tokens in a chunk, over all rows.
    """
    if chunk is None:
        chunk = _ON_CPU if active_platform() == "cpu" else _ON_ACCELERATOR
    batch, length = arrays[0].shape[:2]
    tokens = max(1, min(length, chunk // batch))
    count = -(-length // tokens)

    def cut(array: Array) -> Array:
        room = [(0, 0), (0, count * tokens - length)] + [(0, 0)] * (array.ndim - 2)
        padded = jnp.pad(array, room)
        return jnp.moveaxis(padded.reshape(batch, count, tokens, *array.shape[2:]), 1, 0)

    return tuple(cut(array) for array in arrays)

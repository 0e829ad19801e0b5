"""What has been sampled so far, on the device."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class FrozenActivations(NamedTuple):
    """What the trained stack read, for a learner that reads on from there.

    See `Transformer.frozen_activations`.

    Attributes:
      prompts: of the prompts' tokens.
      samples: of each sample's; zeros from its last token on, which nothing is drawn after.
    """

    prompts: Float[Array, "prompts length d_model"]
    samples: Float[Array, "prompts samples max_tokens d_model"]


class Decoded(NamedTuple):
    """What has been sampled, by prompt and sample; `sampler.Samples` says what most parts are."""

    tokens: Int[Array, "prompts samples max_tokens"]
    lengths: Int[Array, "prompts samples"]
    log_probs: Float[Array, "prompts samples max_tokens"] | None
    constrained_log_probs: Float[Array, "prompts samples max_tokens"] | None
    faults: Int[Array, "prompts samples"] | None
    passes: Int[Array, ""]
    frozen_activations: FrozenActivations | None


def nothing_yet(
    shape: tuple[int, int, int],
    pad_id: int,
    *,
    free: bool,
    constrained: bool,
    faults: bool,
    frozen_activations: Float[Array, "prompts length d_model"] | None,
) -> Decoded:
    """Room for samples.

    Args:
      shape: prompts, samples of each, and tokens of each at most.
      pad_id: fills the room.
      free: whether log-probabilities under the model itself are wanted.
      constrained: whether those among allowed tokens are.
      faults: whether faults are.
      frozen_activations: what the trained stack read of the prompts, where that is wanted.

    Returns:
      Samples without a token.
    """
    zeros = jnp.zeros(shape, jnp.float32)
    read = None
    if frozen_activations is not None:
        own = jnp.zeros((*shape, frozen_activations.shape[-1]), frozen_activations.dtype)
        read = FrozenActivations(frozen_activations, own)
    return Decoded(
        tokens=jnp.full(shape, pad_id, jnp.int32),
        lengths=jnp.zeros(shape[:2], jnp.int32),
        log_probs=zeros if free else None,
        constrained_log_probs=zeros if constrained else None,
        faults=jnp.zeros(shape[:2], jnp.int32) if faults else None,
        passes=jnp.zeros((), jnp.int32),
        frozen_activations=read,
    )


def with_frozen_activations(
    made: Decoded,
    sample: Int[Array, "prompts rows"],
    position: Int[Array, "prompts rows"],
    frozen_activations: Float[Array, "batch length d_model"],
    was_read: Bool[Array, "prompts rows length"],
) -> Decoded:
    """The samples with what the trained stack read of some of their tokens, where that is wanted.

    Args:
      made: the samples so far.
      sample: which of its prompt's samples each row is at.
      position: of the first of the tokens in it.
      frozen_activations: what was read of each token; a prompt's rows are neighbours.
      was_read: False for tokens that are no part of the sample.

    Returns:
      The samples with it.
    """
    kept = made.frozen_activations
    if kept is None:
        return made
    prompts, rows, length = was_read.shape
    # What is no part is written past the last sample, which is nowhere.
    samples = jnp.where(was_read, sample[..., None], made.tokens.shape[1])
    positions = position[..., None] + jnp.arange(length)
    read = frozen_activations.reshape(prompts, rows, length, -1)
    at = kept.samples.at[jnp.arange(prompts)[:, None, None], samples, positions]
    return made._replace(frozen_activations=kept._replace(samples=at.set(read, mode="drop")))

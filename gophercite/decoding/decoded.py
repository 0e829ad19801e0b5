"""What has been sampled so far, on the device."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class FrozenActivations(NamedTuple):
    """The inputs of the trained layers, so that a learner need not run the frozen layers again.

    See `Transformer.frozen_activations`.

    Attributes:
      prompts: activations of the prompts' tokens.
      samples: activations of each sample's tokens; zeros from its last token on, because that
        token predicts nothing.
    """

    prompts: Float[Array, "prompts length d_model"]
    samples: Float[Array, "prompts samples max_tokens d_model"]


class Decoded(NamedTuple):
    """The samples so far, by prompt and sample; `sampler.Samples` describes most fields."""

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
    """Allocates empty samples.

    Args:
      shape: number of prompts, samples per prompt, and maximum tokens per sample.
      pad_id: fills the tokens.
      free: whether to record log-probabilities under the model itself.
      constrained: whether to record those among allowed tokens.
      faults: whether to record faults.
      frozen_activations: the inputs of the trained layers at the prompts' tokens; None if they are
        not wanted.

    Returns:
      Samples without tokens.
    """
    zeros = jnp.zeros(shape, jnp.float32)
    activations = None
    if frozen_activations is not None:
        own = jnp.zeros((*shape, frozen_activations.shape[-1]), frozen_activations.dtype)
        activations = FrozenActivations(frozen_activations, own)
    return Decoded(
        tokens=jnp.full(shape, pad_id, jnp.int32),
        lengths=jnp.zeros(shape[:2], jnp.int32),
        log_probs=zeros if free else None,
        constrained_log_probs=zeros if constrained else None,
        faults=jnp.zeros(shape[:2], jnp.int32) if faults else None,
        passes=jnp.zeros((), jnp.int32),
        frozen_activations=activations,
    )


def with_frozen_activations(
    made: Decoded,
    sample: Int[Array, "prompts rows"],
    position: Int[Array, "prompts rows"],
    frozen_activations: Float[Array, "batch 1 d_model"],
    was_read: Bool[Array, "prompts rows"],
) -> Decoded:
    """Adds the trained layers' inputs at a token to the samples, if they are wanted.

    Args:
      made: the samples so far.
      sample: the index of each row's sample within its prompt.
      position: position of the token in the sample.
      frozen_activations: the activations at each token; a prompt's rows are adjacent.
      was_read: False for rows whose token is not part of the sample.

    Returns:
      The samples with these activations.
    """
    kept = made.frozen_activations
    if kept is None:
        return made
    prompts, rows = was_read.shape
    # Other rows get an index past the last sample, which drops the write.
    samples = jnp.where(was_read, sample, made.tokens.shape[1])
    by_row = frozen_activations.reshape(prompts, rows, -1)
    at = kept.samples.at[jnp.arange(prompts)[:, None], samples, position]
    return made._replace(frozen_activations=kept._replace(samples=at.set(by_row, mode="drop")))

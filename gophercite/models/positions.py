"""Where a token stands: rotary embeddings, and Transformer-XL's relative positions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.config import RopeScaling, TransformerConfig


def rotary(
    x: Float[Array, "batch length heads head_dim"],
    positions: Int[Array, "batch length"],
    theta: float | Float[Array, ""],
    scaling: RopeScaling | None = None,
    interpolation: float | Float[Array, ""] = 1.0,
    channels: int | None = None,
) -> Float[Array, "batch length heads head_dim"]:
    """Rotates queries or keys by their positions (Su et al. 2021, section 3.4.2).

    The two halves of what is rotated form the pairs, as in Llama, Gemma and GPT-NeoX checkpoints.

    Args:
      x: queries or keys.
      positions: each token's place in its segment, from 0.
      theta: base of the frequencies.
      scaling: slows the low ones.
      interpolation: positions are divided by it (Chen et al. 2023).
      channels: of a head that are rotated, from the first; all when None.

    Returns:
      `x` rotated, in its own dtype; angles are float32.
    """
    if channels is not None and channels < x.shape[-1]:
        rotated = rotary(x[..., :channels], positions, theta, scaling, interpolation)
        return jnp.concatenate([rotated, x[..., channels:]], axis=-1)
    half = x.shape[-1] // 2
    exponent = jnp.arange(half, dtype=jnp.float32) / half
    frequencies = jnp.power(theta, -exponent)
    if scaling is not None:
        frequencies *= _slowing(frequencies, scaling)
    if isinstance(interpolation, jax.Array) or interpolation != 1:
        frequencies /= interpolation
    angles = positions[..., None].astype(jnp.float32) * frequencies
    cos = jnp.cos(angles)[:, :, None].astype(x.dtype)
    sin = jnp.sin(angles)[:, :, None].astype(x.dtype)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _slowing(frequencies: Float[Array, " pairs"], scaling: RopeScaling) -> Float[Array, " pairs"]:
    """What each frequency is multiplied by: 1 for fast pairs, 1 / factor for slow ones."""
    turns = scaling.original_length * frequencies / (2 * jnp.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept + (1 - kept) / scaling.factor


def check_length(config: TransformerConfig, length: int) -> None:
    """Refuses rows that run past the learned positions; the others have no end.

    Raises:
      ValueError: the rows are longer than that.
    """
    most = config.max_positions
    if most is not None and length > most:
        raise ValueError(
            f"rows of {length} tokens (padding, and room for new ones, among them), but the model "
            f"has only {most} learned positions: prompts, answers or packed rows must be shorter"
        )


def sinusoids(distances: Int[Array, " n"], width: int) -> Float[Array, "n width"]:
    """Sinusoidal embeddings of distances (Vaswani et al. 2017, section 3.5; Dai et al. 2019).

    Args:
      distances: how many tokens back, 0 for the token itself.
      width: of the embedding; sines fill its first half and cosines the second.

    Returns:
      One float32 embedding a distance.
    """
    half = (width + 1) // 2
    frequencies = jnp.power(10_000.0, -jnp.arange(half, dtype=jnp.float32) / half)
    angles = distances[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)[:, :width]


def align_distances(
    scores: Float[Array, "*heads rows keys"],
) -> Float[Array, "*heads rows keys"]:
    """Turns scores by distance into scores by key (Dai et al. 2019, appendix B).

    The rows are the last `rows` of `keys` positions. Their scores come in order of falling
    distance: column m of the input is the distance `keys - 1 - m`. Row a stands at position
    `keys - rows + a`, so key j lies in column `j + rows - 1 - a`: a shift that padding and
    reshaping do without a gather.

    Args:
      scores: a score for each row and distance.

    Returns:
      A score for each row and key; keys after the row's own position hold rubbish and must be
      masked.
    """
    *heads, rows, keys = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * len(heads) + [(0, 0), (0, rows)])
    flat = padded.reshape(*heads, rows * (keys + rows))
    shifted = jax.lax.slice_in_dim(flat, rows - 1, rows - 1 + rows * (keys + rows - 1), axis=-1)
    return shifted.reshape(*heads, rows, keys + rows - 1)[..., :keys]

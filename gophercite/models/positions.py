"""Token positions: rotary embeddings, and Transformer-XL's relative positions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.config import RopeScaling, TransformerConfig


class Rotations(NamedTuple):
    """The angles of rotary embeddings, as cosines and sines in float32.

    Attributes:
      cos: cosine for each position and pair of channels; one table for each kind of layer.
      sin: the same for sines.
    """

    cos: Float[Array, "kinds *places pairs"]
    sin: Float[Array, "kinds *places pairs"]

    def at(self, places: Int[Array, "*batch"]) -> "Rotations":
        """Looks up the angles of some positions; NaN for positions outside the table."""
        cos, sin = (table.at[:, places].get(mode="fill") for table in self)
        return Rotations(cos, sin)


def rotation_kinds(config: TransformerConfig) -> list[tuple[float, float]]:
    """The distinct pairs of base and interpolation of the layers, in the layers' order."""
    return list(dict.fromkeys(_rotation_by_layer(config)))


def rotation_of_layers(config: TransformerConfig) -> list[int]:
    """Which of `rotation_kinds` each layer uses."""
    kinds = rotation_kinds(config)
    return [kinds.index(kind) for kind in _rotation_by_layer(config)]


def _rotation_by_layer(config: TransformerConfig) -> list[tuple[float, float]]:
    settings = [
        setting if isinstance(setting, tuple) else (setting,) * config.num_layers
        for setting in (config.rope_theta, config.rope_interpolation)
    ]
    return list(zip(*settings, strict=True))


def rotations(config: TransformerConfig, places: int) -> Rotations | None:
    """The angles of the first positions (Su et al. 2021, section 3.4.2); None for other kinds.

    They are computed once as a table to look up: if the compiler fused their computation into their
    use, they would be computed again for each head of each layer.

    Args:
      config: has the frequencies' bases, their scaling, and the divisor of positions (Chen et al.
        2023).
      places: number of positions.

    Returns:
      A table of the positions for each of `rotation_kinds`.
    """
    if config.position != "rope":
        return None
    pairs = config.rotary_channels // 2
    exponent = jnp.arange(pairs, dtype=jnp.float32) / pairs
    angles = []
    for theta, interpolation in rotation_kinds(config):
        frequencies = jnp.power(theta, -exponent)
        if config.rope_scaling is not None:
            frequencies *= _slowing(frequencies, config.rope_scaling)
        if interpolation != 1:
            frequencies /= interpolation
        angles.append(jnp.arange(places, dtype=jnp.float32)[:, None] * frequencies)
    table = jnp.stack(angles)
    return Rotations(jnp.cos(table), jnp.sin(table))


def rotary(
    x: Float[Array, "batch length heads head_dim"],
    rotations: Rotations,
    kind: int | Int[Array, ""] = 0,
) -> Float[Array, "batch length heads head_dim"]:
    """Rotates queries or keys by their positions (Su et al. 2021, section 3.4.2).

    The first half of the rotated channels is paired with the second half, as in Llama, Gemma and
    GPT-NeoX checkpoints.

    Args:
      x: queries or keys; channels after the pairs are unchanged (GPT-NeoX).
      rotations: angles at each token's position, [kinds, batch, length, pairs].
      kind: the layer's kind of rotation.

    Returns:
      `x` rotated, in its own dtype.
    """
    cos, sin = (table[kind][:, :, None].astype(x.dtype) for table in rotations)
    pairs = cos.shape[-1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _slowing(frequencies: Float[Array, " pairs"], scaling: RopeScaling) -> Float[Array, " pairs"]:
    """Factor on each frequency: 1 for fast pairs, 1 / factor for slow ones."""
    turns = scaling.original_length * frequencies / (2 * jnp.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept + (1 - kept) / scaling.factor


def check_length(config: TransformerConfig, length: int) -> None:
    """Checks that rows fit the learned positions; other kinds of positions have no limit.

    Raises:
      ValueError: the rows are too long.
    """
    most = config.max_positions
    if most is not None and length > most:
        raise ValueError(
            f"rows have {length} tokens (including padding and room for new tokens), but the "
            f"model has only {most} learned positions: prompts, answers or packed rows must be "
            "shorter"
        )


def sinusoids(distances: Int[Array, " n"], width: int) -> Float[Array, "n width"]:
    """Sinusoidal embeddings of distances (Vaswani et al. 2017, section 3.5; Dai et al. 2019).

    Args:
      distances: how many tokens back, 0 for the token itself.
      width: width of the embedding; sines fill its first half and cosines the second.

    Returns:
      One float32 embedding per distance.
    """
    half = (width + 1) // 2
    frequencies = jnp.power(10_000.0, -jnp.arange(half, dtype=jnp.float32) / half)
    angles = distances[:, None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)[:, :width]


def align_distances(
    scores: Float[Array, "*heads rows keys"],
) -> Float[Array, "*heads rows keys"]:
    """Turns scores by distance into scores by key (Dai et al. 2019, appendix B).

    The rows are the last `rows` of `keys` positions. Their scores are in order of descending
    distance: column m of the input is for distance `keys - 1 - m`. Row a is at position `keys -
    rows + a`, so key j is in column `j + rows - 1 - a`: a shift that padding and reshaping do
    without a gather.

    Args:
      scores: a score for each row and distance.

    Returns:
      A score for each row and key; keys after the row's own position hold garbage and must be
      masked.
    """
    *heads, rows, keys = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * len(heads) + [(0, 0), (0, rows)])
    flat = padded.reshape(*heads, rows * (keys + rows))
    shifted = jax.lax.slice_in_dim(flat, rows - 1, rows - 1 + rows * (keys + rows - 1), axis=-1)
    return shifted.reshape(*heads, rows, keys + rows - 1)[..., :keys]

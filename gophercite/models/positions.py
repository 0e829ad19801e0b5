"""Where a token stands: rotary embeddings, and Transformer-XL's relative positions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.models.config import RopeScaling, TransformerConfig


class Rotations(NamedTuple):
    """The angles of rotary embeddings, as cosines and sines in float32.

    Attributes:
      cos: of each place and pair of channels; a table for each kind of layer.
      sin: likewise.
    """

    cos: Float[Array, "kinds *places pairs"]
    sin: Float[Array, "kinds *places pairs"]

    def at(self, places: Int[Array, "*batch"]) -> "Rotations":
        """Those of some places, from a table of all of them; NaN for places that it lacks."""
        cos, sin = (table.at[:, places].get(mode="fill") for table in self)
        return Rotations(cos, sin)


def rotation_kinds(config: TransformerConfig) -> list[tuple[float, float]]:
    """The bases and interpolations that layers rotate by, each once, in the layers' order."""
    return list(dict.fromkeys(_rotation_by_layer(config)))


def rotation_of_layers(config: TransformerConfig) -> list[int]:
    """Which of `rotation_kinds` each layer rotates by."""
    kinds = rotation_kinds(config)
    return [kinds.index(kind) for kind in _rotation_by_layer(config)]


def _rotation_by_layer(config: TransformerConfig) -> list[tuple[float, float]]:
    settings = [
        setting if isinstance(setting, tuple) else (setting,) * config.num_layers
        for setting in (config.rope_theta, config.rope_interpolation)
    ]
    return list(zip(*settings, strict=True))


def rotations(config: TransformerConfig, places: int) -> Rotations | None:
    """The angles of the first places (Su et al. 2021, section 3.4.2); None with other positions.

    They are made once, and rows look them up: a compiler that fuses what makes them into what reads
    them would make them anew for each head of each layer.

    Args:
      config: says the bases of the frequencies, what slows the low ones, and what positions are
        divided by (Chen et al. 2023).
      places: how many.

    Returns:
      A table of the places for each of `rotation_kinds`.
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

    The two halves of what is rotated form the pairs, as in Llama, Gemma and GPT-NeoX checkpoints.

    Args:
      x: queries or keys; channels behind the pairs stay as they are (GPT-NeoX).
      rotations: at each token's place, [kinds, batch, length, pairs].
      kind: the layer's.

    Returns:
      `x` rotated, in its own dtype.
    """
    cos, sin = (table[kind][:, :, None].astype(x.dtype) for table in rotations)
    pairs = cos.shape[-1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


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

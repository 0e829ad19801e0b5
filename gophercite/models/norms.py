"""The norms of a Transformer: RMSNorm and LayerNorm, computed in float32."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gophercite.models.config import TransformerConfig


class Norm(NamedTuple):
    """A norm's parameters.

    Attributes:
      scale: gain of each channel, or (`TransformerConfig.zero_centered_norms`) the gain less 1.
      bias: LayerNorm's; None for RMSNorm.
    """

    scale: Float[Array, " channels"]
    bias: Float[Array, " channels"] | None = None


def normalise(
    config: TransformerConfig, x: Float[Array, "*tokens channels"], norm: Norm
) -> Float[Array, "*tokens channels"]:
    """Normalises each vector as the architecture does.

    Args:
      config: has the kind of norm, its epsilon, and the meaning of the scale.
      x: activations.
      norm: the parameters.

    Returns:
      Normalised activations, in `x`'s dtype.
    """
    scale = norm.scale
    if config.zero_centered_norms:
        scale = 1.0 + scale.astype(jnp.float32)
    if norm.bias is None:
        return rms_norm(x, scale, config.norm_epsilon)
    return layer_norm(x, scale, norm.bias, config.norm_epsilon)


def rms_norm(
    x: Float[Array, "*tokens channels"], scale: Float[Array, " channels"], epsilon: float
) -> Float[Array, "*tokens channels"]:
    """Root-mean-square normalisation in float32 (Zhang and Sennrich 2019).

    Args:
      x: activations.
      scale: gain of each channel.
      epsilon: added to the mean square.

    Returns:
      Activations of unit root mean square times `scale`, in `x`'s dtype.
    """
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(square + epsilon) * scale).astype(x.dtype)


def layer_norm(
    x: Float[Array, "*tokens channels"],
    scale: Float[Array, " channels"],
    bias: Float[Array, " channels"],
    epsilon: float,
) -> Float[Array, "*tokens channels"]:
    """Layer normalisation in float32 (Ba et al. 2016).

    Args:
      x: activations.
      scale: gain of each channel.
      bias: added to each channel.
      epsilon: added to the variance.

    Returns:
      Activations of zero mean and unit variance times `scale`, plus `bias`, in `x`'s dtype.
    """
    centred = x.astype(jnp.float32)
    centred -= jnp.mean(centred, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + epsilon) * scale + bias).astype(x.dtype)

"""Soft capping: squashes values into a range by tanh, as Gemma 2 does with scores and logits."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def soft_cap(x: Float[Array, "*shape"], cap: float | None) -> Float[Array, "*shape"]:
    """`cap · tanh(x / cap)` (Gemma Team 2024, section 2): nearly x if |x| is far below `cap`.

    Args:
      x: attention scores or logits, float32.
      cap: bound on absolute values; None leaves `x` unchanged.

    Returns:
      The values in (-cap, cap).
    """
    return x if cap is None else cap * jnp.tanh(x / cap)


def before_soft_cap(
    slope: Float[Array, "*shape"], capped: Float[Array, "*shape"], cap: float | None
) -> Float[Array, "*shape"]:
    """Converts a gradient with respect to capped values to one with respect to uncapped values.

    Args:
      slope: the gradient.
      capped: the result of `soft_cap`.
      cap: the cap passed to it.

    Returns:
      `slope` times tanh's derivative, 1 - (capped / cap)².
    """
    return slope if cap is None else slope * (1.0 - jnp.square(capped / cap))

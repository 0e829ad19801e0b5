"""Exponential moving averages of parameters (WebGPT, E: 0.99)."""

from typing import Any

import jax
import jax.numpy as jnp


def init(params: Any) -> Any:
    """The average before the first update: the parameters in float32.

    Args:
      params: tree of arrays of any floating dtype.

    Returns:
      A tree of float32 arrays that share no buffer with `params`, so that both can be donated.
    """
    return jax.tree.map(lambda p: jnp.array(p, jnp.float32, copy=True), params)


def update(ema: Any, params: Any, decay: float) -> Any:
    """The average after one more step.

    Args:
      ema: tree of float32 arrays.
      params: the same tree, of any floating dtype.
      decay: weight of the old average, in [0, 1).

    Returns:
      `decay * ema + (1 - decay) * params`, float32.
    """
    # Written as a correction of the old average, which is exact if both are equal.
    return jax.tree.map(lambda e, p: e + (1.0 - decay) * (p.astype(jnp.float32) - e), ema, params)

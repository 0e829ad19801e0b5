"""Gradient clipping (GopherCite, F: A2C clips the gradient's norm at 1.0)."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float32


def global_norm(tree: Any) -> Float32[Array, ""]:
    """The Euclidean norm of all values of a tree, summed in float32.

    Args:
      tree: arrays of any floating dtype.

    Returns:
      The norm; 0 for an empty tree.
    """
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(jnp.sum(jnp.stack(squares))) if squares else jnp.zeros((), jnp.float32)


def clip_by_global_norm(grads: Any, max_norm: float) -> tuple[Any, Float32[Array, ""]]:
    """Scales gradients down to a norm if theirs is larger.

    Args:
      grads: tree of arrays of any floating dtype.
      max_norm: the maximum norm, positive.

    Returns:
      The gradients in their dtypes, and their norm before clipping. If the norm is not finite,
      every gradient becomes NaN, so that the run stops and names the step instead of continuing
      from zeros.
    """
    norm = global_norm(grads)
    scale = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, max_norm / norm), jnp.nan)
    scaled = jax.tree.map(lambda g: (g.astype(jnp.float32) * scale).astype(g.dtype), grads)
    return scaled, norm

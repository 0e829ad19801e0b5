"""Learning rates as functions of the step.

Steps count from 0. A warm-up reaches its peak at step `warmup_steps`, and its first step already
learns, with `1 / (warmup_steps + 1)` of the peak.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

Schedule = Callable[[Int32[Array, ""]], Float32[Array, ""]]


def constant(learning_rate: float, warmup_steps: int = 0) -> Schedule:
    """One rate for all steps (GopherCite's fine-tuning, D.1: 3e-6), after a linear warm-up.

    Args:
      learning_rate: after the warm-up.
      warmup_steps: steps before the full rate.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """
    warmup = _warmup(learning_rate, warmup_steps)

    def schedule(step: Int32[Array, ""]) -> Float32[Array, ""]:
        return learning_rate * warmup(step)

    return schedule


def linear_warmup_cosine(
    learning_rate: float, total_steps: int, warmup_steps: int = 0, final_fraction: float = 0.0
) -> Schedule:
    """Linear warm-up, then half a cosine down (GopherCite's reward model, E; Loshchilov 2017).

    Args:
      learning_rate: the peak.
      total_steps: the step at which, and after which, the rate is the final one.
      warmup_steps: steps before the peak.
      final_fraction: the final rate as a fraction of the peak.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """

    def cosine(done: Float32[Array, ""]) -> Float32[Array, ""]:
        return 0.5 * (1.0 + jnp.cos(jnp.pi * done))

    return _decaying(cosine, learning_rate, total_steps, warmup_steps, final_fraction)


def linear_warmup_linear(
    learning_rate: float, total_steps: int, warmup_steps: int = 0, final_fraction: float = 0.0
) -> Schedule:
    """Linear warm-up, then a straight line down.

    Args:
      learning_rate: the peak.
      total_steps: the step at which, and after which, the rate is the final one.
      warmup_steps: steps before the peak.
      final_fraction: the final rate as a fraction of the peak.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """

    def line(done: Float32[Array, ""]) -> Float32[Array, ""]:
        return 1.0 - done

    return _decaying(line, learning_rate, total_steps, warmup_steps, final_fraction)


def inverse_sqrt(learning_rate: float, warmup_steps: int) -> Schedule:
    """Linear warm-up, then as one over the root of the step (T5's pretraining; Vaswani 2017).

    Args:
      learning_rate: the peak.
      warmup_steps: steps before the peak, at least 1.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """
    _require(warmup_steps >= 1, "warmup_steps", warmup_steps, "at least 1")
    warmup = _warmup(learning_rate, warmup_steps)

    def schedule(step: Int32[Array, ""]) -> Float32[Array, ""]:
        fraction = jnp.sqrt(warmup_steps / jnp.maximum(step, warmup_steps).astype(jnp.float32))
        return learning_rate * warmup(step) * fraction

    return schedule


def _warmup(learning_rate: float, warmup_steps: int) -> Schedule:
    """The fraction of the rate that a linear warm-up allows."""
    _require(learning_rate >= 0, "learning_rate", learning_rate, "0 or more")
    _require(warmup_steps >= 0, "warmup_steps", warmup_steps, "0 or more")

    def schedule(step: Int32[Array, ""]) -> Float32[Array, ""]:
        begun = jnp.asarray(step, jnp.float32) + 1.0
        return jnp.minimum(1.0, begun / (warmup_steps + 1))

    return schedule


def _decaying(
    shape: Callable[[Float32[Array, ""]], Float32[Array, ""]],
    learning_rate: float,
    total_steps: int,
    warmup_steps: int,
    final_fraction: float,
) -> Schedule:
    """A warm-up, then `shape` from 1 to 0 as the share of the decay that is done goes 0 to 1."""
    warmup = _warmup(learning_rate, warmup_steps)
    right = f"over warmup_steps {warmup_steps}"
    _require(total_steps > warmup_steps, "total_steps", total_steps, right)
    _require(0 <= final_fraction <= 1, "final_fraction", final_fraction, "in [0, 1]")

    def schedule(step: Int32[Array, ""]) -> Float32[Array, ""]:
        done = jnp.clip((step - warmup_steps) / (total_steps - warmup_steps), 0.0, 1.0)
        fraction = final_fraction + (1.0 - final_fraction) * shape(done)
        return learning_rate * warmup(step) * fraction

    return schedule


def _require(holds: bool, field: str, value: object, right: str) -> None:
    if not holds:
        raise ValueError(f"schedule: {field} = {value}: must be {right}")

"""Learning rates as functions of the step: optax's schedules after a linear warm-up.

Steps count from 0. A warm-up reaches its peak at step `warmup_steps`. Its first step already has `1
/ (warmup_steps + 1)` of the peak.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float32, Int32

Schedule = Callable[[Int32[Array, ""]], Float32[Array, ""]]


def constant(learning_rate: float, warmup_steps: int = 0) -> Schedule:
    """One rate for all steps (GopherCite's fine-tuning, D.1: 3e-6), after a linear warm-up.

    Args:
      learning_rate: the rate after the warm-up.
      warmup_steps: steps before the full rate.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """
    return _after_warmup(optax.constant_schedule(learning_rate), learning_rate, warmup_steps)


def linear_warmup_cosine(
    learning_rate: float, total_steps: int, warmup_steps: int = 0, final_fraction: float = 0.0
) -> Schedule:
    """Linear warm-up, then cosine decay (GopherCite's reward model, E; Loshchilov 2017).

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
    steps = _steps_of_decay(total_steps, warmup_steps, final_fraction)
    decay = optax.cosine_decay_schedule(learning_rate, steps, final_fraction)
    return _after_warmup(decay, learning_rate, warmup_steps)


def linear_warmup_linear(
    learning_rate: float, total_steps: int, warmup_steps: int = 0, final_fraction: float = 0.0
) -> Schedule:
    """Linear warm-up, then linear decay.

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
    steps = _steps_of_decay(total_steps, warmup_steps, final_fraction)
    decay = optax.linear_schedule(learning_rate, learning_rate * final_fraction, steps)
    return _after_warmup(decay, learning_rate, warmup_steps)


def inverse_sqrt(learning_rate: float, warmup_steps: int) -> Schedule:
    """Linear warm-up, then inverse square-root decay (T5's pretraining; Vaswani 2017).

    Args:
      learning_rate: the peak.
      warmup_steps: steps before the peak, at least 1.

    Returns:
      The schedule.

    Raises:
      ValueError: a setting is out of range.
    """
    _require(warmup_steps >= 1, "warmup_steps", warmup_steps, "at least 1")

    def root(step: Any) -> Any:
        return learning_rate * jnp.sqrt(warmup_steps / (step + warmup_steps))

    return _after_warmup(root, learning_rate, warmup_steps)


def _after_warmup(schedule: optax.Schedule, learning_rate: float, warmup_steps: int) -> Schedule:
    """A warm-up to a rate, then a schedule whose steps count from the end of the warm-up."""
    right = "a finite number, 0 or more"
    _require(0 <= learning_rate < math.inf, "learning_rate", learning_rate, right)
    _require(warmup_steps >= 0, "warmup_steps", warmup_steps, "0 or more")
    if warmup_steps:
        first = learning_rate / (warmup_steps + 1)
        warmup = optax.linear_schedule(first, learning_rate, warmup_steps)
        schedule = optax.join_schedules([warmup, schedule], [warmup_steps])
    return lambda step: jnp.asarray(schedule(step), jnp.float32)


def _steps_of_decay(total_steps: int, warmup_steps: int, final_fraction: float) -> int:
    right = f"over warmup_steps {warmup_steps}"
    _require(total_steps > warmup_steps, "total_steps", total_steps, right)
    _require(0 <= final_fraction <= 1, "final_fraction", final_fraction, "in [0, 1]")
    return total_steps - warmup_steps


def _require(holds: bool, field: str, value: object, right: str) -> None:
    if not holds:
        raise ValueError(f"schedule: {field} = {value}: must be {right}")

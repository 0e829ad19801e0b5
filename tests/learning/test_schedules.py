from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gophercite.learning import schedules


def rates(schedule: schedules.Schedule, steps: int) -> np.ndarray:
    return np.asarray(jax.vmap(schedule)(jnp.arange(steps)))


def test_constant() -> None:
    np.testing.assert_allclose(rates(schedules.constant(3e-6), 5), 3e-6)
    np.testing.assert_allclose(
        rates(schedules.constant(1.0, warmup_steps=3), 6), [0.25, 0.5, 0.75, 1, 1, 1]
    )


def test_cosine_is_optax_after_the_warmup() -> None:
    ours = rates(schedules.linear_warmup_cosine(2.0, 100, 10, 0.1), 120)
    reference = optax.cosine_decay_schedule(2.0, 90, alpha=0.1)
    np.testing.assert_allclose(ours[10:], [reference(i) for i in range(110)], rtol=1e-5)
    np.testing.assert_allclose(ours[:10], 2.0 * np.arange(1, 11) / 11, rtol=1e-6)


def test_linear_is_optax_after_the_warmup() -> None:
    ours = rates(schedules.linear_warmup_linear(2.0, 100, 10, 0.5), 120)
    reference = optax.linear_schedule(2.0, 1.0, 90)
    np.testing.assert_allclose(ours[10:], [reference(i) for i in range(110)], rtol=1e-5)
    np.testing.assert_allclose(ours[:10], 2.0 * np.arange(1, 11) / 11, rtol=1e-6)


def test_inverse_sqrt() -> None:
    ours = rates(schedules.inverse_sqrt(1.0, 4), 17)
    np.testing.assert_allclose(ours[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)
    np.testing.assert_allclose(ours[16], 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "settings", "field"),
    [
        (schedules.constant, {"learning_rate": -1.0}, "learning_rate"),
        (schedules.constant, {"learning_rate": 1.0, "warmup_steps": -1}, "warmup_steps"),
        (schedules.inverse_sqrt, {"learning_rate": 1.0, "warmup_steps": 0}, "warmup_steps"),
        (
            schedules.linear_warmup_cosine,
            {"learning_rate": 1.0, "total_steps": 5, "warmup_steps": 5},
            "total_steps",
        ),
        (
            schedules.linear_warmup_linear,
            {"learning_rate": 1.0, "total_steps": 5, "final_fraction": 2.0},
            "final_fraction",
        ),
    ],
)
def test_settings_out_of_range_are_named(make: Any, settings: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make(**settings)

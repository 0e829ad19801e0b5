import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.learning import schedules


def rates(schedule: schedules.Schedule, steps: int) -> np.ndarray:
    """Always computed for as many steps, so that all schedules are compiled for one shape."""
    return np.asarray(jax.vmap(schedule)(jnp.arange(256)))[:steps]


def test_constant() -> None:
    np.testing.assert_allclose(rates(schedules.constant(3e-6), 5), 3e-6)
    np.testing.assert_allclose(
        rates(schedules.constant(1.0, warmup_steps=3), 6), [0.25, 0.5, 0.75, 1, 1, 1]
    )


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_a_decay_without_warmup_begins_at_the_peak_and_ends_at_0(kind: str) -> None:
    ours = rates(getattr(schedules, f"linear_warmup_{kind}")(2.0, 4), 5)
    assert (ours[0], ours[4]) == pytest.approx((2.0, 0.0), abs=1e-6)


@settings(max_examples=30)
@given(
    st.floats(1e-7, 10),
    st.integers(1, 200),
    st.integers(0, 50),
    st.floats(0, 1),
    st.sampled_from(["cosine", "linear"]),
)
def test_a_decay_after_the_warmup(
    peak: float, decay_steps: int, warmup_steps: int, final: float, kind: str
) -> None:
    """Against the formulas, written out."""
    total = warmup_steps + decay_steps
    make = getattr(schedules, f"linear_warmup_{kind}")
    ours = rates(make(peak, total, warmup_steps, final), total + 5)
    expected = []
    for step in range(total + 5):
        if step < warmup_steps:
            expected.append(peak * (step + 1) / (warmup_steps + 1))
            continue
        done = min(1.0, (step - warmup_steps) / decay_steps)
        left = (1 + math.cos(math.pi * done)) / 2 if kind == "cosine" else 1 - done
        expected.append(peak * (final + (1 - final) * left))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6 * peak)


def test_inverse_sqrt() -> None:
    ours = rates(schedules.inverse_sqrt(1.0, 4), 17)
    np.testing.assert_allclose(ours[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)
    np.testing.assert_allclose(ours[16], 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "arguments", "field"),
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
def test_settings_out_of_range_are_named(make: Any, arguments: Any, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make(**arguments)

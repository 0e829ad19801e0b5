import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from gophercite.learning.rounding import stochastic_round

DRAWS = 1 << 16
ROUND = jax.jit(stochastic_round)
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)


@pytest.mark.parametrize("value", [1.0001, 1.001, -3.3, 0.1, 1e-20, -123456.7, 1.0039])
def test_mean_of_many_roundings_is_the_value(value: float) -> None:
    exact = np.float32(value)
    rounded = np.asarray(ROUND(np.full(DRAWS, exact), jax.random.key(0)), np.float32)
    low, high = float(rounded.min()), float(rounded.max())
    assert low <= exact <= high
    # Four standard errors of a two-valued draw.
    tolerance = 4 * 0.5 * (high - low) / DRAWS**0.5
    assert abs(np.mean(rounded, dtype=np.float64) - exact) <= tolerance


@hypothesis.settings(deadline=None)
@hypothesis.given(value=FLOAT32, seed=st.integers(0, 1000))
def test_result_is_one_of_the_two_neighbours(value: float, seed: int) -> None:
    x = np.float32(value)
    rounded = ROUND(np.full(64, x), jax.random.key(seed))
    truncated = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    away = (truncated.view(np.uint32) + np.uint32(0x10000)).view(np.float32)
    allowed = {float(truncated)}
    if x != truncated and np.isfinite(away):
        allowed.add(float(away))
    assert set(np.asarray(rounded, np.float32).tolist()) <= allowed


@hypothesis.settings(deadline=None)
@hypothesis.given(value=FLOAT32)
def test_bfloat16_values_are_kept(value: float) -> None:
    exact = np.full(16, value, jnp.bfloat16)
    hypothesis.assume(bool(np.isfinite(exact).all()))
    rounded = ROUND(exact.astype(np.float32), jax.random.key(0))
    np.testing.assert_array_equal(np.asarray(rounded), exact)


def test_special_values() -> None:
    largest = np.finfo(np.float32).max
    nan_in_low_bits = np.uint32(0x7F800001).view(np.float32)
    x = np.float32([np.inf, -np.inf, np.nan, 0, largest, -largest, 0.0, -0.0])
    x[3] = nan_in_low_bits
    for seed in range(8):
        rounded = np.asarray(ROUND(x, jax.random.key(seed)), np.float32)
        assert rounded[0] == np.inf
        assert rounded[1] == -np.inf
        assert np.isnan(rounded[2:4]).all()
        np.testing.assert_array_equal(
            rounded[4:6], np.array([1, -1]) * np.float32(jnp.finfo(jnp.bfloat16).max)
        )
        np.testing.assert_array_equal(np.signbit(rounded[6:]), [False, True])


def test_draws_do_not_depend_on_how_the_array_is_cut() -> None:
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    cut = jax.NamedSharding(mesh, jax.P("a", "b"))
    x = jax.random.normal(jax.random.key(1), (64, 32))
    whole = ROUND(x, jax.random.key(0))
    compiled = ROUND.lower(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=cut), jax.random.key(0))
    text = compiled.compile().as_text()
    assert "all-gather" not in text
    assert "collective-permute" not in text
    sharded = ROUND(jax.device_put(x, cut), jax.random.key(0))
    assert sharded.sharding.is_equivalent_to(cut, 2)
    np.testing.assert_array_equal(np.asarray(sharded), np.asarray(whole))

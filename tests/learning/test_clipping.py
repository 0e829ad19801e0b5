import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.learning.clipping import clip_by_global_norm, global_norm


def test_large_gradients_are_scaled_to_the_norm() -> None:
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    clipped, norm = clip_by_global_norm(grads, 1.0)
    assert float(norm) == 5.0
    np.testing.assert_allclose(clipped["a"], [0.6, 0.0], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"], [[0.8]], rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_small_gradients_are_kept(value: float) -> None:
    clipped, norm = clip_by_global_norm({"a": jnp.full(1, value)}, 1.0)
    assert float(norm) == value
    np.testing.assert_array_equal(clipped["a"], [value])


def test_norm_of_bfloat16_is_summed_in_float32() -> None:
    # In bfloat16 a sum of ones stops at 256.
    grads = {"a": jnp.ones(10_000, jnp.bfloat16)}
    clipped, norm = clip_by_global_norm(grads, 50.0)
    assert float(norm) == pytest.approx(100.0)
    assert clipped["a"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(clipped["a"], np.float32), 0.5)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_gradients_that_are_not_finite_stay_visible(bad: float) -> None:
    clipped, norm = clip_by_global_norm({"a": jnp.array([1.0, bad]), "b": jnp.ones(2)}, 1.0)
    assert not np.isfinite(norm)
    assert np.isnan(clipped["a"]).all()
    assert np.isnan(clipped["b"]).all()


def test_norm_of_nothing_is_zero() -> None:
    assert float(global_norm({})) == 0.0

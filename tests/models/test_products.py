"""Products on a CPU at JAX's default precision."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.models.products import product
from tests.models.test_transformer import SMALL, compiled, packed_batch, random_params

SIZES = st.sampled_from([1, 3, 8])


def rounded(x):
    """Values rounded to bfloat16, as float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def factors(seed, rows, inner, out, axis):
    """Rows, a matrix that is summed over its axis, and a slope of their products."""
    draw = np.random.default_rng(seed)
    shapes = (rows, inner), (inner, out) if axis == 0 else (out, inner), (rows, out)
    return [draw.normal(size=shape).astype(np.float32) for shape in shapes]


@jax.jit
def with_gradients(rows, kernel, slope):
    """A product and its gradients."""
    products, pull = jax.vjp(product, rows, kernel)
    return products, *pull(slope)


@jax.jit
def with_axis_1(rows, kernel, slope):
    """The same for a matrix that is summed over its second axis."""
    products, pull = jax.vjp(functools.partial(product, axis=1), rows, kernel)
    return products, *pull(slope)


@given(st.integers(0, 2**31), SIZES, SIZES, SIZES, st.sampled_from([0, 1]))
@settings(deadline=None, max_examples=40)
def test_factors_are_rounded_and_sums_are_not(seed, rows, inner, out, axis):
    x, w, g = factors(seed, rows, inner, out, axis)
    with jax.default_matmul_precision("bfloat16"):
        found = (with_axis_1 if axis else with_gradients)(x, w, g)
    by_column = w.T if axis else w
    for_kernel = rounded(x).T @ rounded(g)
    wanted = (
        rounded(x) @ rounded(by_column),
        rounded(g) @ rounded(by_column).T,
        for_kernel.T if axis else for_kernel,
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == jnp.float32
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", [None, "float32", "highest"])
@pytest.mark.parametrize("axis", [0, 1])
def test_nothing_is_rounded_at_other_precisions(precision, axis):
    x, w, g = factors(5, 16, 24, 8, axis)
    with jax.default_matmul_precision(precision):
        found = (with_axis_1 if axis else with_gradients)(x, w, g)
    by_column = w.T if axis else w
    np.testing.assert_allclose(found[0], x.astype(np.float64) @ by_column, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(found[1], g.astype(np.float64) @ by_column.T, rtol=1e-4, atol=2e-6)
    for_kernel = x.T.astype(np.float64) @ g
    wanted = for_kernel.T if axis else for_kernel
    np.testing.assert_allclose(found[2], wanted, rtol=1e-4, atol=5e-6)


def test_bfloat16_factors_give_their_own_dtype_or_the_one_asked_for():
    x, w = jnp.ones((2, 3), jnp.bfloat16), jnp.ones((3, 4), jnp.bfloat16)
    with jax.default_matmul_precision("bfloat16"):
        assert product(x, w).dtype == jnp.bfloat16
        assert product(x, w.T, axis=1, dtype=jnp.float32).dtype == jnp.float32


def test_a_model_is_read_with_rounded_products():
    params, batch = random_params(SMALL), packed_batch()
    exact, _ = compiled(SMALL)(params, *batch)
    with jax.default_matmul_precision("bfloat16"):
        near, _ = compiled(SMALL)(params, *batch)
    off = np.abs(exact - near)[batch[2] > 0].max()
    assert 1e-5 < off < 0.1

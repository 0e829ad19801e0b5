"""Products on a CPU at JAX's default precision."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.models.attention import attention
from gophercite.models.products import batched_product, product
from tests.long_forms import LONG
from tests.models.test_transformer import SMALL, compiled, packed_batch, random_params

# Few, as each has a program of its own.
SIZES = st.sampled_from([(1, 1, 1), (3, 8, 1), (8, 3, 8), (1, 8, 3)])
# Both factors by rows or by columns of the axis that is summed over.
FORMS = ["bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "bkm,bnk->bmn"]


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


@given(st.integers(0, 2**31), SIZES, st.sampled_from([0, 1]))
@settings(deadline=None, max_examples=40)
def test_factors_are_rounded_and_sums_are_not(seed, sizes, axis):
    x, w, g = factors(seed, *sizes, axis)
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


@functools.cache
def batched_with_gradients(axes):
    """The function that gives batched products of a form, and their gradients."""

    @jax.jit
    def run(x, y, slope):
        products, pull = jax.vjp(functools.partial(batched_product, axes), x, y)
        return products, *pull(slope)

    return run


# Sizes decide how XLA multiplies: it transposes tiles, small factors, or none.
# Each size with every other form, and each form with every other size.
@pytest.mark.parametrize(
    ("sizes", "axes"),
    [
        pytest.param(sizes, axes, marks=LONG if (place + row) % 2 else ())
        for place, sizes in enumerate(
            [(1, 1, 1), (3, 1, 5), (8, 8, 2), (16, 16, 8), (17, 8, 16), (8, 2, 40)]
        )
        for row, axes in enumerate(FORMS + [form.replace("b", "") for form in FORMS])
    ],
)
def test_matrices_and_batches_are_multiplied_with_rounded_factors(axes, sizes):
    x_axes, y_axes, out = axes.replace("->", ",").split(",")
    size = dict(zip("mknb", (*sizes, 2), strict=True))
    draw = np.random.default_rng(sum(sizes))
    x, y, slope = (
        draw.normal(size=[size[axis] for axis in of]).astype(np.float32)
        for of in (x_axes, y_axes, out)
    )
    with jax.default_matmul_precision("bfloat16"):
        found = batched_with_gradients(axes)(x, y, slope)
    for_x, for_y = f"{out},{y_axes}->{x_axes}", f"{out},{x_axes}->{y_axes}"
    wanted = (
        np.einsum(axes, rounded(x), rounded(y)),
        np.einsum(for_x, rounded(slope), rounded(y)),
        np.einsum(for_y, rounded(slope), rounded(x)),
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == jnp.float32
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_attention_is_near_its_exact_values_and_gradients():
    draw = np.random.default_rng(3)
    q, k, v, slope = (
        draw.normal(size=(2, 32, heads, 8)).astype(np.float32) for heads in (4, 2, 2, 4)
    )
    segments = np.repeat([[1, 1, 2, 2], [1, 1, 1, 0]], 8, axis=1)
    slope *= segments[..., None, None] > 0

    def run(q, k, v):
        return attention(q, k, v, segments, block=16, kernel="blocks")

    def gradients():
        out, pull = jax.vjp(run, q, k, v)
        return out * (segments[..., None, None] > 0), *pull(slope)

    exact = jax.jit(gradients)()
    with jax.default_matmul_precision("bfloat16"):
        near = jax.jit(gradients)()
        program = jax.jit(gradients).lower().as_text()
    products = [line for line in program.splitlines() if "dot_general" in line]
    assert len(products) >= 6
    assert all(line.count("xbf16>") == 2 for line in products), products
    for ours, theirs in zip(near, exact, strict=True):
        off = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert 1e-4 < off < 1e-2


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

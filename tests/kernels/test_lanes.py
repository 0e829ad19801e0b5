"""Sixteen floats at a time, beside numpy."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.kernels import lanes

FLOATS = st.floats(-1e4, 1e4, width=32)
SIXTEEN = st.lists(FLOATS, min_size=16, max_size=16).map(lambda x: np.asarray(x, np.float32))


@numba.njit
def operations(x, y, z, out):
    a, b, c = lanes.load(x, 0), lanes.load(y, 0), lanes.load(z, 0)
    lanes.store(out, 0, a + b)
    lanes.store(out, 16, a - b)
    lanes.store(out, 32, a * b)
    lanes.store(out, 48, lanes.larger(a, b))
    lanes.store(out, 64, lanes.multiply_add(a, b, c))
    lanes.store(out, 80, lanes.repeated(x[3]))
    lanes.store(out, 96, lanes.zeros())
    lanes.store_one(out, 112, lanes.total(a))
    lanes.store_one(out, 113, lanes.load_one(x, 5))
    lanes.prefetch(x, 8)


@settings(deadline=None)  # the first call is compiled
@given(SIXTEEN, SIXTEEN, SIXTEEN)
def test_operations_are_those_of_arrays(x, y, z):
    out = np.full(120, np.nan, np.float32)
    operations(x, y, z, out)
    sums, products = x + y, x * y
    for i, wanted in enumerate((sums, x - y, products, np.maximum(x, y))):
        np.testing.assert_array_equal(out[16 * i : 16 * i + 16], wanted)
    exact = x.astype(np.float64) * y + z
    # A machine without such an instruction rounds the product, too.
    assert np.all(abs(out[64:80] - exact) <= 2e-7 * (abs(products) + abs(exact)) + 1e-30)
    assert np.all(out[80:96] == x[3])
    assert np.all(out[96:112] == 0)
    np.testing.assert_allclose(out[112], x.sum(dtype=np.float64), atol=1e-6 * abs(x).sum() + 1e-30)
    assert out[113] == x[5]
    assert np.all(np.isnan(out[114:]))


@numba.njit
def exponentials(x, out):
    for at in range(0, len(x), 16):
        lanes.store(out, at, lanes.exp_of_negative(lanes.load(x, at)))


def test_exponentials_are_right_to_a_few_units_in_the_last_place():
    x = np.concatenate([-np.logspace(-10, np.log10(86.9), 4000), [0, -0.0], np.arange(-86, 0)])
    x = np.resize(x.astype(np.float32), -(-len(x) // 16) * 16)
    out = np.empty_like(x)
    exponentials(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize(("x", "wanted"), [(-87.5, 0), (-1e30, 0), (-np.inf, 0), (np.nan, np.nan)])
def test_exponentials_of_what_is_no_score(x, wanted):
    x, out = np.full(16, x, np.float32), np.empty(16, np.float32)
    exponentials(x, out)
    np.testing.assert_array_equal(out, np.full(16, wanted, np.float32))


@numba.njit
def tile(sums, at, left, first, down, along, right, count):
    lanes.add_products_to_tile(sums, at, left, first, down, along, right, count)


@numba.njit
def narrow_tile(sums, at, left, first, down, along, right, count):
    lanes.add_products_to_narrow_tile(sums, at, left, first, down, along, right, count)


@numba.njit
def row(sums, at, left, first, along, right, count):
    lanes.add_products_to_row(sums, at, left, first, 0, along, right, count)


@numba.njit
def narrow_row(sums, at, left, first, along, right, count):
    lanes.add_products_to_narrow_row(sums, at, left, first, 0, along, right, count)


@pytest.mark.parametrize(("halves", "tile", "row"), [(2, tile, row), (1, narrow_tile, narrow_row)])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_tile_gets_a_product_of_matrices(count, transposed, halves, tile, row):
    rng = np.random.default_rng(count)
    height, wide = lanes.TILE, halves * lanes.WIDTH
    right = rng.normal(size=(count, wide)).astype(np.float32)
    matrix = rng.normal(size=(height, count)).astype(np.float32)
    before = rng.normal(size=5 + height * wide + 7).astype(np.float32)
    left = np.concatenate([[9.0] * 3, (matrix.T if transposed else matrix).ravel()])
    down, along = (1, height) if transposed else (count, 1)
    sums = before.copy()
    tile(sums, 5, left.astype(np.float32), 3, down, along, right.ravel(), count)
    wanted = before.astype(np.float64)
    wanted[5:-7] += (matrix.astype(np.float64) @ right).ravel()
    np.testing.assert_allclose(sums, wanted, rtol=1e-5, atol=1e-5)
    assert np.array_equal(sums[:5], before[:5])
    assert np.array_equal(sums[-7:], before[-7:])

    one = before.copy()
    row(one, 5, matrix[0].copy(), 0, 1, right.ravel(), count)
    np.testing.assert_allclose(one[5 : 5 + wide], wanted[5 : 5 + wide], rtol=1e-5, atol=1e-5)
    assert np.array_equal(one[5 + wide :], before[5 + wide :])

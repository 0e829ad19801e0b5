"""T5's biases by distance, which all layers share."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.models.distance_biases import bias_by_key, buckets_of_distances
from gophercite.models.parameters import split_layers
from gophercite.models.transformer import Transformer
from tests.models.test_transformer import VARIANTS, packed_batch

T5 = dataclasses.replace(VARIANTS["t5"], attention_block=16)


@given(st.integers(1, 40), st.integers(1, 200))
def test_buckets_grow_with_the_logarithm_of_the_distance(half: int, more: int) -> None:
    buckets, farthest = 2 * half, half + more
    found = buckets_of_distances(buckets, farthest)
    assert found[:half].tolist() == list(range(half))
    assert found[-1] == buckets - 1
    assert (np.diff(found) >= 0).all()
    for distance in range(half, farthest):
        wide = math.log(distance / half) / math.log(farthest / half) * half
        # Where a distance begins a bucket, float32 decides.
        assert found[distance] in {half + math.floor(wide + e) for e in (-1e-4, 1e-4)}


def test_t5s_own_buckets() -> None:
    """Those of 32 buckets to 128 tokens, as all its models have them: where each one begins."""
    found = buckets_of_distances(32, 128)
    begins = np.searchsorted(found, np.arange(16, 32)).tolist()
    assert begins == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


@pytest.mark.parametrize(("rows", "more", "known"), [(1, 0, 1), (1, 6, 4), (5, 0, 9), (4, 3, 3)])
def test_a_row_has_the_bias_of_its_distance_to_each_key(rows: int, more: int, known: int) -> None:
    keys = rows + more
    biases = np.random.default_rng(0).normal(size=(2, known)).astype(np.float32)
    found = np.asarray(jax.jit(bias_by_key, static_argnums=(1, 2))(biases, rows, keys))
    for row in range(rows):
        for key in range(more + row + 1):
            distance = min(more + row - key, known - 1)
            np.testing.assert_array_equal(found[:, row, key], biases[:, distance])


def slope(params, accumulated=None, **changes):
    """Gradients of some function of the representations."""
    model = Transformer(dataclasses.replace(T5, **changes))
    tokens, positions, segments = packed_batch()

    def loss(params):
        x = model.frozen_activations(params, tokens, positions, segments)
        hidden = model.from_frozen_activations(
            params, x, positions, segments, accumulated=accumulated
        )
        return jnp.sum(jnp.sin(hidden))

    return jax.device_get(jax.jit(jax.grad(loss))(params))


@pytest.fixture(scope="module")
def params():
    draws = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: np.asarray(0.3 * draws.normal(size=leaf.shape), leaf.dtype),
        Transformer(T5).abstract(),
    )


@pytest.fixture(scope="module")
def plain(params):
    return slope(params)


def assert_close(found, expected):
    compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # noqa: E731
    jax.tree.map(compare, found, expected)


def test_all_layers_teach_the_table_also_where_they_are_recomputed(params, plain):
    """Gradients of microbatches before are added to those of the layers alone."""
    assert np.abs(plain["embed"]["distance_biases"]).max() > 0.01
    before = jax.tree.map(np.ones_like, params["trained_layers"])
    found = slope(params, before, remat_every=2)
    assert_close(found["embed"], plain["embed"])
    expected = jax.tree.map(np.add, before, plain["trained_layers"])
    assert_close(found["trained_layers"], expected)


def test_frozen_layers_teach_the_table_nothing(params, plain):
    split = slope(split_layers(params, 2))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(split["frozen_layers"]))
    found, whole = (g["embed"]["distance_biases"] for g in (split, plain))
    assert np.any(found)
    assert np.abs(found - whole).max() > 0.01


def test_logits_of_tied_embeddings_are_scaled(params):
    hidden = jnp.ones((1, 1, T5.d_model))
    logits = Transformer(T5).logits(params, hidden)[0, 0]
    expected = params["embed"]["embedding"].sum(axis=1) / math.sqrt(T5.d_model)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["cudnn", "splash"])
def test_fused_kernels_are_refused(kernel: str) -> None:
    with pytest.raises(ValueError, match="no fused kernel knows 't5' positions"):
        dataclasses.replace(T5, attention_kernel=kernel)

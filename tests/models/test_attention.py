import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.models.attention import RelativePositions, attention
from gophercite.models.positions import align_distances
from gophercite.partitioning import Partitioner, make_mesh
from tests.long_forms import LONG


def inputs(length, heads=4, kv_heads=2, head_dim=8):
    rng = np.random.default_rng(length)
    return tuple(
        jnp.asarray(rng.normal(size=(2, length, count, head_dim)), jnp.float32)
        for count in (heads, kv_heads, kv_heads)
    )


@settings(deadline=None, max_examples=8)  # few lengths, as each is compiled
@given(
    length=st.sampled_from([1, 8, 19]),
    block=st.integers(1, 24),
    window=st.none() | st.integers(1, 22),
)
def test_blocks_of_any_size_agree_with_jax(length, block, window):
    q, k, v = inputs(length)
    segments = np.sort(np.array([[(i * 7) % 3 for i in range(length)]] * 2), axis=1)
    distance = np.arange(length)[:, None] - np.arange(length)[None]
    mask = (distance >= 0) & (segments[:, None, :, None] == segments[:, None, None, :])
    if window:
        mask &= distance < window
    expected = jax.jit(jax.nn.dot_product_attention)(q, k, v, mask=mask)
    ours = functools.partial(attention, window=window, kernel="blocks", block=block)
    got = jax.jit(ours)(q, k, v, segments)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("remat", [False, True])
def test_gradients_agree_with_jax(remat):
    q, k, v = inputs(11)
    ones = jnp.ones((2, 11), jnp.int32)

    def ours(q, k, v):
        return jnp.sin(attention(q, k, v, ones, kernel="blocks", block=4, remat=remat)).sum()

    def theirs(q, k, v):
        return jnp.sin(jax.nn.dot_product_attention(q, k, v, is_causal=True)).sum()

    found, wanted = (jax.jit(jax.grad(each, (0, 1, 2)))(q, k, v) for each in (ours, theirs))
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


MESH = {"data": 2, "fsdp": 1, "model": 4}


@pytest.mark.parametrize(
    ("mesh", "window", "softcap"),
    [
        (None, None, None),
        pytest.param(None, 40, 2.0, marks=LONG),
        pytest.param(MESH, None, None, marks=LONG),
        (MESH, 40, 2.0),
    ],
)
def test_splash_attention_interpreted_agrees_with_blocks(mesh, window, softcap):
    """TPU's kernel, values and gradients, on one device and cut over eight by row and head."""
    q, k, v = inputs(128, head_dim=128)
    segments = jnp.sort((jnp.arange(256).reshape(2, 128) * 7) % 3, axis=1)

    def total(kernel):
        def run(q, k, v):
            options = {"window": window, "softcap": softcap, "kernel": kernel}
            mixed = attention(q, k, v, segments, **options)
            return jnp.sum(jnp.sin(mixed) * (segments > 0)[..., None, None])

        return jax.jit(jax.value_and_grad(run, (0, 1, 2)))

    expected, slopes = total("blocks")(q, k, v)
    with contextlib.ExitStack() as stack:
        if mesh is not None:
            stack.enter_context(Partitioner(make_mesh(**mesh)).activate())
        found, found_slopes = total("splash")(q, k, v)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for got, wanted in zip(found_slopes, slopes, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "length", "said"),
    [
        ("splash", 130, "'splash': rows have 130 tokens, .* multiple of 128; .* 'auto'"),
        ("cudnn", 128, "'cudnn': this is a cpu, .* needs a GPU; .* 'auto'"),
    ],
)
def test_a_fused_kernel_is_refused_where_it_cannot_run(kernel, length, said):
    heads = jax.ShapeDtypeStruct((1, length, 2, 128), jnp.bfloat16)
    segments = jax.ShapeDtypeStruct((1, length), jnp.int32)
    with pytest.raises(ValueError, match=said):
        jax.eval_shape(functools.partial(attention, kernel=kernel), *[heads] * 3, segments)


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(1, 9), before=st.integers(0, 9))
def test_scores_by_distance_become_scores_by_key(rows, before):
    keys = before + rows
    # Column m holds the distance keys - 1 - m: store the distance itself.
    by_distance = np.broadcast_to(np.float32(keys - 1 - np.arange(keys)), (rows, keys))
    by_key = np.asarray(jax.jit(align_distances)(by_distance))
    for row in range(rows):
        for key in range(before + row + 1):
            assert by_key[row, key] == before + row - key


def test_the_future_is_not_computed():
    """Compiled matrix operations of causal blocks: little more than half of the full square."""
    q, k, v = inputs(256, heads=2, kv_heads=2, head_dim=64)
    ones = jnp.ones((2, 256), jnp.int32)
    run = jax.jit(lambda *a: attention(*a, ones, kernel="blocks", block=32))
    flops = run.lower(q, k, v).compile().cost_analysis()["flops"]
    square = 2 * 2 * 2 * 2 * 256 * 256 * 64
    assert flops < 0.65 * square


def test_padding_rows_stay_finite_in_value_and_gradient():
    q, k, v = inputs(8)
    segments = jnp.array([[1] * 4 + [0] * 4] * 2)
    relative = RelativePositions(jnp.ones((8, 4, 8)), jnp.zeros((4, 8)), jnp.zeros((4, 8)))
    loss = lambda q: attention(q, k, v, segments, relative=relative, block=4).sum()  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(loss))(q * 1e4)
    assert np.isfinite(value)
    assert np.all(np.isfinite(slope))

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.learning.cross_entropy import correct_predictions, cross_entropy, in_chunks
from gophercite.models.unembedding import Unembedding


def problem(batch, length, vocab=17, width=6, dtype=jnp.float32):
    rng = np.random.default_rng(length)
    hidden = jnp.asarray(rng.normal(size=(batch, length, width)), dtype)
    kernel = jnp.asarray(rng.normal(size=(vocab, width)), dtype)
    targets = rng.integers(0, vocab, (batch, length)).astype(np.int32)
    weights = (rng.random((batch, length)) * (targets % 3 > 0)).astype(np.float32)
    return hidden, Unembedding(kernel), jnp.asarray(targets), jnp.asarray(weights)


def reference(hidden, unembedding, targets, weights, z_loss):
    logits = jnp.einsum("bld,vd->blv", hidden, unembedding.kernel).astype(jnp.float32)
    if cap := unembedding.softcap:
        logits = jnp.tanh(logits / cap) * cap
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    z = z_loss * jnp.square(jax.nn.logsumexp(logits, -1))
    return jnp.sum(weights * (nll + z))


# Few shapes, as each is compiled; every way that chunks can divide them.
@settings(deadline=None, max_examples=5)
@given(
    batch=st.sampled_from([1, 3]),
    length=st.sampled_from([1, 9]),
    chunk=st.integers(1, 30),
    z_loss=st.sampled_from([0.0, 0.1]),
    softcap=st.sampled_from([None, 1.5]),
)
def test_value_and_gradients_agree_with_optax_for_any_chunk(batch, length, chunk, z_loss, softcap):
    hidden, unembedding, *rest = problem(batch, length)
    ours = lambda h, u: 0.5 * cross_entropy(h, u, *rest, z_loss, chunk)[0]  # noqa: E731
    theirs = lambda h, u: 0.5 * reference(h, u, *rest, z_loss)  # noqa: E731

    @jax.jit
    def compared(*given):
        with_slopes = (jax.value_and_grad(loss, (0, 1))(*given) for loss in (ours, theirs))
        return *with_slopes, ours(*given)

    got, expected, alone = compared(hidden, dataclasses.replace(unembedding, softcap=softcap))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # The value alone, without a gradient, takes another path.
    np.testing.assert_allclose(alone, expected[0], rtol=1e-5)


def test_the_second_value_is_the_likelihood_without_the_z_loss():
    arguments = problem(2, 7)
    _, nll = jax.jit(lambda *a: cross_entropy(*a, 0.3, 4))(*arguments)
    np.testing.assert_allclose(nll, jax.jit(reference)(*arguments, 0.0), rtol=1e-5)


def test_bfloat16_keeps_float32_losses():
    arguments = problem(2, 16, dtype=jnp.bfloat16)
    loss = lambda h: cross_entropy(h, *arguments[1:])[0]  # noqa: E731
    objective, slope = jax.jit(jax.value_and_grad(loss))(arguments[0])
    assert objective.dtype == jnp.float32
    np.testing.assert_allclose(objective, jax.jit(reference)(*arguments, 0.0), rtol=2e-2)
    assert slope.dtype == jnp.bfloat16


def test_logits_never_exist_whole():
    batch, length, vocab, width = 4, 256, 4096, 16
    hidden = jnp.zeros((batch, length, width))
    kernel = jnp.zeros((vocab, width))
    targets = jnp.zeros((batch, length), jnp.int32)
    weights = jnp.ones((batch, length))
    loss = lambda h, u: cross_entropy(h, u, targets, weights, 0.0, 64)[0]  # noqa: E731
    step = jax.jit(jax.grad(loss, (0, 1)))
    memory = step.lower(hidden, Unembedding(kernel)).compile().memory_analysis().temp_size_in_bytes
    assert memory < 0.3 * (4 * batch * length * vocab)


def test_a_frozen_unembedding_costs_no_gradient():
    arguments = problem(4, 64, vocab=512, width=32)

    def flops(argnums):
        slope = jax.grad(lambda h, k: cross_entropy(h, k, *arguments[2:], 0.0, 4096)[0], argnums)
        return jax.jit(slope).lower(*arguments[:2]).compile().cost_analysis()["flops"]

    product = 2 * 4 * 64 * 512 * 32
    assert flops((0, 1)) - flops(0) == pytest.approx(product, rel=0.2)


def test_tokens_without_weight_are_left_out_of_the_work():
    # What is never read can be anything: a product with it would show.
    hidden, unembedding, targets, _ = problem(2, 9)
    weights = jnp.asarray([[0, 1, 0, 0, 2, 0, 1, 0, 0], [1, 0, 0, 1, 1, 0, 0, 0, 0]], jnp.float32)
    counted = weights[..., None] > 0
    holes = jnp.where(counted, hidden, jnp.nan)
    rest = (unembedding, targets, weights)
    one_token_a_row = 2
    loss = lambda h: cross_entropy(h, *rest, 0.1, one_token_a_row)[0]  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(loss))(holes)
    second = jax.jit(jax.value_and_grad(lambda h: reference(h, *rest, 0.1)))
    expected, wanted = second(hidden)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(loss)(holes), expected, rtol=1e-5)
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-6)
    count = jax.jit(correct_predictions, static_argnums=4)
    assert count(holes, *rest, one_token_a_row) == count(hidden, *rest, 512)


def test_a_batch_without_any_weight_has_no_loss():
    hidden, unembedding, targets, weights = problem(2, 9)
    loss = lambda h: cross_entropy(h, unembedding, targets, 0 * weights)[0]  # noqa: E731
    value, slope = jax.jit(jax.value_and_grad(loss))(hidden)
    assert value == 0
    assert not np.any(slope)


def test_correct_predictions_count_weights():
    hidden, unembedding, targets, weights = problem(2, 9)
    right = np.argmax(np.einsum("bld,vd->blv", hidden, unembedding.kernel), -1) == targets
    got = jax.jit(correct_predictions, static_argnums=4)(hidden, unembedding, targets, weights, 5)
    np.testing.assert_allclose(got, np.sum(weights * right), rtol=1e-5)


@pytest.mark.parametrize(("platform", "tokens"), [("cpu", 512), ("gpu", 4096), ("tpu", 4096)])
def test_accelerators_take_larger_chunks(platform: str, tokens: int) -> None:
    device = jax.sharding.AbstractDevice(f"some {platform}", None, platform)
    mesh = jax.sharding.AbstractMesh((1,), ("data",), abstract_device=device)
    rows = np.zeros((4, 5000), np.float32)
    with jax.sharding.use_abstract_mesh(mesh):
        (usual,) = in_chunks(None, rows)
        (asked,) = in_chunks(100, rows)
    assert usual.shape == (-(-5000 * 4 // tokens), 4, tokens // 4)
    assert asked.shape == (200, 4, 25)

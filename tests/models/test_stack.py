import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.models.stack import run_stack


def layer(weights, setting, x, shared):
    return x + jnp.tanh(x @ weights["w"] * setting + shared)


def problem(depth):
    keys = jax.random.split(jax.random.key(depth), 3)
    params = {"w": jax.random.normal(keys[0], (depth, 5, 5))}
    settings = jnp.linspace(0.5, 1.5, depth)
    return params, settings, jax.random.normal(keys[1], (3, 5)), jax.random.normal(keys[2], (5,))


def slopes(params, scales, x, shared, accumulated=None, every=0):
    def loss(params, x):
        y = run_stack(layer, params, scales, x, shared, remat_every=every, accumulated=accumulated)
        return jnp.sum(jnp.cos(y))

    return jax.value_and_grad(loss, argnums=(0, 1))(params, x)


compiled_slopes = jax.jit(slopes, static_argnames="every")


# Groups of one layer, of a number that divides the depth or does not, and of more than there are.
@pytest.mark.parametrize(("depth", "every"), [(8, 1), (8, 4), (8, 3), (8, 9), (1, 1), (1, 2)])
def test_groups_of_any_size_give_the_plain_scan_s_gradients(depth, every):
    arguments = problem(depth)
    for got, expected in zip(
        jax.tree.leaves(compiled_slopes(*arguments, every=every)),
        jax.tree.leaves(compiled_slopes(*arguments)),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_gradients_are_added_to_those_accumulated():
    arguments = problem(5)
    before = {"w": jnp.full((5, 5, 5), 2.0)}
    _, (got, _) = compiled_slopes(*arguments, before, every=2)
    _, (alone, _) = compiled_slopes(*arguments, every=2)
    np.testing.assert_allclose(got["w"], alone["w"] + 2.0, rtol=1e-5)


def test_accumulating_without_groups_is_refused():
    with pytest.raises(ValueError, match="remat_every"):
        slopes(*problem(2), {"w": jnp.zeros((2, 5, 5))})


def test_groups_keep_only_their_inputs():
    """Activations that the backward pass needs shrink with the group, as the compiler counts."""
    depth, width = 12, 64
    params = {"w": jnp.zeros((depth, width, width))}
    x = jnp.zeros((512, width))

    def memory(every):
        step = jax.jit(lambda p: slopes(p, jnp.ones(depth), x, jnp.zeros(width), every=every))
        return step.lower(params).compile().memory_analysis().temp_size_in_bytes

    kept_by_layer = x.nbytes * depth
    assert memory(3) < memory(0) - 0.5 * kept_by_layer

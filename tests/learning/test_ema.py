import jax
import jax.numpy as jnp
import numpy as np

from gophercite.learning import ema


def test_average_weighs_old_steps_geometrically() -> None:
    average = ema.init({"w": jnp.array([1.0])})
    for value in (2.0, 3.0):
        average = ema.update(average, {"w": jnp.array([value])}, 0.9)
    np.testing.assert_allclose(average["w"], [0.81 * 1 + 0.09 * 2 + 0.1 * 3], rtol=1e-6)


def test_average_of_bfloat16_is_float32_and_moves_by_less_than_their_gap() -> None:
    average = ema.init({"w": jnp.ones(1, jnp.bfloat16)})
    assert average["w"].dtype == jnp.float32
    average = ema.update(average, {"w": jnp.full(1, 1.0078125, jnp.bfloat16)}, 0.99)
    np.testing.assert_allclose(average["w"], [1.000078125], rtol=1e-7)


def test_average_shares_no_buffer_with_the_parameters() -> None:
    params = {"w": jnp.ones(4)}
    average = ema.init(params)
    step = jax.jit(lambda a, p: (ema.update(a, p, 0.5), p["w"] + 1), donate_argnums=(0, 1))
    average, _ = step(average, params)
    np.testing.assert_array_equal(average["w"], 1.0)

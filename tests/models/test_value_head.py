"""The value head: how it begins, and what it computes."""

import jax
import numpy as np

from gophercite.models.config import TransformerConfig
from gophercite.models.value_head import ValueHead

CONFIG = TransformerConfig(
    vocab_size=11, d_model=6, num_layers=1, num_heads=2, head_dim=3, dtype="float32"
)


def test_it_begins_at_zero_with_random_hidden_layers() -> None:
    head = ValueHead(CONFIG, width=400)
    params = jax.device_get(jax.jit(head.init)(jax.random.key(0)))
    assert jax.tree.map(np.shape, params) == {
        "first": {"kernel": (6, 400), "bias": (400,)},
        "second": {"kernel": (400, 400), "bias": (400,)},
        "last": {"kernel": (400, 1), "bias": (1,)},
    }
    for name in ("first", "second", "last"):
        assert not params[name]["bias"].any()
    assert not params["last"]["kernel"].any()
    # He's variance: 2 over the number of inputs.
    np.testing.assert_allclose(params["first"]["kernel"].var(), 2 / 6, rtol=0.1)
    np.testing.assert_allclose(params["second"]["kernel"].var(), 2 / 400, rtol=0.05)


def test_its_value_is_that_of_two_hidden_layers_scaled() -> None:
    rng = np.random.default_rng(0)
    head = ValueHead(CONFIG, width=5, scale=3.0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), head.abstract())
    x = rng.normal(size=(2, 4, 6))
    y = x
    for name in ("first", "second"):
        y = np.maximum(y @ params[name]["kernel"] + params[name]["bias"], 0)
    expected = 3 * (y @ params["last"]["kernel"][:, 0] + params["last"]["bias"][0])
    np.testing.assert_allclose(head.apply(params, jax.numpy.asarray(x)), expected, rtol=1e-4)

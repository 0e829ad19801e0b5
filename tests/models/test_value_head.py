"""The value head: how it begins, and what it computes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.models.value_head import ValueHead

CONFIG = TransformerConfig(
    vocab_size=11, d_model=6, num_layers=1, num_heads=2, head_dim=3, dtype="float32"
)


def test_it_begins_at_zero_with_random_hidden_layers() -> None:
    head = ValueHead(CONFIG, width=400)
    params = jax.device_get(head.init(jax.random.key(0)))
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


def test_heads_are_not_rounded_to_an_accelerator_s_usual_precision() -> None:
    """Products whose result is one number: a value, a reward, a log-odds."""
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    head, judge = ValueHead(config, width=5), RewardModel(Transformer(config))
    x = jax.ShapeDtypeStruct((2, 4, 6), jnp.bfloat16)
    rows, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((2, 4), (2,)))
    params = {**judge.transformer.abstract(), HEADS: judge.abstract_heads()}
    values = jax.make_jaxpr(head.apply)(head.abstract(), x)
    verdicts = jax.make_jaxpr(judge.judge)(params, rows, lengths)
    found = [
        equation.params["precision"]
        for equation in (*values.eqns, *verdicts.eqns)
        if equation.primitive.name == "dot_general"
        and equation.outvars[0].aval.shape in ((2, 4, 1), (2,))
    ]
    assert found == [(jax.lax.Precision.HIGHEST,) * 2] * 3

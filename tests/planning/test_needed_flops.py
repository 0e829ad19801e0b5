"""The operations of a step by analysis, beside those of the program that JAX makes of it."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import Jaxpr, jaxprs_in_params
from jaxtyping import Array

from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning import optimizers, schedules
from gophercite.learning.a2c import A2CLearner
from gophercite.learning.rollouts import Rewards
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import LoRA
from gophercite.models.parameters import Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.planning.needed_flops import a2c_flops, forward_flops, gradient_flops, trained_flops
from tests.long_forms import IS_LONG

ROWS, LENGTH = 2, 3  # each token is a block of its own, which takes long to trace
CONFIG = TransformerConfig(
    vocab_size=40, d_model=16, num_layers=3, num_heads=4, head_dim=8, d_ff=24, num_kv_heads=2,
    position="rope", gated_mlp=True, tied_embeddings=False, dtype="float32",
    # A program that computes each pair of tokens once, and nothing again.
    attention_block=1, attention_remat=False, elementwise_remat=False, scan_layers=True,
)  # fmt: skip
TIED = dataclasses.replace(CONFIG, tied_embeddings=True)
ALL = ("query", "key", "value", "out", "up", "gate", "down")


def products(jaxpr: Jaxpr) -> int:
    """The operations of a program's products."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            factor = equation.invars[0].aval.shape
            terms = math.prod(factor[axis] for axis in summed)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * terms
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(map(products, jaxprs_in_params(equation.params)))
    return total


def loss(model: Transformer, trained: Params, params: Params) -> Array:
    tokens = jnp.zeros((ROWS, LENGTH), jnp.int32)
    places = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
    params = {**params, **trained}
    hidden, _ = model.apply(params, tokens, places, jnp.ones_like(tokens))
    return jnp.sum(jax.nn.logsumexp(model.logits(params, hidden), axis=-1))


@pytest.mark.parametrize("window", [None, 1, 2, 100])
def test_a_forward_pass_counts_the_tokens_that_are_seen(window: int | None) -> None:
    config = dataclasses.replace(CONFIG, window=window)
    model = Transformer(config)
    program = jax.make_jaxpr(lambda params: loss(model, {}, params))(model.abstract())
    whole = forward_flops(config, ROWS, LENGTH, read=LENGTH)
    assert whole == products(program.jaxpr)
    parts = forward_flops(config, ROWS, 2, read=2)
    parts += forward_flops(config, ROWS, LENGTH - 2, start=2, read=LENGTH - 2)
    assert parts == whole
    by_layer = dataclasses.replace(config, window=(window, None, window))
    rest = forward_flops(CONFIG, ROWS, LENGTH, read=LENGTH) - whole
    assert forward_flops(by_layer, ROWS, LENGTH, read=LENGTH) == pytest.approx(whole + rest / 3)


@pytest.mark.parametrize(
    ("config", "frozen_parts", "lora"),
    [
        (TIED, (), None),
        (TIED, ("embed",), None),
        (CONFIG, ("embed",), None),
        (CONFIG, ("embed", "unembed"), None),
        (CONFIG, (), LoRA(2)),
        (TIED, (), LoRA(3, targets=ALL)),
    ],
)
def test_what_is_not_trained_has_no_gradient(
    config: TransformerConfig, frozen_parts: tuple[str, ...], lora: LoRA | None
) -> None:
    model = Transformer(config, lora)
    learner = SupervisedLearner(
        model, optimizers.adafactor(), schedules.constant(1.0), frozen_parts
    )
    params = model.abstract()
    slope = jax.grad(lambda trained, params: loss(model, trained, params))
    program = jax.make_jaxpr(slope)(learner.trained(params), params)
    needed = trained_flops(learner, config, ROWS, LENGTH, read=LENGTH)
    assert needed == products(program.jaxpr)
    for frozen in (1, 2) if IS_LONG else (2,):
        params = model.abstract(frozen)
        program = jax.make_jaxpr(slope)(learner.trained(params), params)
        needed = gradient_flops(learner, frozen, ROWS, LENGTH, read=LENGTH)
        assert needed == products(program.jaxpr)


def test_actor_critic_needs_what_differs_between_its_parts() -> None:
    prompts, length, question, tokens, samples = 3, 8, 5, 4, 2

    def needed(config: TransformerConfig, frozen_layers: int = 1, **settings: Any) -> float:
        model = Transformer(config)
        learner = A2CLearner(
            transformer=model,
            optimizer=optimizers.adafactor(),
            schedule=schedules.constant(1.0),
            rewards=Rewards(RewardModel(model)),
            plan=Plan(model, SamplingSettings(tokens), 1, 0, 40, samples, samples),
            **settings,
        )
        return a2c_flops(learner, frozen_layers, prompts, length, question)

    rows = prompts * samples
    head = 2 * rows * tokens * CONFIG.vocab_size * CONFIG.d_model
    # The embedding is not what separate logits are computed with.
    frozen = needed(CONFIG, frozen_parts=("embed",))
    assert frozen - head == needed(CONFIG, frozen_parts=("embed", "unembed"))
    # The teacher of a policy whose embedding is trained has a first layer of its own.
    layer, above = (
        forward_flops(dataclasses.replace(CONFIG, num_layers=n), rows, length + tokens, read=tokens)
        for n in (3, 2)
    )
    assert needed(CONFIG) == frozen + layer - above
    # Layers may differ.
    mixed = dataclasses.replace(CONFIG, window=(None, 2, 2), rope_theta=(1e4, 10.0, 10.0))
    fewer = [needed(CONFIG, n) - needed(mixed, n) for n in (0, 1, 2)]
    assert fewer == sorted(fewer, reverse=True)
    assert fewer[-1] > 0

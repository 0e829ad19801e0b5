"""Training adapters alone: the gradients, what a step costs and keeps, heads and teachers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gophercite.learning.a2c import Collected
from gophercite.learning.optimizers import adam
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.lora import LoRA
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    HEADS,
    TEACHER,
    TRAINED,
    VALUE_HEAD,
)
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.planning.compiled import costs
from tests.drawn_parameters import drawn_parameters
from tests.learning import test_a2c as a2c
from tests.learning import test_reward as reward
from tests.learning.test_supervised import CONFIG, make_batch

LORA = LoRA(rank=2, alpha=6.0, targets=("query", "value", "out", "up", "down"))


def make_learner(config=CONFIG, rate=1e-2, **settings):
    transformer = Transformer(config, LORA)
    return SupervisedLearner(transformer, adam(eps=1e-3), lambda step: rate, **settings)


@functools.cache
def initial(transformer, frozen):
    """Parameters whose adapters have moved, so that A has a gradient too."""
    params = drawn_parameters(transformer, frozen_layers=frozen)
    moved = jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf) + 0.02), params[ADAPTERS])
    return {**params, ADAPTERS: moved}


def start(learner, frozen=0):
    return learner.init_state(initial(learner.transformer, frozen), jax.random.key(1))


def assert_base_stays(before, after):
    for name in before.keys() - {ADAPTERS, HEADS, VALUE_HEAD}:
        jax.tree.map(np.testing.assert_array_equal, after[name], before[name])


LEARNER = make_learner(microbatches=2, max_grad_norm=1.0, ema_decay=0.5)


@functools.cache
def step_on_two_devices():
    """The state before, and after a step; its gradients, and its metrics."""
    state = start(LEARNER, frozen=2)
    partitioner = Partitioner(make_mesh(1, 1, 2, devices=jax.devices()[:2]))
    shardings = partitioner.shardings(LEARNER.state_axes(state.params), state)
    placed = jax.device_put(jax.device_get(state), shardings)
    rows = jax.device_put(make_batch(), partitioner.batch_sharding)

    @functools.partial(jax.jit, out_shardings=(shardings, None, partitioner.replicated))
    def step(state, batch):
        gradients, losses = LEARNER.gradients(state.params, batch, batch["weights"].sum())
        return LEARNER.descend(state, gradients)[0], gradients, losses

    with partitioner.activate():
        return state, *step(placed, rows)


@jax.jit
@jax.value_and_grad
def loss_of_merged_matrices(adapters, params, batch):
    """Written plainly, without adapters, microbatches and blocks that are rematerialised."""
    plain = Transformer(dataclasses.replace(CONFIG, remat_every=0))
    layers = dict(params[TRAINED])
    for name, adapter in adapters.items():
        layers[name] += LORA.scale * adapter["a"] @ adapter["b"]
    base = {name: part for name, part in params.items() if name != ADAPTERS}
    whole = {**base, TRAINED: layers}
    tokens = (batch["tokens"], batch["positions"], batch["segments"])
    logits = plain.logits(whole, plain.apply(whole, *tokens)[0])
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
    return jnp.sum(nll * batch["weights"]) / jnp.sum(batch["weights"])


def test_the_gradient_is_that_of_merged_matrices():
    """In microbatches, with blocks rematerialised, above frozen layers, on two devices."""
    before, _, gradients, metrics = step_on_two_devices()
    nll, expected = loss_of_merged_matrices(before.params[ADAPTERS], before.params, make_batch())
    np.testing.assert_allclose(metrics["loss/nll"], nll, rtol=1e-5)
    assert gradients.keys() == {ADAPTERS}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        gradients[ADAPTERS],
        expected,
    )


def test_a_step_leaves_the_base_alone_and_has_no_state_for_it():
    before, after, _, metrics = jax.device_get(step_on_two_devices())
    assert_base_stays(before.params, after.params)
    assert after.optimizer.statistics.keys() == after.ema.keys() == {ADAPTERS}
    assert {leaf.shape[0] for leaf in jax.tree.leaves(after.params[ADAPTERS])} == {3}
    moved = jax.tree.map(
        lambda a, b: bool(np.any(np.not_equal(a, b))),
        after.params[ADAPTERS],
        before.params[ADAPTERS],
    )
    assert all(jax.tree.leaves(moved))
    nll = loss_of_merged_matrices(after.params[ADAPTERS], before.params, make_batch())[0]
    assert nll < metrics["loss/nll"]


def test_a_step_on_two_devices_equals_that_of_one():
    """From the same gradients; that these are right, is shown above."""
    before, after, gradients, _ = step_on_two_devices()
    b = after.params[ADAPTERS]["query"]["b"]
    assert b.addressable_shards[0].data.size == b.size // 2
    alone = jax.jit(LEARNER.descend)(before, jax.device_get(gradients))[0]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        (after.params[ADAPTERS], after.ema),
        (alone.params[ADAPTERS], alone.ema),
    )


def test_no_gradient_of_the_base_is_ever_computed():
    """As the compiler counts: products, memory, and what the optimiser keeps."""
    config = dataclasses.replace(
        CONFIG, num_layers=8, d_model=64, head_dim=16, vocab_size=64, max_positions=64
    )
    batch = make_batch(rows=2, length=64, vocab=64)
    compiled, kept = {}, {}
    for name, transformer in (
        ("all", Transformer(config)),
        ("adapters", Transformer(config, LORA)),
    ):
        learner = SupervisedLearner(transformer, adam(), lambda step: 1e-3)
        state = jax.eval_shape(
            lambda learner=learner: learner.init_state(
                learner.transformer.init(jax.random.key(0)), jax.random.key(1)
            )
        )
        compiled[name] = jax.jit(learner.update, donate_argnums=0).lower(state, batch).compile()
        kept[name] = sum(leaf.size for leaf in jax.tree.leaves(state.optimizer.statistics))
    assert kept["all"] == 2 * config.parameters
    widths = [64 + 64, 64 + 64, 64 + 64, 64 + 256, 256 + 64]  # in and out, of five matrices
    assert kept["adapters"] == 2 * config.num_layers * LORA.rank * sum(widths)
    # Forward, once more for the backward pass, and the stream's gradient: 3 products of 4. The
    # adapters' own are 4 % of those in so narrow a model, and attention's are as before.
    operations = {name: costs(each.as_text()).flops for name, each in compiled.items()}
    assert operations["adapters"] / operations["all"] == pytest.approx(0.81, rel=0.02)
    temporary = {n: each.memory_analysis().temp_size_in_bytes for n, each in compiled.items()}
    gradients = 4 * config.num_layers * config.layer_parameters
    assert temporary["adapters"] < temporary["all"] - 0.9 * gradients


def test_a_reward_model_trains_its_heads_beside_the_adapters():
    of = reward.make_learner()
    of = dataclasses.replace(of, transformer=Transformer(reward.CONFIG, LORA))
    adapters = drawn_parameters(of.transformer, 5, frozen_layers=1)[ADAPTERS]
    params = {**reward.start(of, frozen=1).params, ADAPTERS: adapters}
    state, batch = of.init_state(params, jax.random.key(1)), reward.make_batch()
    after, metrics = jax.jit(of.update)(state, batch)
    assert metrics["loss/total"] == pytest.approx(np.log(2), rel=0.5)
    assert after.optimizer.statistics.keys() == {ADAPTERS, HEADS}
    assert_base_stays(params, after.params)
    assert np.any(after.params[HEADS]["reward"]["kernel"] != params[HEADS]["reward"]["kernel"])
    assert np.any(after.params[ADAPTERS]["up"]["b"])


def test_a_policy_s_teacher_is_its_base():
    transformer = Transformer(a2c.CONFIG, LORA)
    plan = dataclasses.replace(a2c.plan(max_tokens=1), transformer=transformer)
    of = a2c.learner(transformer=transformer, plan=plan, microbatches=2)
    params = a2c.parameters(of)
    assert params[TEACHER] == {}
    assert of.trained(params).keys() == {ADAPTERS, VALUE_HEAD}
    axes = of.state_axes(params).params
    assert axes[ADAPTERS].keys() == set(LORA.targets)
    learn, state = jax.jit(of.learn), of.init_state(params, jax.random.key(2))
    rewards = np.sin(np.arange(a2c.BYTES.size, dtype=np.float32))
    answers = jax.device_get(jax.jit(a2c.every_answer)(params, rewards))
    halves = jax.tree.map(lambda leaf: leaf[: len(leaf) // 2 * 2], answers)  # for microbatches
    shown = Collected(halves, None)
    first, metrics = learn(state, shown)
    assert metrics["objective/kl"] == pytest.approx(0, abs=1e-5)
    second, metrics = learn(first, shown)
    assert metrics["objective/kl"] > 1e-4
    assert second.params[FROZEN]["query"].shape[0] == 1
    assert_base_stays(params, second.params)

"""The supervised and the reward model's loss written a second time, row by row, with gradients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gophercite.learning.adam import AdamRule
from gophercite.learning.reward import RewardLearner
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_heads
from tests.learning.test_a2c_objective import Handed

MODEL = Transformer(
    TransformerConfig(
        vocab_size=17, d_model=8, num_layers=1, num_heads=2, head_dim=4, dtype="float32"
    )
)
ROWS, LENGTH = 4, 6


def hidden(params: Params, tokens: Array) -> Array:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    return MODEL.apply(params, tokens, positions, jnp.ones_like(tokens))[0]


def assert_same(found: Any, expected: Any) -> None:
    for (path, slope), ours in zip(
        jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True
    ):
        name, largest = jax.tree_util.keystr(path), float(np.abs(slope).max())
        np.testing.assert_allclose(ours, slope, atol=1e-4 * largest, rtol=1e-3, err_msg=name)


def test_supervised_loss_and_gradients() -> None:
    """−Σ w log p / Σ w and z_loss · Σ w log² Z / Σ w, in two microbatches."""
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(1, 17, (2, ROWS, LENGTH))
    weights = rng.random((ROWS, LENGTH)) * rng.integers(0, 2, (ROWS, LENGTH))
    params = jax.tree.map(lambda leaf: 3 * leaf, MODEL.init(jax.random.key(0)))

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def second(params: Params) -> tuple[Array, Array]:
        logits = MODEL.logits(params, hidden(params, tokens))
        z = jnp.log(jnp.sum(jnp.exp(logits), axis=-1))
        chosen = jnp.sum(logits * (targets[..., None] == jnp.arange(17)), axis=-1)
        nll = jnp.sum(weights * (z - chosen)) / np.sum(weights)
        return nll + 0.05 * jnp.sum(weights * z**2) / np.sum(weights), nll

    (loss, nll), slopes = second(params)
    learner = SupervisedLearner(
        MODEL,
        Handed(AdamRule(0.9, 0.999, 1e-8)),
        lambda step: 1.0,
        microbatches=2,
        z_loss=0.05,
        loss_chunk=7,
    )
    places = np.broadcast_to(np.arange(LENGTH), tokens.shape)
    batch = {
        "tokens": tokens,
        "targets": targets,
        "weights": weights,
        "positions": places,
        "segments": np.ones_like(tokens),
    }
    batch = {name: jnp.asarray(array) for name, array in batch.items()}
    state = learner.init_state(params, jax.random.key(1))
    after, metrics = jax.jit(learner.update)(state, batch)
    np.testing.assert_allclose(metrics["loss/total"], loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss/nll"], nll, rtol=1e-5)
    assert SupervisedLearner.z_loss == 0  # none unless it is asked for
    assert metrics["throughput/target_tokens"] == np.count_nonzero(weights)
    assert_same(after.params, slopes)


def test_the_reward_model_s_loss_and_gradients() -> None:
    """Ties aim at ½; the auxiliary loss has a weight that is not the rest's."""
    rng = np.random.default_rng(1)
    tokens, lengths = rng.integers(1, 17, (ROWS, 2, LENGTH)), rng.integers(1, LENGTH + 1, (ROWS, 2))
    preferred = np.array([0.0, 0.5, 1.0, 0.5])
    known, labels = np.array([1.0, 1, 1, 0]), rng.integers(0, 2, (ROWS, 2)).astype(float)
    labelled = np.array([[1.0, 0], [1, 1], [0, 0], [1, 1]])
    params = jax.tree.map(lambda leaf: 3 * leaf, MODEL.init(jax.random.key(0)))
    params["heads"] = drawn_heads(RewardModel(MODEL), 4)

    def log_sigmoid(x: Array) -> Array:
        return -jnp.log1p(jnp.exp(-x))

    @jax.jit
    @jax.value_and_grad
    def second(params: Params) -> Array:
        heads = params["heads"]
        flat = hidden(params, tokens.reshape(2 * ROWS, LENGTH)).reshape(ROWS, 2, LENGTH, -1)
        last = jnp.sum(flat * (jnp.arange(LENGTH) == lengths[..., None] - 1)[..., None], axis=2)
        reward = last @ heads["reward"]["kernel"]
        both = last @ heads["supported_and_plausible"]["kernel"]
        both += heads["supported_and_plausible"]["bias"][0]
        margin = reward[:, 1] - reward[:, 0]
        pair = preferred * log_sigmoid(margin) + (1 - preferred) * log_sigmoid(-margin)
        single = labels * log_sigmoid(both) + (1 - labels) * log_sigmoid(-both)
        preference = -jnp.sum(known * pair) / np.sum(known)
        auxiliary = -jnp.sum(labelled * single) / np.sum(labelled)
        return 0.7 * preference + 0.3 * auxiliary

    loss, slopes = second(params)
    learner = RewardLearner(
        MODEL,
        Handed(AdamRule(0.9, 0.999, 1e-8)),
        lambda step: 1.0,
        microbatches=2,
        auxiliary_weight=0.3,
    )
    batch = {
        "tokens": tokens,
        "lengths": lengths,
        "preferred": preferred,
        "preferred_weights": known,
        "supported_and_plausible": labels,
        "label_weights": labelled,
    }
    batch = {name: jnp.asarray(array) for name, array in batch.items()}
    state = learner.init_state(params, jax.random.key(1))
    after, metrics = jax.jit(learner.update)(state, batch)
    np.testing.assert_allclose(metrics["loss/total"], loss, rtol=1e-5)
    assert metrics["throughput/pairs"] == 3
    assert_same(after.params, slopes)

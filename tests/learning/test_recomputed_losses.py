"""A batch's loss and its gradient computed again in float64, by the NumPy model and differences.

Where `test_second_formulations` differentiates a second loss of the same model, here neither the
model nor autodiff is shared. Batches are cut into microbatches of unequal weight, and gradients are
added up and clipped.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.learning import schedules
from gophercite.learning.adam import AdamRule
from gophercite.learning.gradient_learner import GradientLearner
from gophercite.learning.reward import RewardLearner
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params, merge_layers
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_parameters
from tests.learning.test_a2c_objective import Handed
from tests.models.reference import forward

CONFIG = TransformerConfig(
    vocab_size=11,
    d_model=6,
    num_layers=2,
    num_heads=2,
    head_dim=3,
    position="learned",
    max_positions=8,
    dtype="float32",
    remat_every=1,  # the microbatches' gradients share one buffer
)
MODEL = Transformer(CONFIG)
ROWS, LENGTH, STEP = 4, 8, 1e-5
LIMIT = 0.05  # below the norm of the gradients
SETTINGS: dict[str, Any] = {
    "transformer": MODEL,
    "optimizer": Handed(AdamRule(0.9, 0.999, 1e-8)),
    "schedule": schedules.constant(1.0),
    "microbatches": 2,
    "max_grad_norm": LIMIT,
}


def float64(params: Params) -> Params:
    """Parameters in one stack of layers, as the NumPy model takes them."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), merge_layers(params))


def assert_handed_gradient(
    learner: GradientLearner,
    params: Params,
    batch: dict[str, np.ndarray],
    loss: Callable[[Params], float],
    rng: np.random.Generator,
) -> None:
    """The step's gradient against differences of the loss, in a random direction of each array."""
    state = learner.init_state(params, jax.random.key(0))
    after, metrics = jax.jit(learner.update)(state, {n: jnp.asarray(x) for n, x in batch.items()})
    handed = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), learner.trained(after.params))
    whole = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(handed)))
    np.testing.assert_allclose(whole, LIMIT, rtol=1e-5)
    norm = float(metrics["optimizer/grad_norm"])
    assert norm > 2 * LIMIT
    base = float64(params)
    np.testing.assert_allclose(metrics["loss/total"], loss(base), rtol=1e-5)
    for path, slope in jax.tree_util.tree_leaves_with_path(handed):
        name = jax.tree_util.keystr(path)
        direction = rng.normal(size=slope.shape)
        # Layers below the trained ones are first in the stack and stay.
        stacked = path[0].key == "trained_layers"
        frozen = CONFIG.num_layers - len(slope) if stacked else 0

        def moved(
            size: float, path: Any = path, direction: Any = direction, frozen: int = frozen
        ) -> Params:
            def move(here: Any, leaf: np.ndarray) -> np.ndarray:
                if here != path:
                    return leaf
                return leaf + size * np.pad(direction, [(frozen, 0)] + [(0, 0)] * (leaf.ndim - 1))

            return jax.tree_util.tree_map_with_path(move, base)

        expected = (loss(moved(STEP)) - loss(moved(-STEP))) / (2 * STEP)
        found = norm / LIMIT * np.sum(slope * direction)
        bound = 1e-4 * norm / LIMIT * np.sqrt(np.sum(slope**2)) + 1e-5 * norm
        assert abs(found - expected) < bound, (name, found, expected)


def test_supervised_steps_are_recomputed() -> None:
    """Σ w (nll + z_loss · log² Z) / Σ w; sequences of unequal weight, which sum to less than 1."""
    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(1, 11, (2, ROWS, LENGTH))
    places, segments = np.zeros((2, ROWS, LENGTH), np.int64)
    weights = rng.uniform(0.01, 0.1, (ROWS, LENGTH)) * rng.integers(0, 2, (ROWS, LENGTH))
    for row, (first, second) in enumerate([(3, 4), (8, 0), (2, 1), (0, 0)]):
        places[row, : first + second] = [*range(first), *range(second)]
        segments[row, : first + second] = [1] * first + [2] * second
        weights[row, first + second :] = 0
    z_loss = 0.05

    def loss(params: Params) -> float:
        hidden = forward(CONFIG, params, tokens, places, segments)
        logits = hidden @ params["embed"]["embedding"].T
        log_z = np.log(np.sum(np.exp(logits), axis=-1))
        nll = log_z - np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return float(np.sum(weights * (nll + z_loss * log_z**2)) / np.sum(weights))

    learner = SupervisedLearner(**SETTINGS, z_loss=z_loss, loss_chunk=6)
    batch = {
        "tokens": tokens,
        "targets": targets,
        "weights": weights.astype(np.float32),
        "positions": places,
        "segments": segments,
    }
    params = drawn_parameters(MODEL, 1)
    assert_handed_gradient(learner, params, batch, loss, rng)


def test_reward_model_s_steps_are_recomputed() -> None:
    """Ties, unknown preferences and labels, a pair of padding; the average of the two losses.

    Above a frozen layer, with the default weights of both losses.
    """
    rng = np.random.default_rng(1)
    tokens = rng.integers(1, 11, (ROWS, 2, LENGTH))
    lengths = np.array([[8, 3], [5, 1], [2, 7], [0, 0]])
    preferred, known = np.array([1.0, 0.5, 0.0, 0.0]), np.array([1.0, 1, 1, 0])
    labels = np.array([[1.0, 0], [0, 1], [1, 0], [0, 0]])
    labelled = np.array([[1.0, 0], [1, 1], [1, 0], [0, 0]])
    places = np.broadcast_to(np.arange(LENGTH), (2 * ROWS, LENGTH))
    centering = 0.3

    def loss(params: Params) -> float:
        total_preference = total_auxiliary = total_centre = 0.0
        segments = (places < lengths.reshape(-1, 1)).astype(int)
        flat = tokens.reshape(-1, LENGTH)
        hidden = forward(CONFIG, params, flat, places, segments).reshape(ROWS, 2, LENGTH, -1)
        heads = params["heads"]
        judge = heads["supported_and_plausible"]
        for pair in range(ROWS):
            last = [hidden[pair, side, max(lengths[pair, side] - 1, 0)] for side in (0, 1)]
            first, second = (h @ heads["reward"]["kernel"] for h in last)
            chosen = np.exp(second) / (np.exp(first) + np.exp(second))
            if known[pair]:
                p = preferred[pair]
                total_preference -= p * np.log(chosen) + (1 - p) * np.log(1 - chosen)
                total_centre += (first + second) ** 2
            for side in (0, 1):
                if labelled[pair, side]:
                    good = 1 / (1 + np.exp(-(last[side] @ judge["kernel"] + judge["bias"][0])))
                    total_auxiliary -= np.log(good if labels[pair, side] else 1 - good)
        preference = total_preference / np.sum(known)
        auxiliary = total_auxiliary / np.sum(labelled)
        centre = total_centre / np.sum(known)
        return float((preference + auxiliary) / 2 + centering * centre)

    # Here the microbatches' gradients are added outside the stack.
    plain = Transformer(dataclasses.replace(CONFIG, remat_every=0))
    learner = RewardLearner(**SETTINGS | {"transformer": plain}, centering=centering)
    params = drawn_parameters(MODEL, 2, frozen_layers=1)
    params["heads"] = {
        "reward": {"kernel": jnp.asarray(rng.normal(size=6), jnp.float32)},
        "supported_and_plausible": {
            "kernel": jnp.asarray(rng.normal(size=6), jnp.float32),
            "bias": jnp.asarray([0.4], jnp.float32),
        },
    }
    batch = {
        "tokens": tokens,
        "lengths": lengths,
        "preferred": preferred.astype(np.float32),
        "preferred_weights": known.astype(np.float32),
        "supported_and_plausible": labels.astype(np.float32),
        "label_weights": labelled.astype(np.float32),
    }
    assert_handed_gradient(learner, params, batch, loss, rng)

"""The reward model's learner: its losses by hand, over meshes, and what it may not depend on."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gophercite.learning import preference_metrics
from gophercite.learning.optimizers import adam
from gophercite.learning.preference_metrics import area_under_roc
from gophercite.learning.reward import RewardLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import split_layers
from gophercite.models.reward_model import RewardModel, Verdict
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from tests.drawn_parameters import drawn_heads, drawn_parameters
from tests.long_forms import LONG

PAIRS, LENGTH = 8, 12
CONFIG = TransformerConfig(
    vocab_size=40,
    d_model=16,
    num_layers=3,
    num_heads=4,
    head_dim=4,
    position="rope",
    dtype="float32",
    remat_every=1,
)


def make_batch(seed=0):
    """Eight pairs: some ties, some preferences and labels unknown, the last pair padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, LENGTH + 1, (PAIRS, 2)).astype(np.int32)
    lengths[-1] = 0
    real = np.arange(LENGTH) < lengths[..., None]
    tokens = rng.integers(1, 40, (PAIRS, 2, LENGTH)) * real
    return {
        "tokens": tokens.astype(np.int32),
        "lengths": lengths,
        "preferred": np.array([0, 1, 0.5, 1, 0, 0.5, 1, 0], np.float32),
        "preferred_weights": np.array([1, 1, 1, 1, 0, 1, 1, 0], np.float32),
        "supported_and_plausible": rng.integers(0, 2, (PAIRS, 2)).astype(np.float32),
        "label_weights": np.array([[1, 1]] * 3 + [[0, 1]] + [[1, 0]] * 3 + [[0, 0]], np.float32),
    }


def rate(step):
    """Written once, so that learners with the same settings are equal."""
    return 1.0


def make_learner(config=CONFIG, **settings):
    """An optimiser that is no sign function near 0, where the order of a sum decides the sign."""
    return RewardLearner(Transformer(config), adam(eps=1.0), rate, **settings)


LEARNER = make_learner(auxiliary_weight=0.2, centering=0.7)
UPDATE = jax.jit(LEARNER.update)
# Another that learns in few steps, with some of it frozen.
QUICK = dataclasses.replace(
    make_learner(frozen_parts=("embed",), microbatches=2, max_grad_norm=1.0),
    optimizer=adam(),
    schedule=lambda step: 1e-2,
)
UPDATE_QUICKLY, EVALUATE = jax.jit(QUICK.update), jax.jit(QUICK.evaluate)


@functools.cache
def initial():
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    return {**params, "heads": drawn_heads(RewardModel(transformer), 1)}


def start(learner, frozen=0):
    params = jax.device_put(split_layers(jax.device_get(initial()), frozen))
    return learner.init_state(params, jax.random.key(1))


@functools.cache
def scores():
    """The verdicts on each response of the batch alone, cut to its length."""
    model, batch = RewardModel(Transformer(CONFIG)), make_batch()
    judge = jax.jit(model.judge)
    found = np.zeros((2, PAIRS, 2))
    for pair in range(PAIRS - 1):
        for side in range(2):
            length = batch["lengths"][pair, side]
            tokens = batch["tokens"][pair, side, :length]
            room = np.zeros((1, LENGTH), np.int32)
            room[0, :length] = tokens
            room[0, length:] = 7  # whatever stands behind the end, it is not read
            found[:, pair, side] = np.squeeze(judge(initial(), room, np.array([length])), 1)
    return found


def by_hand(auxiliary_weight, centering=0.0):
    batch, (reward, judged) = make_batch(), scores()
    with np.errstate(over="ignore"):
        second = 1 / (1 + np.exp(reward[:, 0] - reward[:, 1]))
        both = 1 / (1 + np.exp(-judged))
    target, labels = batch["preferred"], batch["supported_and_plausible"]
    nll = -(target * np.log(second) + (1 - target) * np.log(1 - second))
    preference = np.average(nll, weights=batch["preferred_weights"])
    nll = -(labels * np.log(both) + (1 - labels) * np.log(1 - both))
    auxiliary = np.average(nll, weights=batch["label_weights"])
    total = (1 - auxiliary_weight) * preference + auxiliary_weight * auxiliary
    sums = reward[:, 0] + reward[:, 1]
    total += centering * np.average(sums**2, weights=batch["preferred_weights"])
    decided = batch["preferred_weights"] * (target != 0.5)
    return {
        "loss/total": total,
        "reward/accuracy": np.average((reward[:, 1] > reward[:, 0]) == target, weights=decided),
        "reward/mean": np.average(sums / 2, weights=batch["preferred_weights"]),
        "loss/preference": preference,
        "loss/supported_and_plausible": auxiliary,
    }


# The others are weights as the first ones are.
@pytest.mark.parametrize(
    ("auxiliary_weight", "centering"),
    [(0.2, 0.7), pytest.param(0.5, 0.0, marks=LONG), pytest.param(0.0, 0.0, marks=LONG)],
)
def test_losses_are_those_computed_by_hand(auxiliary_weight, centering):
    learner = make_learner(auxiliary_weight=auxiliary_weight, centering=centering)
    batch = make_batch()
    update = UPDATE if learner == LEARNER else jax.jit(learner.update)
    _, metrics = update(start(learner, frozen=1), batch)
    for name, value in by_hand(auxiliary_weight, centering).items():
        np.testing.assert_allclose(metrics[name], value, rtol=2e-5, err_msg=name)
    assert metrics["throughput/pairs"] == batch["preferred_weights"].sum()
    assert (make_learner().auxiliary_weight, make_learner().centering) == (0.5, 0.0)


def test_what_is_unknown_and_padding_do_not_matter():
    state, batch = start(LEARNER, frozen=1), make_batch()
    other = dict(batch)
    other["preferred"] = np.where(batch["preferred_weights"] > 0, batch["preferred"], 1 / 3)
    other["supported_and_plausible"] = np.where(
        batch["label_weights"] > 0, batch["supported_and_plausible"], 0.25
    )
    real = np.arange(LENGTH) < batch["lengths"][..., None]
    other["tokens"] = np.where(real, batch["tokens"], 9).astype(np.int32)
    other = {name: array.astype(batch[name].dtype) for name, array in other.items()}
    before, after = (UPDATE(state, each)[0].params for each in (batch, other))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), before, after)


def test_a_batch_without_labels_or_preferences_has_no_loss_of_that_kind():
    unlabelled = {**make_batch(), "label_weights": np.zeros((PAIRS, 2), np.float32)}
    _, metrics = UPDATE(start(LEARNER, frozen=1), unlabelled)
    assert metrics["loss/supported_and_plausible"] == 0
    labelled = by_hand(0.2, 0.7)
    rest = labelled["loss/total"] - 0.2 * labelled["loss/supported_and_plausible"]
    np.testing.assert_allclose(metrics["loss/total"], rest, rtol=2e-5)
    params = start(QUICK, frozen=2).params
    results = QUICK.summarise(jax.device_get(EVALUATE(params, unlabelled)))
    assert np.isnan(results["supported_and_plausible_auc"])
    assert np.isfinite(results["preference_accuracy"])


def test_heads_alone_can_be_trained_with_layers_that_are_recomputed():
    """Gradients of layers are added up in their own place, where there are any."""
    learner = make_learner(frozen_parts=("embed", "trained_layers"), microbatches=2)
    state = start(learner)
    after, metrics = jax.eval_shape(learner.update, state, make_batch())
    assert {"loss/preference", "loss/supported_and_plausible"} <= metrics.keys()
    assert learner.trained(after.params).keys() == {"final_norm", "heads"}


def test_training_lowers_both_losses_and_leaves_frozen_parts_alone():
    first = state = start(QUICK, frozen=2)
    batch = make_batch()
    metrics = []
    for _ in range(25):
        state, values = UPDATE_QUICKLY(state, batch)
        metrics.append(jax.device_get(values))
    for name in ("loss/preference", "loss/supported_and_plausible"):
        assert metrics[-1][name] < 0.8 * metrics[0][name]
    for part in ("embed", "frozen_layers"):
        jax.tree.map(np.testing.assert_array_equal, state.params[part], first.params[part])
        assert part not in state.optimizer.statistics
    assert set(state.optimizer.statistics) == {"trained_layers", "final_norm", "heads"}


def separable_batch(seed):
    """Pairs that a single token decides: of the two, the better and good one alone has token 5."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(6, 40, (PAIRS, 2, LENGTH)).astype(np.int32)
    lengths = rng.integers(LENGTH // 2, LENGTH + 1, (PAIRS, 2)).astype(np.int32)
    second = rng.integers(0, 2, PAIRS)
    places = rng.integers(0, lengths[np.arange(PAIRS), second])
    tokens[np.arange(PAIRS), second, places] = 5
    return {
        "tokens": tokens,
        "lengths": lengths,
        "preferred": second.astype(np.float32),
        "preferred_weights": np.ones(PAIRS, np.float32),
        "supported_and_plausible": np.stack([1 - second, second], axis=1).astype(np.float32),
        "label_weights": np.ones((PAIRS, 2), np.float32),
    }


def test_a_separable_preference_is_learnt_from_chance():
    """Training never sees a pair twice, and pairs that it never saw are judged."""

    def held_out(params):
        totals = [EVALUATE(params, separable_batch(1000 + number)) for number in range(25)]
        summed = jax.tree.map(lambda *parts: np.sum(parts, axis=0), *jax.device_get(totals))
        return QUICK.summarise(summed)

    state = start(QUICK, frozen=2)
    before = held_out(state.params)
    for number in range(150):
        state, _ = UPDATE_QUICKLY(state, separable_batch(number))
    after = held_out(state.params)
    assert before["preference_accuracy"] == pytest.approx(0.5, abs=0.15)  # 200 pairs: ±4 sigma
    for name in ("preference_accuracy", "supported_and_plausible_auc"):
        assert after[name] > 0.95, name
    # Whatever the metrics say: what people prefer has the higher reward.
    batch = separable_batch(2000)
    rows = batch["tokens"].reshape(-1, LENGTH), batch["lengths"].ravel()
    verdict = jax.jit(RewardModel(Transformer(CONFIG)).judge)(state.params, *rows)
    reward = np.asarray(verdict.reward).reshape(PAIRS, 2)
    assert np.mean((reward[:, 1] > reward[:, 0]) == (batch["preferred"] == 1)) > 0.8


def test_evaluation_equals_plain_formulas():
    batch, (reward, judged) = make_batch(), scores()
    params = start(QUICK, frozen=2).params
    results = QUICK.summarise(jax.device_get(EVALUATE(params, batch)))
    weights, preferred = batch["preferred_weights"], batch["preferred"]
    towards = np.sign(preferred - 0.5)
    margin = (reward[:, 1] - reward[:, 0]) * towards
    decided = (weights > 0) & (preferred != 0.5)
    accuracy = (margin[decided] > 0).mean()
    assert results["preference_accuracy"] == pytest.approx(accuracy)
    ties = weights.sum() - decided.sum()
    half = (accuracy * decided.sum() + 0.5 * ties) / weights.sum()
    assert results["preference_accuracy_with_ties"] == pytest.approx(half)
    assert results["margin"] == pytest.approx(margin[decided].mean(), rel=1e-4)
    known = batch["label_weights"] > 0
    labels = batch["supported_and_plausible"][known] > 0
    up, down = judged[known][labels], judged[known][~labels]
    area = (up[:, None] > down).mean()  # all pairs, where the learner has a histogram
    assert results["supported_and_plausible_auc"] == pytest.approx(area, abs=0.02)


@jax.jit
def totals_of(reward, judged, batch):
    return preference_metrics.preference_totals(Verdict(reward, judged), batch)


def summary(reward, judged, batch):
    return preference_metrics.summarise(jax.device_get(totals_of(reward, judged, batch)))


def test_calibration_error_of_known_probabilities():
    """Confidences 0.5 + 0.05 k + 0.025: the lower ones always come true, the others half the time.

    Too little confidence in one bin does not make up for too much in another.
    """
    bins = np.repeat(np.arange(10), 2)
    confidence = 0.525 + 0.05 * bins
    log_odds = np.log(confidence / (1 - confidence)) * np.tile([1, -1], 10)
    pairs = len(bins)
    batch = {
        "preferred": np.where(bins < 5, log_odds > 0, True).astype(np.float32),
        "preferred_weights": np.ones(pairs, np.float32),
        "supported_and_plausible": np.zeros((pairs, 2), np.float32),
        "label_weights": np.zeros((pairs, 2), np.float32),
    }
    reward = np.stack([np.zeros(pairs), log_odds], axis=1).astype(np.float32)
    judged = np.zeros((pairs, 2), np.float32)
    results = summary(reward, judged, batch)
    expected = np.abs(confidence - np.where(bins < 5, 1, 0.5)).mean()
    assert results["preference_calibration_error"] == pytest.approx(expected, abs=1e-4)
    # The order of a pair's responses does not matter.
    turned = {**batch, "preferred": 1 - batch["preferred"]}
    again = summary(reward[:, ::-1], judged, turned)
    assert again == pytest.approx(results, nan_ok=True)


def test_extreme_scores_count_as_the_largest_and_smallest():
    """A supported response beyond all others, and an unsupported one below them."""
    judged = np.array([[1e3, 0.0], [-1e3, 0.0]], np.float32)
    batch = {
        "preferred": np.zeros(2, np.float32),
        "preferred_weights": np.zeros(2, np.float32),
        "supported_and_plausible": np.array([[1, 0], [0, 1]], np.float32),
        "label_weights": np.ones((2, 2), np.float32),
    }
    results = summary(np.zeros((2, 2), np.float32), judged, batch)
    assert results["supported_and_plausible_auc"] == pytest.approx(3.5 / 4)


def test_heads_give_rewards_of_variance_one():
    """Their kernels' variance is 1 / (width + 1) (Stiennon et al. 2020)."""
    model = RewardModel(Transformer(dataclasses.replace(CONFIG, d_model=2)))
    heads = jax.vmap(model.init_heads)(jax.random.split(jax.random.key(0), 4000))
    for name in heads:
        assert np.mean(np.square(heads[name]["kernel"])) == pytest.approx(1 / 3, rel=0.08), name


def test_area_under_roc_counts_draws_half():
    positives, negatives = np.array([0.0, 1, 2]), np.array([1.0, 1, 0])
    wins = 1 * 1 + 2 * 2 + 0.5 * 1  # of the six pairs
    assert area_under_roc(positives, negatives) == pytest.approx(wins / 6)
    assert np.isnan(area_under_roc(positives, np.zeros(3)))


@pytest.mark.parametrize(
    ("data", "fsdp", "model"),
    [(2, 2, 2), *(pytest.param(*mesh, marks=LONG) for mesh in ((1, 8, 1), (1, 1, 4)))],
)
def test_a_sharded_step_equals_that_of_one_device(data, fsdp, model):
    """In microbatches, of which each device has a pair."""
    state, batch = start(LEARNER, frozen=1), make_batch()
    alone, losses = UPDATE(state, batch)
    of = dataclasses.replace(LEARNER, microbatches=PAIRS // (data * fsdp))
    mesh = make_mesh(data, fsdp, model, devices=jax.devices()[: data * fsdp * model])
    partitioner = Partitioner(mesh)
    shardings = partitioner.shardings(LEARNER.state_axes(state.params), state)
    rows = jax.sharding.NamedSharding(mesh, partitioner.spec(("batch",)))
    with partitioner.activate():
        step = jax.jit(of.update, out_shardings=(shardings, partitioner.replicated))
        placed = jax.device_put(jax.device_get(state), shardings)
        after, same = step(placed, jax.device_put(batch, rows))
    kernel = after.params["heads"]["reward"]["kernel"]
    assert kernel.addressable_shards[0].data.size == kernel.size // fsdp
    for name in ("loss/total", "loss/preference", "loss/supported_and_plausible"):
        np.testing.assert_allclose(same[name], losses[name], rtol=1e-5)
    for name, value in by_hand(0.2, 0.7).items():
        np.testing.assert_allclose(same[name], value, rtol=2e-5, err_msg=name)
    assert same["throughput/pairs"] == batch["preferred_weights"].sum()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        after.params,
        alone.params,
    )


def test_a_weight_out_of_range_is_named():
    with pytest.raises(ValueError, match="auxiliary_weight = 1"):
        make_learner(auxiliary_weight=1.0)
    with pytest.raises(ValueError, match="centering = -1"):
        make_learner(centering=-1.0)
    with pytest.raises(ValueError, match=r"RewardLearner\.ema_decay = 1: must be a finite number"):
        make_learner(ema_decay=1)

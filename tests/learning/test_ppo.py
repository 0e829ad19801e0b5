"""PPO's update against NumPy on random experience; which tokens count; one device and eight."""

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.learning import optimizers
from gophercite.learning.advantages import Advantages
from gophercite.learning.experience import Experience, nothing, to_batch
from gophercite.learning.gradient_learner import cut_rows
from gophercite.learning.ppo import Judged, PPOLearner
from gophercite.learning.row_widths import by_length, reading_widths, take_rows
from gophercite.learning.state import Metrics, TrainState
from gophercite.learning.token_log_probs import packed, token_log_probs, unpacked
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    VALUE_HEAD,
    VALUE_TRUNK,
    Params,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import DEFAULT_RULES, Partitioner, make_mesh
from gophercite.planning.needed_flops import forward_flops, ppo_flops
from tests.drawn_parameters import drawn_heads, drawn_parameters, drawn_value_head
from tests.long_forms import LONG

VOCABULARY = 13
ROWS, LENGTH, PLACES = 16, 12, 5
CONFIG = TransformerConfig(
    vocab_size=16,
    d_model=16,
    num_layers=2,
    num_heads=2,
    head_dim=8,
    position="learned",
    max_positions=LENGTH,
    dtype="float32",
)
MODEL = Transformer(CONFIG)


def learner(**changes: Any) -> PPOLearner:
    settings: dict[str, Any] = {
        "transformer": MODEL,
        # Beyond so large an epsilon Adam's step is not the sign of what is nearly zero.
        "optimizer": optimizers.adam(eps=1e-2),
        # The first update learns. Those after it have a learning rate of 0.
        "schedule": lambda step: jnp.where(step == 0, 1e-2, 0.0),
        "reward_model": RewardModel(MODEL),
        "vocabulary_size": VOCABULARY,
        "minibatches": 3,
        "microbatches": 2,
        "epochs": 2,
        "value_width": 8,
        "kl_reward": 0.3,
        "loss_chunk": 32,
        "widths": 1,
    }
    return PPOLearner(**{**settings, **changes})


# One reads all of a row, is given experience without a constraint, and runs on two devices; the
# other cuts rows, is given experience with a constraint, and runs on one. So each is compiled once
# for all tests. Both train on the rows that may have a response, and on two rows to spare.
WHOLE, CUT = learner(trained_rows=12), learner(trained_rows=12, widths=2)
LEARN, LEARN_CUT, INIT = jax.jit(WHOLE.learn), jax.jit(CUT.learn), jax.jit(WHOLE.init_state)


def on_mesh(
    learn: Any, of: PPOLearner, state: TrainState, experience: Experience, *mesh: int
) -> tuple[TrainState, Metrics]:
    """An update on a mesh of so many devices along each axis."""
    devices = jax.devices()[: math.prod(mesh)]
    partitioner = Partitioner(make_mesh(*mesh, devices=devices), DEFAULT_RULES)
    places = partitioner.shardings(of.state_axes(state.params), state)
    state = jax.device_get(state)  # a device's arrays would be cut by programs
    by_row = jax.sharding.NamedSharding(partitioner.mesh, partitioner.spec(("batch",)))
    with partitioner.activate():
        made: tuple[TrainState, Metrics] = learn(
            jax.device_put(state, places), jax.device_put(experience, by_row)
        )
    return made


def learn_whole(state: TrainState, experience: Experience) -> tuple[TrainState, Metrics]:
    return on_mesh(LEARN, WHOLE, state, experience, 1, 2, 1)


def noisy(params: Params, seed: int, size: float) -> Params:
    leaves, tree = jax.tree.flatten(params)
    draws = np.random.default_rng(seed)
    return jax.tree.unflatten(
        tree,
        [np.float32(leaf + size * draws.normal(size=leaf.shape)) for leaf in map(np.array, leaves)],
    )


@pytest.fixture(scope="module")
def params() -> Params:
    """A policy that has left its teacher, and a critic that says something."""
    policy = drawn_parameters(MODEL, 11)
    judge = {**policy, HEADS: drawn_heads(WHOLE.reward_model, 1)}
    head = drawn_value_head(WHOLE.value_head, 2)
    params = WHOLE.with_extra_parts(policy, judge, noisy(head, 5, 0.3))
    for number, name in enumerate((TRAINED, VALUE_TRUNK, "embed")):
        params[name] = noisy(params[name], number, 0.2)
    return jax.tree.map(jnp.asarray, params)


def first(params: Params) -> TrainState:
    """Before the update that learns."""
    state: TrainState = INIT(params, jax.random.key(2))
    return state


def later(params: Params) -> TrainState:
    """Before one whose learning rate is 0: all of its minibatches are of the old policy."""
    return dataclasses.replace(first(params), step=jnp.ones((), jnp.int32))


def random_experience(seed: int, constrained: bool = True) -> Experience:
    """Episodes of several rows, some of them cut, rows to spare, and noise where nothing counts."""
    draws = np.random.default_rng(seed)
    made = nothing(ROWS, LENGTH, PLACES, 0, VOCABULARY if constrained else None)
    made.tokens[:] = draws.integers(0, VOCABULARY, made.tokens.shape)
    made.log_probs[:] = draws.normal(-2.2, 0.4, made.log_probs.shape)
    made.rewards[:] = draws.normal(size=made.rewards.shape)
    made.prompt_lengths[:] = draws.integers(1, LENGTH - PLACES + 1, ROWS)
    lengths = [3, 1, 4, 2, 2]  # rows of each episode; the last of every second one only goes on
    places = draws.permutation(ROWS)[: sum(lengths)]
    for number, step in ((n, s) for n, size in enumerate(lengths) for s in range(size)):
        row, places = places[0], places[1:]
        last = step == lengths[number] - 1
        cut = last and number % 2 == 1
        made.episode[row], made.step[row] = number, step
        made.weights[row] = 0 if cut else 1
        made.response_lengths[row] = 0 if cut else draws.integers(1, PLACES + 1)
        made.ends[row] = last and not cut
        made.extra[row] = number == 4
    if made.allowed is not None:
        mask = draws.random((ROWS, PLACES, VOCABULARY)) < 0.7
        places = made.prompt_lengths[:, None] + np.arange(PLACES)
        responses = np.take_along_axis(made.tokens, places, axis=1)
        np.put_along_axis(mask, responses[..., None], True, axis=-1)
        made.allowed[:] = np.packbits(mask, axis=-1, bitorder="little")
    return made


# --- a second formulation, row by row, without padding, chunks or masks of ours ---


@jax.jit
def hidden_of(params: Params, tokens: jax.Array) -> jax.Array:
    line = jnp.arange(LENGTH)[None]
    return MODEL.apply(params, tokens[None], line, jnp.ones_like(line))[0][0]


@jax.jit
def logits_of(params: Params, tokens: jax.Array) -> jax.Array:
    return MODEL.logits(params, hidden_of(params, tokens)[None])[0, :, :VOCABULARY]


@jax.jit
def values_before(params: Params, tokens: jax.Array) -> jax.Array:
    return WHOLE.value_head.apply(params[VALUE_HEAD], hidden_of(params[VALUE_TRUNK], tokens))


def read(params: Params, experience: Experience, row: int) -> np.ndarray:
    """Log-probabilities of the tokens at the row's places."""
    start, n = int(experience.prompt_lengths[row]), int(experience.response_lengths[row])
    every = np.asarray(logits_of(params, experience.tokens[row]), np.float64)
    logits = every[start - 1 : start - 1 + n]
    if experience.allowed is not None:
        bits = np.unpackbits(np.asarray(experience.allowed[row]), axis=-1, bitorder="little")
        logits[bits[:n, :VOCABULARY] == 0] = -1e9
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_p[np.arange(n), np.asarray(experience.tokens[row])[start : start + n]]


def values_of(params: Params, experience: Experience, row: int) -> np.ndarray:
    start, n = int(experience.prompt_lengths[row]), int(experience.response_lengths[row])
    values = np.asarray(values_before(params, experience.tokens[row]), np.float64)
    return values[start - 1 : start - 1 + max(n, 1)]


def reference(of: PPOLearner, params: Params, experience: Experience) -> dict[str, float]:
    """Everything that the paper says of one step from the old policy on, in sums over tokens."""
    rows = [i for i in range(ROWS) if experience.episode[i] >= 0]
    rows.sort(key=lambda i: (int(experience.episode[i]), int(experience.step[i])))
    advantages, returns, kl, values = {}, {}, {}, {}
    after: tuple[int, float, float] = (-2, 0.0, 0.0)
    for i in reversed(rows):
        n, episode = int(experience.response_lengths[i]), int(experience.episode[i])
        values[i] = values_of(params, experience, i)
        old = np.asarray(experience.log_probs[i, :n], np.float64)
        kl[i] = old - read(params[TEACHER], experience, i)
        reward = np.asarray(experience.rewards[i, :n], np.float64) - of.kl_reward * kl[i]
        later = 0.0
        if after[0] == episode:
            later = of.discount * (after[1] + of.trace * after[2])
        advantages[i] = reward[::-1].cumsum()[::-1] + later - values[i][:n]
        returns[i] = advantages[i] + values[i][:n]
        after = (episode, values[i][0], advantages[i][0] if n else 0.0)
    every = np.concatenate([advantages[i] for i in rows])
    policy = value = clipped = 0.0
    for i in rows:
        n = int(experience.response_lengths[i])
        a = (advantages[i] - every.mean()) / (every.std() + 1e-8)
        new = read(params, experience, i)
        ratio = np.exp(new - np.asarray(experience.log_probs[i, :n], np.float64))
        bounded = np.clip(ratio, 1 - of.clip, 1 + of.clip)
        policy -= np.minimum(a * ratio, a * bounded).sum()
        value += 0.5 * np.square(values[i][:n] - returns[i]).sum()
        clipped += (abs(ratio - 1) > of.clip).sum()
    own = [i for i in rows if not experience.extra[i] and experience.weights[i]]
    episodes = sum(float(experience.ends[i]) for i in own)
    return {
        "tokens": len(every),
        "loss/policy_avg": policy / len(every),
        "loss/value_avg": value / len(every),
        "policy/clipfrac_avg": clipped / len(every),
        "objective/kl": sum(kl[i].sum() for i in own) / episodes,
        "advantage/mean": every.mean(),
        "advantage/std": every.std(),
        "critic/vf_explained_var": 1 - every.var() / np.concatenate([*returns.values()]).var(),
    }


@pytest.mark.parametrize("constrained", [False, True])
def test_a_step_is_the_reference_s(params: Params, constrained: bool) -> None:
    """With a learning rate of 0 every minibatch of every epoch is of the old policy."""
    of, learn = (CUT, LEARN_CUT) if constrained else (WHOLE, learn_whole)
    for seed in range(4):
        experience = random_experience(seed, constrained)
        after, metrics = learn(later(params), experience)
        wanted = reference(of, params, experience)
        assert metrics["throughput/tokens"] == wanted.pop("tokens")
        for name, value in wanted.items():
            np.testing.assert_allclose(metrics[name], value, rtol=2e-3, atol=2e-4, err_msg=name)
        assert after.step == 2
        assert 0 < metrics["policy/clipfrac_avg"] < 1


def test_evaluation_counts_finished_episodes_and_their_own_tokens(params: Params) -> None:
    """Reward and divergence of an episode, without its extra answers and what is behind an end."""
    evaluate = jax.jit(WHOLE.evaluate)
    for seed in range(3):
        experience = random_experience(seed)
        own = [i for i in range(ROWS) if experience.weights[i] and not experience.extra[i]]
        length = {i: int(experience.response_lengths[i]) for i in own}
        episodes = sum(float(experience.ends[i]) for i in own)
        assert 0 < episodes < len(own)
        reward = sum(float(experience.rewards[i, : length[i]].sum()) for i in own)
        results = {
            name: float(total / count)
            for name, (total, count) in evaluate(params, to_batch(experience)).items()
        }
        wanted = {
            "reward": reward / episodes,
            "kl": reference(WHOLE, params, experience)["objective/kl"],
            "length": sum(length.values()) / len(own),
            "completions": len(own) / episodes,
        }
        assert results == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_what_is_not_sampled_is_in_no_sum(params: Params) -> None:
    """Prompts' log-probabilities, rewards behind the end, rows to spare: nothing looks at them."""
    experience = random_experience(1)
    after, metrics = LEARN_CUT(first(params), experience)
    spoilt = jax.tree.map(np.array, experience)
    draws = np.random.default_rng(9)
    for row in range(ROWS):
        n = int(experience.response_lengths[row])
        spoilt.log_probs[row, n:] = draws.normal(size=PLACES - n) * 9
        spoilt.rewards[row, n:] = draws.normal(size=PLACES - n) * 9
        end = int(experience.prompt_lengths[row]) + n
        spoilt.tokens[row, end:] = draws.integers(0, VOCABULARY, LENGTH - end)
        if experience.episode[row] < 0:
            spoilt.tokens[row] = draws.integers(0, VOCABULARY, LENGTH)
    again, of_spoilt = LEARN_CUT(first(params), jax.tree.map(jnp.asarray, spoilt))
    jax.tree.map(np.testing.assert_array_equal, again.params, after.params)
    jax.tree.map(np.testing.assert_array_equal, of_spoilt, metrics)
    for part in (TEACHER, REWARD_MODEL):
        jax.tree.map(np.testing.assert_array_equal, after.params[part], params[part])
    for part in (TRAINED, VALUE_TRUNK, VALUE_HEAD):
        moved = jax.tree.map(
            lambda a, b: np.abs(np.subtract(a, b)).max(), after.params[part], params[part]
        )
        assert max(jax.tree.leaves(moved)) > 1e-4, part


def test_rows_without_weight_count_nowhere_whatever_they_hold(params: Params) -> None:
    experience = random_experience(1)
    spare = np.asarray(experience.episode) < 0
    assert spare.any()
    filled = np.where(spare, PLACES, experience.response_lengths)
    wanted = LEARN_CUT(first(params), experience)
    found = LEARN_CUT(first(params), experience._replace(response_lengths=filled))
    compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(compare, found[1], wanted[1])
    jax.tree.map(partial(compare, atol=1e-6), found[0].params, wanted[0].params)


def test_the_policy_and_the_value_network_are_trained(params: Params) -> None:
    trained = set(WHOLE.trained(params))
    assert trained >= {TRAINED, VALUE_TRUNK, VALUE_HEAD}
    assert not trained & {TEACHER, REWARD_MODEL}
    # A part that the run adds can be frozen from its first step on.
    of = learner(frozen_parts=(VALUE_TRUNK,))
    policy = {name: params[name] for name in ("embed", TRAINED, "final_norm")}
    started = of.with_extra_parts(policy, params[REWARD_MODEL], params[VALUE_HEAD])
    jax.tree.map(np.testing.assert_array_equal, started[VALUE_TRUNK], policy)
    state = of.init_state(started, jax.random.key(0))
    assert set(state.optimizer.statistics) == set(of.trained(started)) == trained - {VALUE_TRUNK}
    with pytest.raises(ValueError, match="the model has no part 'value_trunks'"):
        learner(frozen_parts=("value_trunks",)).with_extra_parts(policy, {}, {})


@jax.jit
def estimated(params: Params, experience: Experience) -> tuple[Judged, Advantages]:
    """Rows are cut to 6 or 12 tokens, and read three at a time, so that a piece is padded."""
    of = learner(trained_rows=12, minibatches=2, widths=2)
    judged = of.judged(params, experience)
    return judged, of.advantages(experience, judged)


@jax.jit
@jax.value_and_grad
def objective(params: Params, batch: Any, tokens: float) -> jax.Array:
    """That of one minibatch, with its slopes."""
    return WHOLE.losses(params, batch, jnp.float32(tokens), None)[0]


def test_gradients_are_those_of_the_reference_by_differences(params: Params) -> None:
    """Along a random direction, with the targets as they were fixed before."""
    experience = random_experience(2)
    batch = {**to_batch(experience), **estimated(params, experience)[1]._asdict()}
    slopes = objective(params, batch, 1.0)[1]
    for part in (TRAINED, VALUE_TRUNK, VALUE_HEAD, "embed"):
        direction = noisy(jax.tree.map(np.zeros_like, params[part]), 3, 1.0)
        along = sum(
            float(np.vdot(a, b))
            for a, b in zip(jax.tree.leaves(slopes[part]), jax.tree.leaves(direction), strict=True)
        )
        ends = []
        for step in (-3e-5, 3e-5):  # between them, few ReLUs and clipped ratios change sides
            moved = jax.tree.map(lambda p, d, e=step: np.array(p) + e * d, params[part], direction)  # type: ignore[misc]
            ends.append(float(objective({**params, part: moved}, batch, 1.0)[0]))
        np.testing.assert_allclose((ends[1] - ends[0]) / 6e-5, along, rtol=0.03, atol=0.1)


def test_a_minibatch_s_gradient_is_a_mean_over_its_share_of_the_tokens(params: Params) -> None:
    """All rows that count are alike, so that each minibatch has the gradient of all of them."""
    random = random_experience(1)
    row = int(np.argmax(np.asarray(random.response_lengths)))
    alike = jax.tree.map(lambda part: np.stack([part[row]] * ROWS), random)
    experience = alike._replace(
        episode=np.arange(ROWS, dtype=np.int32),
        step=np.zeros(ROWS, np.int32),
        weights=np.float32(np.arange(ROWS) < 12),
    )
    _, metrics = LEARN_CUT(later(params), experience)
    advantages, returns = map(np.asarray, estimated(params, experience)[1])
    every = advantages[np.asarray(experience.real)]
    fixed = {"advantages": (advantages - every.mean()) / (every.std() + 1e-8), "returns": returns}
    mean = objective(params, {**to_batch(experience), **fixed}, float(len(every)))[1]
    trained = jax.tree.leaves(WHOLE.trained(mean))
    norm = np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in trained))
    np.testing.assert_allclose(metrics["optimizer/grad_norm"], norm, rtol=1e-3)


def test_a_token_that_has_become_likely_has_a_finite_gradient(params: Params) -> None:
    """A ratio beyond float32's range: with a gain it is clipped, with a loss it is bounded."""
    experience = random_experience(3)
    far = experience._replace(log_probs=np.full((ROWS, PLACES), -200, np.float32))
    for advantage in (1.0, 0.0, -1.0):
        targets = {
            "advantages": np.full((ROWS, PLACES), advantage, np.float32),
            "returns": np.zeros((ROWS, PLACES), np.float32),
        }
        value, slopes = objective(params, {**to_batch(far), **targets}, 1.0)
        assert np.isfinite(value)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


def test_no_gain_beyond_the_clip_and_every_loss_before_it(params: Params) -> None:
    """The surrogate is flat where the ratio has gone the advantage's way by more than ε."""
    experience = random_experience(3)
    new = jax.jit(WHOLE._log_probs)(params, experience, None)[0]
    for ahead, advantage, flat in (
        (0.5, 1.0, True),  # likelier already, and good
        (0.5, -1.0, False),  # likelier, and bad
        (-0.5, -1.0, True),
        (-0.5, 1.0, False),
        (0.1, 1.0, False),  # within the clip
    ):
        targets = {
            "advantages": np.full((ROWS, PLACES), advantage, np.float32),
            "returns": np.zeros((ROWS, PLACES), np.float32),
        }
        batch = {**to_batch(experience._replace(log_probs=new - ahead)), **targets}
        slopes = objective(params, batch, 1.0)[1][TRAINED]  # the policy's alone
        size = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(slopes))
        assert (size == 0) == flat, (ahead, advantage, size)


def test_rows_are_read_as_far_as_they_need_with_the_same_result(params: Params) -> None:
    """Tokens behind the cut would spoil what reads them; short rows have short microbatches.

    And a constraint that allows everything is none.
    """
    experience = random_experience(7, constrained=False)
    short = np.arange(ROWS) < 12
    lengths = np.where(short, np.minimum(experience.prompt_lengths, 2), 5)
    responses = np.minimum(experience.response_lengths, np.where(short, 1, 2))
    experience = experience._replace(prompt_lengths=lengths, response_lengths=responses)
    everything = np.full((ROWS, PLACES, 2), 255, np.uint8)
    wanted = learn_whole(first(params), experience)
    found = LEARN_CUT(first(params), experience._replace(allowed=everything))
    compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(compare, found[0].params, wanted[0].params)
    jax.tree.map(partial(compare, atol=1e-5), found[1], wanted[1])

    of = learner(widths=3)
    width = jax.jit(lambda rows: of.at_width(lambda cut: jnp.int32(cut["tokens"].shape[1]), rows))
    rows = to_batch(experience)
    pieces = cut_rows(take_rows(rows, by_length(rows, 4)), 4)
    seen = [int(width({name: part[i] for name, part in pieces.items()})) for i in range(4)]
    ends = np.sort(lengths + responses).reshape(4, 4)[:, -1]
    assert seen == [4 * -(-(end + 1) // 4) for end in ends] == [4, 4, 4, 8]


def test_who_collected_the_rows_makes_no_difference(params: Params) -> None:
    """Rows in another order, with rows to spare anywhere, make the same minibatches.

    Nor do rows without a response, which need not be in one.
    """
    experience, draws = random_experience(6, constrained=False), np.random.default_rng(6)
    wanted = learn_whole(first(params), experience)
    compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    for _ in range(3):
        order = draws.permutation(ROWS)
        found = learn_whole(first(params), take_rows(experience, order))
        jax.tree.map(compare, found[0].params, wanted[0].params)
    filled = int(np.sum(np.asarray(experience.response_lengths) > 0))
    assert filled < 12
    found = learn_whole(later(params), experience)
    tokens = reference(WHOLE, params, experience)
    for name in ("loss/policy_avg", "loss/value_avg", "policy/clipfrac_avg"):
        np.testing.assert_allclose(found[1][name], tokens[name], rtol=1e-4, err_msg=name)
    # Unless it is said how many, all rows are trained on.
    assert (learner()._trained_rows(experience), WHOLE._trained_rows(experience)) == (16, 12)
    # All 16 are judged, three at a time as in training; the needed operations are of both numbers.
    of = learner(trained_rows=12, minibatches=2, epochs=3)
    assert of._pieces(experience) == 6
    judged, trained = (
        sum(forward_flops(CONFIG, rows, LENGTH, read=read) for read in (PLACES, 0))
        for rows in (16, 12)
    )
    assert ppo_flops(of, 0, 16, 12, LENGTH, PLACES) == judged + 3 * of.epochs * trained
    # A frozen layer is read once where two networks would read it, and has no gradients.
    one = dataclasses.replace(CONFIG, num_layers=1)
    layers = [
        forward_flops(CONFIG, rows, LENGTH, read=0) - forward_flops(one, rows, LENGTH, read=0)
        for rows in (16, 12)
    ]
    saved = ppo_flops(of, 0, 16, 12, LENGTH, PLACES) - ppo_flops(of, 1, 16, 12, LENGTH, PLACES)
    assert saved == pytest.approx(layers[0] + of.epochs * (6 - 1) * layers[1])
    with pytest.raises(
        ValueError, match=r"PPOLearner.max_grad_norm = -1: must be a finite number above 0"
    ):
        learner(max_grad_norm=-1)
    with pytest.raises(ValueError, match="trained_rows = 10: must be a multiple of"):
        learner(trained_rows=10)


def test_a_prompt_without_a_response_may_end_where_the_rows_are_cut(params: Params) -> None:
    """Its value is that before the first token that would follow."""
    experience = random_experience(8)
    for length in (5, 6, 7):
        bare = experience._replace(
            prompt_lengths=np.full(ROWS, length, np.int32),
            response_lengths=np.zeros(ROWS, np.int32),
        )
        wanted = [values_of(params, bare, row)[0] for row in range(ROWS)]
        found = estimated(params, bare)[0].values
        np.testing.assert_allclose(np.asarray(found)[:, 0], wanted, rtol=1e-5, atol=1e-6)


def test_widths_are_few_and_end_with_the_whole_length() -> None:
    assert reading_widths(384, 4) == [96, 192, 288, 384]
    assert reading_widths(2176, 4) == [640, 1280, 1920, 2176]
    assert reading_widths(12, 1) == [12]
    assert reading_widths(3, 8) == [1, 2, 3]


def compare_updates(
    found: tuple[TrainState, Metrics], expected: tuple[TrainState, Metrics]
) -> None:
    cut = [x for x in jax.tree.leaves(found[0].params) if not x.sharding.is_fully_replicated]
    assert cut
    compare = partial(np.testing.assert_allclose, rtol=2e-3, atol=5e-5)
    jax.tree.map(compare, found[0].params, expected[0].params)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=2e-3, atol=2e-4, err_msg=name)


def test_an_update_on_a_mesh_is_that_on_one_device(params: Params) -> None:
    experience = random_experience(4, constrained=False)
    everything = np.full((ROWS, PLACES, 2), 255, np.uint8)
    alone = LEARN_CUT(first(params), experience._replace(allowed=everything))
    compare_updates(learn_whole(first(params), experience), alone)


# The model axis cuts the same layers, heads and chunks of logits as in actor-critic's test.
@LONG
def test_an_update_with_cut_rows_and_a_constraint_on_a_larger_mesh(params: Params) -> None:
    experience = random_experience(4)
    found = on_mesh(jax.jit(CUT.learn), CUT, first(params), experience, 2, 2, 2)
    compare_updates(found, LEARN_CUT(first(params), experience))


def test_minibatches_are_all_rows_once_an_epoch_and_epochs_have_their_own_order(
    params: Params,
) -> None:
    """A learning rate of 0 learns nothing, and sees every token once an epoch."""
    experience = random_experience(5, constrained=False)
    after, metrics = learn_whole(later(params), experience)
    wanted = reference(WHOLE, params, experience)
    for name in ("loss/policy_avg", "loss/value_avg"):
        np.testing.assert_allclose(metrics[name], wanted[name], rtol=1e-4)
    assert after.optimizer.count == WHOLE.epochs * WHOLE.minibatches
    assert after.step == 2
    jax.tree.map(np.testing.assert_array_equal, after.params, params)


def test_each_network_is_clipped_by_its_own_norm(params: Params) -> None:
    of = learner(max_grad_norm=1.0)
    gradients = {
        name: jax.tree.map(lambda x, s=scale: jnp.full_like(x, s), params[name])  # type: ignore[misc]
        for name, scale in ((TRAINED, 1e-6), (VALUE_TRUNK, 1e3))
    }
    made, norm = jax.jit(of.clipped)(gradients)
    jax.tree.map(np.testing.assert_array_equal, made[TRAINED], gradients[TRAINED])
    assert max(float(jnp.max(x)) for x in jax.tree.leaves(made[VALUE_TRUNK])) < 1
    assert norm > 1e3


def test_log_probs_in_chunks_are_those_of_all_logits(params: Params) -> None:
    experience = random_experience(6)
    hidden = jax.random.normal(jax.random.key(0), (ROWS, PLACES, 16))
    unembedding, responses = MODEL.unembedding(params), experience.responses
    logits = np.asarray(MODEL.logits(params, hidden))[..., :VOCABULARY]
    mask = np.asarray(unpacked(experience.allowed, VOCABULARY))
    exponentials = np.where(mask, np.exp(logits), 0)
    p = exponentials / exponentials.sum(-1, keepdims=True)
    chosen = np.take_along_axis(p, np.asarray(responses)[..., None], -1)[..., 0]
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1)
    in_chunks = jax.jit(token_log_probs, static_argnums=(4, 5))
    for chunk in (1, 48, 10_000):
        made = in_chunks(hidden, unembedding, responses, experience.allowed, VOCABULARY, chunk)
        np.testing.assert_allclose(made.log_prob, np.log(chosen), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(made.entropy, entropy, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1, 8, 13, 24])
def test_bits_come_back(size: int) -> None:
    mask = np.random.default_rng(size).random((3, 2, size)) < 0.5
    bits = jax.jit(packed)(mask)
    assert bits.shape == (3, 2, -(-size // 8))
    np.testing.assert_array_equal(jax.jit(unpacked, static_argnums=1)(bits, size), mask)
    little = np.unpackbits(np.asarray(bits), axis=-1, bitorder="little")[..., :size]
    np.testing.assert_array_equal(little, mask)


def test_the_defaults_are_the_paper_s() -> None:
    """Table 7."""
    defaults = {field.name: field.default for field in dataclasses.fields(PPOLearner)}
    assert (defaults["kl_reward"], defaults["clip"]) == (0.02, 0.2)
    assert (defaults["trace"], defaults["discount"]) == (0.95, 1.0)
    assert (defaults["minibatches"], defaults["epochs"], defaults["normalise"]) == (128, 1, True)
    for name, value in (("clip", -1), ("trace", 1.5), ("minibatches", 0), ("kl_reward", -0.1)):
        with pytest.raises(ValueError, match=f"PPOLearner.{name}"):
            learner(**{name: value})

"""PPO's update against NumPy on random experience; which tokens count; one device and eight."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.learning import optimizers, schedules
from gophercite.learning.experience import Experience, nothing, to_batch
from gophercite.learning.gradient_learner import cut_rows
from gophercite.learning.ppo import Judged, PPOLearner
from gophercite.learning.row_widths import by_length, reading_widths, take_rows
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

VOCABULARY = 13
CONFIG = TransformerConfig(
    vocab_size=16, d_model=16, num_layers=2, num_heads=2, head_dim=8, dtype="float32"
)
MODEL = Transformer(CONFIG)
ROWS, LENGTH, PLACES = 16, 12, 5


def learner(**changes: Any) -> PPOLearner:
    settings: dict[str, Any] = {
        "transformer": MODEL,
        # Beyond so large an epsilon Adam's step is not the sign of what is nearly zero.
        "optimizer": optimizers.adam(eps=1e-2),
        "schedule": schedules.constant(1e-2),
        "reward_model": RewardModel(MODEL),
        "vocabulary_size": VOCABULARY,
        "minibatches": 2,
        "value_width": 8,
        "kl_reward": 0.3,
        "loss_chunk": 32,
        "widths": 2,
    }
    return PPOLearner(**{**settings, **changes})


def noisy(params: Params, seed: int, size: float) -> Params:
    leaves, tree = jax.tree.flatten(params)
    draws = np.random.default_rng(seed)
    return jax.tree.unflatten(
        tree, [leaf + size * draws.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    )


def parameters(of: PPOLearner) -> Params:
    """A policy that has left its teacher, and a critic that says something."""
    policy = jax.jit(MODEL.init)(jax.random.key(0))
    judge = {**policy, HEADS: of.reward_model.init_heads(jax.random.key(1))}
    head = jax.jit(of.value_head.init)(jax.random.key(2))
    params = of.with_extra_parts(policy, judge, noisy(head, 5, 0.3))
    for number, name in enumerate((TRAINED, VALUE_TRUNK)):
        params[name] = noisy(params[name], number, 0.2)
    return params


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
        responses = np.asarray(jax.tree.map(jnp.asarray, made).responses)
        np.put_along_axis(mask, responses[..., None], True, axis=-1)
        made.allowed[:] = np.asarray(packed(mask))
    return jax.tree.map(jnp.asarray, made)


@pytest.fixture(scope="module")
def params() -> Params:
    return parameters(learner())


# --- a second formulation, row by row, without padding, chunks or masks of ours ---


@partial(jax.jit, static_argnums=2)
def hidden_of(params: Params, tokens: jax.Array, length: int) -> jax.Array:
    line = jnp.arange(length)[None]
    return MODEL.apply(params, tokens[None, :length], line, jnp.ones_like(line))[0][0]


def read(params: Params, experience: Experience, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the tokens at the row's places, [n, vocabulary], and the tokens."""
    start, n = int(experience.prompt_lengths[row]), int(experience.response_lengths[row])
    hidden = hidden_of(params, experience.tokens[row], LENGTH)[start - 1 : start - 1 + n]
    logits = np.array(MODEL.logits(params, hidden[None])[0][:, :VOCABULARY], np.float64)
    if experience.allowed is not None:
        bits = np.unpackbits(np.asarray(experience.allowed[row]), axis=-1, bitorder="little")
        logits[bits[:n, :VOCABULARY] == 0] = -1e9
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    tokens = np.asarray(experience.tokens[row, start : start + n])
    return log_p[np.arange(n), tokens], log_p


def values_of(of: PPOLearner, params: Params, experience: Experience, row: int) -> np.ndarray:
    start, n = int(experience.prompt_lengths[row]), int(experience.response_lengths[row])
    hidden = hidden_of(params[VALUE_TRUNK], experience.tokens[row], LENGTH)
    values = np.asarray(of.value_head.apply(params[VALUE_HEAD], hidden), np.float64)
    return values[start - 1 : start - 1 + max(n, 1)]


def reference(of: PPOLearner, params: Params, experience: Experience) -> dict[str, float]:
    """Everything that the paper says of one step from the old policy on, in sums over tokens."""
    rows = [i for i in range(ROWS) if experience.episode[i] >= 0]
    rows.sort(key=lambda i: (int(experience.episode[i]), int(experience.step[i])))
    advantages, returns, kl, values = {}, {}, {}, {}
    after: tuple[int, float, float] = (-2, 0.0, 0.0)
    for i in reversed(rows):
        n, episode = int(experience.response_lengths[i]), int(experience.episode[i])
        values[i] = values_of(of, params, experience, i)
        old = np.asarray(experience.log_probs[i, :n], np.float64)
        kl[i] = old - read(params[TEACHER], experience, i)[0]
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
        new = read(params, experience, i)[0]
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
    """With one minibatch all of it is of the old policy."""
    of = learner(minibatches=1, max_grad_norm=None)
    learn = jax.jit(of.learn)
    for seed in range(4):
        experience = random_experience(seed, constrained)
        after, metrics = learn(of.init_state(params, jax.random.key(0)), experience)
        wanted = reference(of, params, experience)
        assert metrics["throughput/tokens"] == wanted.pop("tokens")
        for name, value in wanted.items():
            np.testing.assert_allclose(metrics[name], value, rtol=2e-3, atol=2e-4, err_msg=name)
        assert after.step == 1
        assert 0 < metrics["policy/clipfrac_avg"] < 1


def test_evaluation_counts_finished_episodes_and_their_own_tokens(params: Params) -> None:
    """Reward and divergence of an episode, without its extra answers and what is behind an end."""
    of = learner()
    evaluate = jax.jit(of.evaluate)
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
            "kl": reference(of, params, experience)["objective/kl"],
            "length": sum(length.values()) / len(own),
            "completions": len(own) / episodes,
        }
        assert results == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_what_is_not_sampled_is_in_no_sum(params: Params) -> None:
    """Prompts' log-probabilities, rewards behind the end, rows to spare: nothing looks at them."""
    of = learner()
    learn = jax.jit(of.learn)
    experience = random_experience(1)
    after, metrics = learn(of.init_state(params, jax.random.key(0)), experience)
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
    again, of_spoilt = learn(
        of.init_state(params, jax.random.key(0)), jax.tree.map(jnp.asarray, spoilt)
    )
    jax.tree.map(np.testing.assert_array_equal, again.params, after.params)
    jax.tree.map(np.testing.assert_array_equal, of_spoilt, metrics)
    for part in (TEACHER, REWARD_MODEL):
        jax.tree.map(np.testing.assert_array_equal, after.params[part], params[part])
    for part in (TRAINED, VALUE_TRUNK, VALUE_HEAD):
        moved = jax.tree.map(
            lambda a, b: float(jnp.max(abs(a - b))), after.params[part], params[part]
        )
        assert max(jax.tree.leaves(moved)) > 1e-4, part


def test_gradients_are_those_of_the_reference_by_differences(params: Params) -> None:
    """Along a random direction, with the targets as they were fixed before."""
    of = learner(minibatches=1)
    experience = random_experience(2)
    judged: Judged = of.judged(params, experience)
    fixed = of.advantages(experience, judged)
    batch = {**to_batch(experience), **fixed._asdict()}
    losses = jax.jit(lambda params: of.losses(params, batch, jnp.float32(1), None)[0])
    for part in (TRAINED, VALUE_TRUNK, VALUE_HEAD, "embed"):
        direction = noisy(jax.tree.map(jnp.zeros_like, params[part]), 3, 1.0)
        slope = jax.grad(losses)(params)[part]
        along = sum(
            float(jnp.vdot(a, b))
            for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(direction), strict=True)
        )
        ends = []
        for step in (-1e-3, 1e-3):
            moved = jax.tree.map(lambda p, d, e=step: p + e * d, params[part], direction)  # type: ignore[misc]
            ends.append(float(losses({**params, part: moved})))
        np.testing.assert_allclose((ends[1] - ends[0]) / 2e-3, along, rtol=0.03, atol=0.05)


def test_a_minibatch_s_gradient_is_a_mean_over_its_share_of_the_tokens(params: Params) -> None:
    """All rows are alike, so that each minibatch has the gradient of all of them."""
    of = learner(minibatches=4, max_grad_norm=None, schedule=schedules.constant(0.0))
    whole = random_experience(1, constrained=False)
    row = int(np.argmax(np.asarray(whole.response_lengths)))
    experience = jax.tree.map(lambda part: jnp.stack([part[row]] * ROWS), whole)._replace(
        episode=jnp.arange(ROWS, dtype=whole.episode.dtype), step=0 * whole.step
    )
    _, metrics = jax.jit(of.learn)(of.init_state(params, jax.random.key(0)), experience)
    advantages, returns = of.advantages(experience, of.judged(params, experience))
    every = np.asarray(advantages)[np.asarray(experience.real)]
    fixed = {"advantages": (advantages - every.mean()) / (every.std() + 1e-8), "returns": returns}
    batch = {**to_batch(experience), **fixed}
    tokens = jnp.float32(len(every))
    mean = jax.jit(jax.grad(lambda params: of.losses(params, batch, tokens, None)[0]))(params)
    norm = np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(mean)))
    np.testing.assert_allclose(metrics["optimizer/grad_norm"], norm, rtol=1e-3)


def test_no_gain_beyond_the_clip_and_every_loss_before_it(params: Params) -> None:
    """The surrogate is flat where the ratio has gone the advantage's way by more than ε."""
    of = learner(minibatches=1)
    experience = random_experience(3, constrained=False)
    new = of._log_probs(params, experience)[0]
    for ahead, advantage, flat in (
        (0.5, 1.0, True),  # likelier already, and good
        (0.5, -1.0, False),  # likelier, and bad
        (-0.5, -1.0, True),
        (-0.5, 1.0, False),
        (0.1, 1.0, False),  # within the clip
    ):
        there = experience._replace(log_probs=new - ahead)
        targets = {
            "advantages": jnp.full((ROWS, PLACES), advantage),
            "returns": jnp.zeros((ROWS, PLACES)),
        }
        batch = {**to_batch(there), **targets}
        only_policy = dataclasses.replace(of, value_weight=0.0)
        slope = jax.jit(jax.grad(lambda p: only_policy.losses(p, batch, jnp.float32(1), None)[0]))  # noqa: B023
        size = max(float(jnp.max(abs(x))) for x in jax.tree.leaves(slope(params)[TRAINED]))
        assert (size == 0) == flat, (ahead, advantage, size)


def test_rows_are_read_as_far_as_they_need_with_the_same_result(params: Params) -> None:
    """Tokens behind the cut would spoil what reads them; short rows have short microbatches."""
    experience = random_experience(7, constrained=False)
    short = jnp.arange(ROWS) < 12
    lengths = jnp.where(short, jnp.minimum(experience.prompt_lengths, 2), 5)
    responses = jnp.minimum(experience.response_lengths, jnp.where(short, 1, 2))
    experience = experience._replace(prompt_lengths=lengths, response_lengths=responses)
    made = {}
    for widths in (1, 3):
        of = learner(microbatches=4, widths=widths)
        state = of.init_state(params, jax.random.key(0))
        made[widths] = jax.jit(of.learn)(state, experience)
    compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(compare, *(made[widths][0].params for widths in made))
    jax.tree.map(partial(compare, atol=1e-5), *(made[widths][1] for widths in made))

    rows, of = to_batch(experience), learner(widths=3)
    pieces = cut_rows(take_rows(rows, by_length(rows, 4)), 4)
    seen = [
        int(
            of.at_width(
                lambda rows: jnp.int32(rows["tokens"].shape[1]), jax.tree.map(piece, pieces)
            )
        )
        for piece in ((lambda part, i=i: part[i]) for i in range(4))
    ]
    ends = np.sort(np.asarray(lengths + responses)).reshape(4, 4)[:, -1]
    assert seen == [4 * -(-(end + 1) // 4) for end in ends] == [4, 4, 4, 8]


def test_a_prompt_without_a_response_may_end_where_the_rows_are_cut(params: Params) -> None:
    """Its value is that before the first token that would follow."""
    experience = random_experience(8)
    few, many = (jax.jit(learner(widths=widths).judged) for widths in (1, 3))  # 12; 4, 8, 12
    for length in (3, 4, 7):
        bare = experience._replace(
            prompt_lengths=jnp.full(ROWS, length), response_lengths=jnp.zeros(ROWS, jnp.int32)
        )
        wanted, found = (judged(params, bare).values[:, 0] for judged in (few, many))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_widths_are_few_and_end_with_the_whole_length() -> None:
    assert reading_widths(384, 4) == [96, 192, 288, 384]
    assert reading_widths(2176, 4) == [640, 1280, 1920, 2176]
    assert reading_widths(12, 1) == [12]
    assert reading_widths(3, 8) == [1, 2, 3]


def test_an_update_on_eight_devices_is_that_on_one(params: Params) -> None:
    of = learner(microbatches=2)
    experience = random_experience(4)
    state = of.init_state(params, jax.random.key(2))
    expected, metrics = jax.jit(of.learn)(state, experience)
    partitioner = Partitioner(make_mesh(2, 2, 2), DEFAULT_RULES)
    shapes = jax.eval_shape(lambda: state)
    places = partitioner.shardings(of.state_axes(shapes.params), shapes)
    by_row = jax.sharding.NamedSharding(partitioner.mesh, partitioner.spec(("batch",)))
    with partitioner.activate():
        found, of_mesh = jax.jit(of.learn)(
            jax.device_put(state, places), jax.device_put(experience, by_row)
        )
    cut = [x for x in jax.tree.leaves(found.params) if not x.sharding.is_fully_replicated]
    assert cut
    compare = partial(np.testing.assert_allclose, rtol=2e-3, atol=5e-5)
    jax.tree.map(compare, found.params, expected.params)
    for name, value in metrics.items():
        np.testing.assert_allclose(of_mesh[name], value, rtol=2e-3, atol=2e-4, err_msg=name)


def test_minibatches_are_all_rows_once_an_epoch_and_epochs_have_their_own_order(
    params: Params,
) -> None:
    """A learning rate of 0 learns nothing, and sees every token once an epoch."""
    experience = random_experience(5, constrained=False)
    seen = {}
    for epochs, minibatches in ((1, 1), (1, 4), (2, 4)):
        of = learner(schedule=schedules.constant(0.0), epochs=epochs, minibatches=minibatches)
        state = of.init_state(params, jax.random.key(0))
        after, metrics = jax.jit(of.learn)(state, experience)
        seen[epochs, minibatches] = metrics["loss/policy_avg"], metrics["loss/value_avg"]
        assert after.optimizer.count == epochs * minibatches
        assert after.step == 1
        jax.tree.map(np.testing.assert_array_equal, after.params, params)
    for value in seen.values():
        np.testing.assert_allclose(value, seen[1, 1], rtol=1e-4)


def test_each_network_is_clipped_by_its_own_norm(params: Params) -> None:
    of = learner(max_grad_norm=1.0)
    gradients = {
        name: jax.tree.map(lambda x, s=scale: jnp.full_like(x, s), params[name])  # type: ignore[misc]
        for name, scale in ((TRAINED, 1e-6), (VALUE_TRUNK, 1e3))
    }
    made, norm = of.clipped(gradients)
    jax.tree.map(np.testing.assert_array_equal, made[TRAINED], gradients[TRAINED])
    assert max(float(jnp.max(x)) for x in jax.tree.leaves(made[VALUE_TRUNK])) < 1
    assert norm > 1e3


def test_log_probs_in_chunks_are_those_of_all_logits(params: Params) -> None:
    experience = random_experience(6)
    hidden = jax.random.normal(jax.random.key(0), (ROWS, PLACES, 16))
    unembedding = MODEL.unembedding(params)
    for chunk in (1, 48, 10_000):
        made = token_log_probs(
            hidden, unembedding, experience.responses, experience.allowed, VOCABULARY, chunk
        )
        logits = np.asarray(MODEL.logits(params, hidden))[..., :VOCABULARY]
        mask = np.asarray(unpacked(experience.allowed, VOCABULARY))
        exponentials = np.where(mask, np.exp(logits), 0)
        p = exponentials / exponentials.sum(-1, keepdims=True)
        chosen = np.take_along_axis(p, np.asarray(experience.responses)[..., None], -1)[..., 0]
        np.testing.assert_allclose(made.log_prob, np.log(chosen), rtol=1e-4, atol=1e-4)
        entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1)
        np.testing.assert_allclose(made.entropy, entropy, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [1, 8, 13, 24])
def test_bits_come_back(size: int) -> None:
    mask = np.random.default_rng(size).random((3, 2, size)) < 0.5
    bits = packed(mask)
    assert bits.shape == (3, 2, -(-size // 8))
    np.testing.assert_array_equal(unpacked(bits, size), mask)
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

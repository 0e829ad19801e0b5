"""Actor-critic: gradients against those worked out by hand; what sharing must not change."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.decoded import Decoded
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.learning import optimizers, schedules
from gophercite.learning.a2c import A2CLearner, Collected, Shared
from gophercite.learning.rollouts import Rewards, Rollouts, append, distinct_samples
from gophercite.learning.state import TrainState
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    FROZEN,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    Params,
    merge_layers,
)
from gophercite.models.reward_model import RewardModel, Verdict
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from tests.drawn_parameters import drawn_heads, drawn_parameters, drawn_value_head
from tests.long_forms import LONG
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())
CONFIG = TransformerConfig(
    vocab_size=BYTES.size + 1,
    d_model=16,
    num_layers=3,
    num_heads=2,
    head_dim=8,
    position="learned",
    max_positions=64,
    dtype="float32",
)
MODEL = Transformer(CONFIG)
MAX_TOKENS = 32
PAGES = [
    [Document("a", "Cats", "the cat sat on the mat.")],
    [Document("b", "Dogs", "a dog ran."), Document("c", "Do", "do not run.")],
]
PROMPTS = [[3, 4, 5], [7, 8]]
QUESTIONS = [[3, 4], [7]]
WIDTH = 4  # of both, with little padding: `padded_rows` fills up to 64


def plan(max_tokens: int, samples: int = 4, **settings: Any) -> Plan:
    drawn = SamplingSettings(max_tokens=max_tokens, **settings)
    return Plan(MODEL, drawn, BYTES.eos_id, BYTES.pad_id, BYTES.size, samples, samples)


def learner(**changes: Any) -> A2CLearner:
    settings: dict[str, Any] = {
        "transformer": MODEL,
        "optimizer": optimizers.adam(),
        "schedule": schedules.constant(1e-2),
        "frozen_parts": ("embed",),
        "rewards": Rewards(RewardModel(MODEL)),
        "plan": plan(MAX_TOKENS),
        "value_width": 8,
    }
    return A2CLearner(**{**settings, **changes})


def parameters(of: A2CLearner, frozen: int = 1) -> Params:
    judge = of.rewards.model
    draws = np.random.default_rng(5)
    trunk = jax.tree.map(  # so large that rewards differ
        lambda leaf: draws.normal(size=leaf.shape).astype(leaf.dtype), judge.transformer.abstract()
    )
    trunk["embed"]["positions"] *= 0.1  # what is said counts, more than where
    reward_model = {**trunk, HEADS: drawn_heads(judge, 4)}
    policy = drawn_parameters(of.transformer, frozen_layers=frozen)
    value_head = drawn_value_head(of.value_head, 1)
    return of.with_extra_parts(policy, reward_model, value_head)


CONSTRAINT = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=5, maximum_claim=2))


def batch(constrained: bool = True) -> dict[str, Any]:
    prompts, lengths = padded_rows(PROMPTS, BYTES.pad_id, "prompt")
    questions, asked = padded_rows(QUESTIONS, BYTES.pad_id, "question")
    shown: dict[str, Any] = {
        "prompts": prompts[:, :WIDTH],
        "prompt_lengths": lengths,
        "questions": questions[:, :WIDTH],
        "question_lengths": asked,
        "weights": jnp.ones(len(PROMPTS)),
    }
    if constrained:
        graphs = [CONSTRAINT.graph(pages) for pages in PAGES]
        shown["quotes"] = CONSTRAINT.tables(graphs, MAX_TOKENS)
    return shown


def losses(of: A2CLearner, params: Params, rollouts: Rollouts, quotes: Any = None) -> Any:
    """The objective, a sum and no mean, and its metrics."""
    return of.losses(params, rollouts._asdict(), Shared(jnp.ones(()), quotes), None)


# What most tests share is compiled once; the prompts are sampled in two pieces.
OF = learner(rollout_pieces=2)
COLLECT, LOSSES = jax.jit(OF.collect), jax.jit(partial(losses, OF))


class Made(NamedTuple):
    """What was collected for a batch, and what the sampler says of all its prompts at once."""

    params: Params
    rollouts: Rollouts
    quotes: QuoteTables
    sampled: Decoded


@pytest.fixture(scope="module")
def params() -> Params:
    return parameters(OF)


@pytest.fixture(scope="module")
def made(params: Params) -> Made:
    shown, key = batch(), jax.random.key(5)
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(2))
    prompts, lengths, quotes = (shown[n] for n in ("prompts", "prompt_lengths", "quotes"))
    policy = OF.policy_parts(params)
    sampled = decode(OF.plan, policy, prompts, lengths, keys, quotes, None)
    return Made(params, COLLECT(params, shown, key).rollouts, quotes, sampled)


def test_a_teacher_reads_with_its_own_embedding_if_the_policy_s_is_trained(made: Made) -> None:
    """The frozen layers' activations are then others than those that sampling has kept."""
    of = learner(frozen_parts=())
    params = parameters(of)
    draws = np.random.default_rng(8)
    table = params["embed"]["embedding"]
    moved = table + 0.3 * jnp.asarray(draws.normal(size=table.shape), table.dtype)
    params = {**params, "embed": {**params["embed"], "embedding": moved}}
    tokens = made.rollouts.tokens
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    kept = MODEL.frozen_activations(params, tokens, positions, jnp.ones_like(tokens))
    found = jax.jit(partial(losses, of))(params, made.rollouts._replace(frozen_activations=kept))
    whole = {**merge_layers(params), TEACHER: merge_layers({**params, **params[TEACHER]})}
    whole[TEACHER] = {name: whole[TEACHER][name] for name in OF.policy_parts(merge_layers(params))}
    bare = made.rollouts._replace(frozen_activations=None)
    wanted = jax.jit(partial(losses, of))(whole, bare)
    assert wanted[1]["kl"] > 1
    for name in ("kl", "log_prob", "value_loss"):
        np.testing.assert_allclose(found[1][name], wanted[1][name], rtol=1e-4, err_msg=name)


def test_the_trainer_agrees_with_the_sampler_on_what_was_drawn(made: Made) -> None:
    """Within float32's tolerance, so that no old log-probabilities need be carried along."""
    _, sums = LOSSES(made.params, made.rollouts, made.quotes)
    drawn = np.sum(made.sampled.constrained_log_probs)
    np.testing.assert_allclose(sums["log_prob"], drawn, rtol=1e-5)
    assert sums["places"] == np.sum(made.sampled.lengths)
    # The teacher is the policy, as yet.
    np.testing.assert_allclose(sums["kl"], 0, atol=1e-4)


def test_prompts_sampled_in_pieces_have_the_same_samples(made: Made) -> None:
    found = made.rollouts
    np.testing.assert_array_equal(found.responses, made.sampled.tokens.reshape(8, -1))
    np.testing.assert_array_equal(found.response_lengths, made.sampled.lengths.reshape(8))
    np.testing.assert_array_equal(found.faults, 0)
    np.testing.assert_array_equal(found.weights, 1)


def test_samples_are_rewarded_as_if_each_were_alone(made: Made) -> None:
    """Behind its prompt's question, without the padding between."""
    rows = np.zeros((8, 2 + MAX_TOKENS), np.int32)
    sizes = np.zeros(8, np.int32)
    for row, response in enumerate(np.asarray(made.rollouts.responses)):
        length = made.rollouts.response_lengths[row]
        whole = [*QUESTIONS[row // 4], *response[:length]]
        rows[row, : len(whole)], sizes[row] = whole, len(whole)
    judged = jax.jit(OF.reward_model.judge)(made.params[REWARD_MODEL], rows, sizes)
    assert np.std(judged.reward) > 0.1
    np.testing.assert_allclose(made.rollouts.rewards, judged.reward, rtol=1e-5, atol=1e-5)


def test_sharing_what_the_frozen_layers_make_changes_nothing(made: Made) -> None:
    params, rollouts, quotes, _ = made
    whole = jax.jit(OF.transformer.frozen_activations)(
        params,
        rollouts.tokens,
        jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape),
        jnp.ones_like(rollouts.tokens),
    )
    ends = rollouts.prompt_lengths + rollouts.response_lengths - 1
    real = np.arange(rollouts.tokens.shape[1]) < np.asarray(ends)[:, None]
    assert rollouts.frozen_activations is not None
    np.testing.assert_allclose(
        np.where(real[..., None], rollouts.frozen_activations, 0),
        np.where(real[..., None], whole, 0),
        atol=1e-4,
    )
    again = LOSSES(params, rollouts._replace(frozen_activations=whole), quotes)
    once = LOSSES(params, rollouts, quotes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), again, once)


def test_no_gradient_where_nothing_was_chosen(made: Made) -> None:
    """Forced tokens, prompts and padding: only what could have been otherwise is learnt from."""
    params, rollouts, quotes, _ = made
    of = dataclasses.replace(OF, kl_weight=0.0, value_weight=0.0)

    def objective(hidden_noise: jax.Array) -> jax.Array:
        noisy = rollouts._replace(frozen_activations=rollouts.frozen_activations + hidden_noise)
        return losses(of, params, noisy, quotes)[0]

    slope = np.asarray(jax.jit(jax.grad(objective))(np.zeros_like(rollouts.frozen_activations)))
    ends = rollouts.prompt_lengths + rollouts.response_lengths - 1
    after = np.arange(slope.shape[1]) >= np.asarray(ends)[:, None]
    assert np.any(slope[~after])
    np.testing.assert_array_equal(slope[after], 0)
    # A document of which there is one thing to quote, and claims of one or two characters.
    only = CONSTRAINT.tables([CONSTRAINT.graph([Document("x", "X", "a b c")])] * 2, MAX_TOKENS)
    forced = COLLECT(params, {**batch(), "quotes": only}, jax.random.key(0)).rollouts
    _, sums = LOSSES(params, forced, only)
    assert sums["forced"] > 0.8 * sums["places"]


# Prompts and answers of one token.
BANDIT = learner(plan=plan(1), kl_weight=0.0, value_weight=0.0)


def log_policy(params: Params) -> jax.Array:
    """Of every answer to the prompt [7]."""
    one = jnp.ones((1, 1), jnp.int32)
    hidden, _ = MODEL.apply(params, 7 * one, 0 * one, one)
    return jax.nn.log_softmax(MODEL.logits(params, hidden)[0, 0, : BYTES.size])


def every_answer(params: Params, rewards: jax.Array) -> Rollouts:
    """Each of a bandit's answers once, weighted by how often it is drawn."""
    answers = jnp.arange(BYTES.size)[:, None]
    prompt, one = jnp.full_like(answers, 7), jnp.ones_like(answers[:, 0])
    tokens = append(prompt, one, answers)
    places = jnp.broadcast_to(jnp.arange(2), tokens.shape)
    return Rollouts(
        tokens=tokens,
        prompt_lengths=one,
        responses=answers,
        response_lengths=one,
        frozen_activations=MODEL.frozen_activations(params, tokens, places, jnp.ones_like(tokens)),
        quote=None,
        verdicts=Verdict(rewards, rewards),
        rewards=rewards,
        faults=0 * one,
        weights=jnp.exp(log_policy(params)),
    )


def test_a_bandits_gradient_is_the_analytic_one(params: Params) -> None:
    """Σ π(a) · (r(a) − v) · ∇ log π(a) = ∇ Σ π(a) · r(a); for a constant reward that is zero."""
    part = {TRAINED: params[TRAINED]}
    rewards = jnp.sin(jnp.arange(BYTES.size, dtype=jnp.float32))
    slope = jax.jit(
        jax.grad(
            lambda part, rewards: losses(BANDIT, {**params, **part}, every_answer(params, rewards))[
                0
            ]
        )
    )
    worth = lambda part: -jnp.sum(jnp.exp(log_policy({**params, **part})) * rewards)  # noqa: E731
    expected = jax.jit(jax.grad(worth))(part)
    compare = partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-6)
    jax.tree.map(compare, slope(part, rewards), expected)
    for of_nothing in jax.tree.leaves(slope(part, jnp.full_like(rewards, 3.0))):
        np.testing.assert_allclose(of_nothing, 0, atol=2e-5)


# All weight on the divergence. What is collected does not depend on it.
STAYING = dataclasses.replace(OF, kl_weight=1.0)
LEARN_TO_STAY = jax.jit(STAYING.learn)


def away(params: Params) -> TrainState:
    """That of a policy which has left its teacher."""
    draws = np.random.default_rng(7)
    moved = jax.tree.map(
        lambda x: jnp.float32(x + 0.05 * draws.normal(size=x.shape)),
        jax.device_get(params[TRAINED]),
    )
    return STAYING.init_state({**params, TRAINED: moved}, jax.random.key(2))


def test_with_all_weight_on_the_divergence_the_policy_stays_with_its_teacher(made: Made) -> None:
    params, rollouts, quotes, _ = made
    state = STAYING.init_state(params, jax.random.key(2))
    metrics = LEARN_TO_STAY(state, Collected(rollouts, quotes))[1]
    np.testing.assert_allclose(metrics["optimizer/grad_norm"], 0, atol=1e-4)
    # A policy that has left it goes back.
    state, shown = away(params), batch()
    seen = []
    for step in range(15):
        collected = COLLECT(state.params, shown, jax.random.key(step))
        state, metrics = LEARN_TO_STAY(state, collected)
        seen.append(metrics["policy/kl_avg"])
    assert seen[-1] < 0.5 * seen[0]
    jax.tree.map(np.testing.assert_array_equal, state.params[TEACHER], params[TEACHER])


class Compiled(A2CLearner):
    """Its update is made of parts that are compiled already."""

    collect = staticmethod(COLLECT)
    learn = staticmethod(LEARN_TO_STAY)


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=LONG)])
def test_collecting_and_then_learning_is_the_update(params: Params, fused: bool) -> None:
    """The seam where an environment could act; here nothing comes between."""
    state, shown = away(params), batch()
    update = jax.jit(STAYING.update) if fused else Compiled(**vars(STAYING)).update
    together, metrics = update(state, shown)
    key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.step)
    apart, again = LEARN_TO_STAY(state, COLLECT(state.params, shown, key))
    for one, other in ((together.params, apart.params), (metrics, again)):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), one, other)
    assert metrics["optimizer/grad_norm"] > 0
    assert metrics["policy/forced"] > 0  # it was known what the constraint allowed


def test_what_is_rewarded_is_learnt_and_what_to_expect(params: Params) -> None:
    """Answers of one token, which a reward model of random weights likes more or less."""
    of = dataclasses.replace(
        BANDIT,
        plan=plan(1, samples=64),
        microbatches=2,
        max_grad_norm=1.0,
        value_weight=0.5,
        schedule=schedules.constant(2e-2),
    )
    state = of.init_state(params, jax.random.key(2))
    collect, learn = jax.jit(of.collect), jax.jit(of.learn)
    seen = []
    shown = batch(constrained=False)
    for step in range(20):
        state, metrics = learn(state, collect(state.params, shown, jax.random.key(step)))
        seen.append({name: float(value) for name, value in metrics.items()})
    first, last = seen[0], seen[-1]
    assert last["objective/rlhf_reward"] > first["objective/rlhf_reward"] + 0.5
    assert last["objective/kl"] > 0.1 > abs(first["objective/kl"])
    assert last["policy/entropy_avg"] < first["policy/entropy_avg"]
    # What the critic expects lags behind what is learnt, and then lies around it.
    surprise, reward = (
        sum(each[name] for each in seen[10:]) / 10
        for name in ("advantage/mean", "objective/rlhf_reward")
    )
    assert abs(surprise) < 0.25 * reward
    assert abs(first["critic/vf_explained_var"]) < 0.05
    assert first["reward/min"] <= first["objective/rlhf_reward"] <= first["reward/max"]
    assert first["samples/length"] == 1
    assert first["samples/distinct"] > last["samples/distinct"] >= 1
    for part in ("embed", FROZEN, TEACHER, REWARD_MODEL):
        jax.tree.map(np.testing.assert_array_equal, state.params[part], params[part])


def test_distinct_samples() -> None:
    rows = jnp.array([[1, 2], [1, 2], [3, 2], [4, 4], [5, 5], [6, 6]])
    assert distinct_samples(rows, 3) == 2.5


def test_the_defaults_are_the_paper_s() -> None:
    """F.1: α = 0.1 and a penalty of 2 were selected; a critic of two layers of 2048."""
    defaults = {field.name: field.default for field in dataclasses.fields(A2CLearner)}
    assert (defaults["kl_weight"], defaults["value_weight"]) == (0.1, 0.5)
    assert (defaults["average_over"], defaults["value_width"]) == ("response_tokens", 2048)
    assert Rewards(RewardModel(MODEL)).syntax_penalty == 2
    for weight in (0.0, 1.0):  # all of the one loss, and all of the other
        assert learner(kl_weight=weight, value_weight=0.0).kl_weight == weight


def test_what_is_no_policy_gradient_is_refused() -> None:
    for changed in ({"temperature": 0.5}, {"top_p": 0.9}, {"top_k": 5}):
        with pytest.raises(ValueError, match="temperature = 1"):
            learner(plan=plan(4, **changed))
    with pytest.raises(
        ValueError, match=r"A2CLearner.max_grad_norm = 0: must be a finite number above 0"
    ):
        learner(max_grad_norm=0)
    with pytest.raises(ValueError, match=r"A2CLearner.rollout_pieces = 0: must be a whole number"):
        learner(rollout_pieces=0)
    two_each = learner(plan=dataclasses.replace(plan(MAX_TOKENS), samples=2), microbatches=4)
    two_each.check_batch(2)  # prompts
    with pytest.raises(ValueError, match=r"microbatches = 4: must divide the 6 rows of a batch"):
        two_each.check_batch(3)
    with pytest.raises(ValueError, match=r"rollout_pieces = 2: must divide the 3 prompts of a b"):
        learner(rollout_pieces=2).check_batch(3)
    with pytest.raises(ValueError, match=r"kl_weight = 1\.5"):
        learner(kl_weight=1.5)
    with pytest.raises(ValueError, match=r"value_weight = -1: must be a finite number at least 0"):
        learner(value_weight=-1)
    with pytest.raises(ValueError, match='"tokens": must be "response_tokens" or "max_tokens"'):
        learner(average_over="tokens")

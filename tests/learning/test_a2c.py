"""Actor-critic: gradients against those worked out by hand; what sharing must not change."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.learning import optimizers, schedules
from gophercite.learning.a2c import A2CLearner, Shared
from gophercite.learning.rollouts import Rewards, Rollouts, append, distinct_samples, roll_out
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    FROZEN,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    Params,
)
from gophercite.models.reward_model import RewardModel, Verdict
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())
CONFIG = TransformerConfig(
    vocab_size=BYTES.size + 1, d_model=16, num_layers=3, num_heads=2, head_dim=8, dtype="float32"
)
MODEL = Transformer(CONFIG)
MAX_TOKENS = 32
PAGES = [
    [Document("a", "Cats", "the cat sat on the mat.")],
    [Document("b", "Dogs", "a dog ran."), Document("c", "Do", "do not run.")],
]
PROMPTS = [[3, 4, 5], [7, 8]]
QUESTIONS = [[3, 4], [7]]


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
    key = jax.random.key(3)
    trunk = jax.jit(judge.transformer.init)(key)
    trunk[TRAINED] = jax.tree.map(lambda leaf: 6 * leaf, trunk[TRAINED])  # so that rewards differ
    reward_model = {**trunk, HEADS: judge.init_heads(key)}
    policy = jax.jit(of.transformer.init, static_argnums=1)(jax.random.key(0), frozen)
    value_head = jax.jit(of.value_head.init)(jax.random.key(1))
    return of.with_extra_parts(policy, reward_model, value_head)


def batch(constrained: bool = True) -> dict[str, Any]:
    prompts, lengths = padded_rows(PROMPTS, BYTES.pad_id, "prompt")
    questions, asked = padded_rows(QUESTIONS, BYTES.pad_id, "question")
    shown: dict[str, Any] = {
        "prompts": prompts,
        "prompt_lengths": lengths,
        "questions": questions,
        "question_lengths": asked,
        "weights": jnp.ones(len(PROMPTS)),
    }
    if constrained:
        constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=5, maximum_claim=5))
        graphs = [constraint.graph(pages) for pages in PAGES]
        shown["quotes"] = constraint.tables(graphs, MAX_TOKENS)
    return shown


def rolled_out(of: A2CLearner, params: Params, constrained: bool = True) -> Rollouts:
    make = jax.jit(lambda params, batch, key: roll_out(of.plan, of.rewards, params, batch, key))
    return make(params, batch(constrained), jax.random.key(5))


@pytest.fixture(scope="module")
def made() -> tuple[A2CLearner, Params, Rollouts]:
    of = learner()
    params = parameters(of)
    return of, params, rolled_out(of, params)


def losses(of: A2CLearner, params: Params, rollouts: Rollouts, quotes: Any = None) -> Any:
    """The objective, a sum and no mean, and its metrics."""
    return of.losses(params, rollouts._asdict(), Shared(jnp.ones(()), quotes), None)


def jitted(of: A2CLearner) -> Any:
    return jax.jit(partial(losses, of))


def test_the_trainer_agrees_with_the_sampler_on_what_was_drawn(made: Any) -> None:
    """Within float32's tolerance, so that no old log-probabilities need be carried along."""
    of, params, rollouts = made
    shown = batch()
    key = jax.random.key(5)
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(2))
    policy = of.policy_parts(params)
    sampled = decode(
        of.plan, policy, shown["prompts"], shown["prompt_lengths"], keys, shown["quotes"], None
    )
    _, sums = jitted(of)(params, rollouts, shown["quotes"])
    np.testing.assert_array_equal(rollouts.responses, sampled.tokens.reshape(8, -1))
    np.testing.assert_allclose(sums["log_prob"], jnp.sum(sampled.constrained_log_probs), rtol=1e-5)
    assert sums["places"] == jnp.sum(sampled.lengths)
    # The teacher is the policy, as yet.
    np.testing.assert_allclose(sums["kl"], 0, atol=1e-4)


def test_prompts_sampled_in_pieces_have_the_same_samples(made: Any) -> None:
    of, params, rollouts = made
    make = partial(roll_out, of.plan, of.rewards, pieces=2)
    pieces = jax.jit(make)(params, batch(), jax.random.key(5))
    for name in ("responses", "response_lengths", "faults", "weights"):
        np.testing.assert_array_equal(getattr(pieces, name), getattr(rollouts, name), name)
    for name in ("frozen_activations", "rewards"):
        np.testing.assert_allclose(
            getattr(pieces, name), getattr(rollouts, name), rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_sharing_what_the_frozen_layers_make_changes_nothing(made: Any) -> None:
    of, params, rollouts = made
    whole = jax.jit(of.transformer.frozen_activations)(
        params,
        rollouts.tokens,
        jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape),
        jnp.ones_like(rollouts.tokens),
    )
    ends = rollouts.prompt_lengths + rollouts.response_lengths - 1
    real = jnp.arange(rollouts.tokens.shape[1]) < ends[:, None]
    assert rollouts.frozen_activations is not None
    np.testing.assert_allclose(
        np.where(real[..., None], rollouts.frozen_activations, 0),
        np.where(real[..., None], whole, 0),
        atol=1e-4,
    )
    again = jitted(of)(params, rollouts._replace(frozen_activations=whole), batch()["quotes"])
    once = jitted(of)(params, rollouts, batch()["quotes"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), again, once)


def test_no_gradient_where_nothing_was_chosen(made: Any) -> None:
    """Forced tokens, prompts and padding: only what could have been otherwise is learnt from."""
    of, params, rollouts = made
    of = dataclasses.replace(of, kl_weight=0.0, value_weight=0.0)
    quotes = batch()["quotes"]

    def objective(hidden_noise: jax.Array) -> jax.Array:
        noisy = rollouts._replace(frozen_activations=rollouts.frozen_activations + hidden_noise)
        return losses(of, params, noisy, quotes)[0]

    slope = jax.jit(jax.grad(objective))(jnp.zeros_like(rollouts.frozen_activations))
    ends = rollouts.prompt_lengths + rollouts.response_lengths - 1
    after = jnp.arange(slope.shape[1]) >= ends[:, None]
    assert np.any(slope[~after])
    np.testing.assert_array_equal(slope[after], 0)
    # A document of which there is one thing to quote, and claims of one character.
    only = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=5, maximum_claim=1, minimum_claim=1))
    tables = only.tables([only.graph([Document("x", "X", "a b c")])], MAX_TOKENS)
    shown = {k: v[:1] for k, v in batch(constrained=False).items()} | {"quotes": tables}
    key = jax.random.key(0)
    forced = jax.jit(partial(roll_out, of.plan, of.rewards))(params, shown, key)
    _, sums = jitted(of)(params, forced, tables)
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


def test_a_bandits_gradient_is_the_analytic_one() -> None:
    """Σ π(a) · (r(a) − v) · ∇ log π(a) = ∇ Σ π(a) · r(a); for a constant reward that is zero."""
    params = parameters(BANDIT)
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


def test_with_all_weight_on_the_divergence_the_policy_stays_with_its_teacher() -> None:
    of = learner(kl_weight=1.0)
    params = parameters(of)
    state = of.init_state(params, jax.random.key(2))
    update = jax.jit(of.update)
    metrics = update(state, batch())[1]
    np.testing.assert_allclose(metrics["optimizer/grad_norm"], 0, atol=1e-4)
    # A policy that has left it goes back.
    away = jax.tree.map(
        lambda x: x + 0.05 * jax.random.normal(jax.random.key(7), x.shape), params[TRAINED]
    )
    state = of.init_state({**params, TRAINED: away}, jax.random.key(2))
    first = None
    for _ in range(15):
        state, metrics = update(state, batch())
        first = first or metrics["policy/kl_avg"]
    assert metrics["policy/kl_avg"] < 0.5 * first
    jax.tree.map(np.testing.assert_array_equal, state.params[TEACHER], params[TEACHER])


def test_what_is_rewarded_is_learnt_and_what_to_expect() -> None:
    """Answers of one token, which a reward model of random weights likes more or less."""
    of = dataclasses.replace(
        BANDIT,
        plan=plan(1, samples=64),
        microbatches=2,
        max_grad_norm=1.0,
        value_weight=0.5,
        schedule=schedules.constant(2e-2),
    )
    params = parameters(of)
    state = of.init_state(params, jax.random.key(2))
    update = jax.jit(of.update)
    seen = []
    shown = batch(constrained=False)
    for _ in range(20):
        state, metrics = update(state, shown)
        seen.append({name: float(value) for name, value in metrics.items()})
    first, last = seen[0], seen[-1]
    assert last["objective/rlhf_reward"] > first["objective/rlhf_reward"] + 0.5
    assert last["objective/kl"] > 0.1 > abs(first["objective/kl"])
    assert last["policy/entropy_avg"] < first["policy/entropy_avg"]
    # A mean of steps: one step's share varies by as much, from machine to machine.
    explained = [each["critic/vf_explained_var"] for each in seen]
    assert sum(explained[10:]) / 10 > 0.05 > abs(explained[0])
    assert first["reward/min"] <= first["objective/rlhf_reward"] <= first["reward/max"]
    assert first["samples/length"] == 1
    assert first["samples/distinct"] > last["samples/distinct"] >= 1
    for part in ("embed", FROZEN, TEACHER, REWARD_MODEL):
        jax.tree.map(np.testing.assert_array_equal, state.params[part], params[part])


def test_collecting_and_then_learning_is_the_update() -> None:
    """The seam where an environment could act; here nothing comes between, and both are fused."""
    of = dataclasses.replace(BANDIT, plan=plan(2, samples=4))
    state = of.init_state(parameters(of), jax.random.key(2))
    together, metrics = jax.jit(of.update)(state, batch(constrained=False))
    key = jax.random.fold_in(jax.random.fold_in(state.key, 1), state.step)
    collected = jax.jit(of.collect)(state.params, batch(constrained=False), key)
    apart, again = jax.jit(of.learn)(state, collected)
    for one, other in ((together.params, apart.params), (metrics, again)):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), one, other)
    assert metrics["optimizer/grad_norm"] > 0


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
    with pytest.raises(ValueError, match=r"kl_weight = 1\.5"):
        learner(kl_weight=1.5)
    with pytest.raises(ValueError, match=r"value_weight = -1: must be at least 0"):
        learner(value_weight=-1)
    with pytest.raises(ValueError, match='"tokens": must be "response_tokens" or "max_tokens"'):
        learner(average_over="tokens")

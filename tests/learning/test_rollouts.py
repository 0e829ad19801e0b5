"""Free samples under fault tables: what each fault costs, in the reward and in what is learnt.

The policy says chosen texts: its layers add nothing, so that each position's embedding alone
decides the next token. Sampler, fault tracker, judge and learner are the real ones.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite import evidence
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.decoding.response_automaton import FAULTS
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evidence import Fault
from gophercite.learning import schedules
from gophercite.learning.a2c import A2CLearner
from gophercite.learning.adam import AdamRule
from gophercite.learning.rollouts import Rewards
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import REWARD_MODEL, TEACHER, TRAINED, VALUE_HEAD, Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_heads, drawn_parameters, drawn_value_head
from tests.learning.test_a2c_objective import CONFIG as JUDGE_CONFIG
from tests.learning.test_a2c_objective import Handed
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())
PLACES = 32
WIDTH = 2 * PLACES + 1
CONFIG = TransformerConfig(
    vocab_size=BYTES.size,
    d_model=WIDTH,
    num_layers=1,
    num_heads=1,
    head_dim=2,
    d_ff=2,
    position="learned",
    max_positions=2 * WIDTH,
    tied_embeddings=False,
    dtype="float32",
)
PAGES = [Document("a", "Cats", "the cat sat on the mat.")]
# Of two prompts, the first's sample begins at position 0, the second's at PLACES.
PROMPTS = [[7], [7] * (PLACES + 1)]
QUESTIONS = [[40, 50, 60], [70]]
PENALTY = 3.0
CLEAN = " %<x>%(Cats)%[the cat]%"
TEXTS = {
    Fault.MALFORMED: " %<x>%(Cats)",
    Fault.RESERVED_SYNTAX: " %<x>%(Cats)%[the %< cat]%",
    Fault.WRONG_TITLE: " %<x>%(Dogs)%[the cat]%",
    Fault.WRONG_QUOTE: " %<x>%(Cats)%[the dog]%",
    Fault.EMPTY_CLAIM: " %<>%(Cats)%[the cat]%",
    Fault.EMPTY_QUOTE: " %<x>%(Cats)%[]%",
    Fault.SHORT_QUOTE: " %<x>%(Cats)%[cat]%",
}
SEVERAL = " %<>%(Dogs)%[cat]%"  # three faults, or four
CUT_SHORT = " %<x>%(Cats)%[the cat sat on the mat"  # no room for its end


def learner() -> A2CLearner:
    transformer = Transformer(CONFIG)
    settings = SamplingSettings(max_tokens=PLACES)
    return A2CLearner(
        transformer=transformer,
        optimizer=Handed(AdamRule(0.9, 0.999, 1e-8)),
        schedule=schedules.constant(1.0),
        rewards=Rewards(RewardModel(Transformer(JUDGE_CONFIG)), syntax_penalty=PENALTY),
        plan=Plan(transformer, settings, BYTES.eos_id, BYTES.pad_id, BYTES.size, 1, 1),
        kl_weight=0.2,
        value_weight=0.5,
        value_width=4,
    )


def tokens_of(text: str) -> list[int]:
    return [*(1 + byte for byte in text.encode()), BYTES.eos_id][:PLACES]


@functools.cache
def initial() -> Params:
    of = learner()
    judge = of.rewards.model
    policy = drawn_parameters(of.transformer)
    policy[TRAINED] = jax.tree.map(jnp.zeros_like, policy[TRAINED])
    policy["embed"] = {
        "embedding": jnp.zeros((BYTES.size, WIDTH)),
        "positions": jnp.asarray(9 * np.tile(np.eye(WIDTH, dtype=np.float32), (2, 1))),
    }
    policy["unembed"] = {"kernel": jnp.zeros((WIDTH, BYTES.size))}
    reward_model = drawn_parameters(judge.transformer, 1)
    reward_model[TRAINED] = jax.tree.map(lambda leaf: 6 * leaf, reward_model[TRAINED])
    reward_model["heads"] = drawn_heads(judge, 2)
    value_head = drawn_value_head(of.value_head, 3)
    return of.with_extra_parts(policy, reward_model, value_head)


def saying(first: str, second: str, sureness: float = 9.0) -> Params:
    """A policy that answers the two prompts so; its teacher knows nothing."""
    kernel = np.zeros((WIDTH, BYTES.size), np.float32)
    for prompt, text in enumerate((first, second)):
        for place, token in enumerate(tokens_of(text)):
            kernel[prompt * PLACES + place, token] = sureness
    return {**initial(), "unembed": {"kernel": jnp.asarray(kernel)}}


def batch(*weights: float) -> dict[str, Any]:
    def padded(rows: list[list[int]]) -> tuple[jax.Array, jax.Array]:
        longest = max(map(len, rows))
        filled = [row + [0] * (longest - len(row)) for row in rows]
        return jnp.array(filled), jnp.array([len(row) for row in rows])

    tracker = FaultTracker(BYTES)
    prompts, lengths = padded(PROMPTS)
    questions, asked = padded(QUESTIONS)
    return {
        "prompts": prompts,
        "prompt_lengths": lengths,
        "questions": questions,
        "question_lengths": asked,
        "weights": jnp.array(weights),
        "fault_tables": tracker.tables([tracker.graph(PAGES)] * 2),
    }


@functools.cache
def evaluate() -> Any:
    return jax.jit(learner().evaluate)


@functools.cache
def judge() -> Any:
    return jax.jit(learner().rewards.model.judge)


def verdict(question: int, text: str) -> tuple[float, float]:
    """On a question with a whole response, its end put behind it where it has none."""
    row = QUESTIONS[question] + tokens_of(text)
    row += [BYTES.eos_id] * (row[-1] != BYTES.eos_id)
    room = np.full((1, 48), 9)
    room[0, : len(row)] = row
    reward, both = judge()(initial()[REWARD_MODEL], room, np.array([len(row)]))
    return float(reward[0]), 1 / (1 + np.exp(-float(both[0])))


@pytest.mark.parametrize("text", [*TEXTS.values(), SEVERAL, CUT_SHORT, CLEAN])
def test_the_penalty_is_subtracted_once_whatever_the_faults(text: str) -> None:
    """Alone in its batch, and beside a sample without a fault."""
    read = text.encode()[:PLACES].decode()
    found = evidence.faults(read, PAGES)
    assert bool(found) == (text != CLEAN)
    for fault, with_it in TEXTS.items():
        assert text != with_it or fault in found
    (reward, both), (other, other_both) = verdict(0, text), verdict(1, CLEAN)
    penalty = PENALTY if found else 0.0
    for weights in ((1.0, 0.0), (1.0, 1.0)):
        totals = evaluate()(saying(text, CLEAN), batch(*weights))
        sums = {name: float(total) for name, (total, _) in totals.items()}
        assert {float(weight) for _, weight in totals.values()} == {sum(weights)}
        scores = reward + weights[1] * other
        assert sums["score"] == pytest.approx(scores, abs=1e-4)
        assert sums["reward"] == pytest.approx(scores - penalty, abs=1e-4)
        assert sums["supported_and_plausible"] == pytest.approx(
            both + weights[1] * other_both, 1e-4
        )
        assert sums["length"] == len(tokens_of(text)) + weights[1] * len(tokens_of(CLEAN))
        assert sums["faults"] == (1.0 if found else 0.0)
        for fault in FAULTS:
            assert sums[fault.name.lower()] == (fault in found), fault


def test_a_step_learns_from_the_reward_less_the_penalty() -> None:
    """The critic says 0 at first, so that its loss and the advantages show what was rewarded."""
    of, texts = learner(), (TEXTS[Fault.SHORT_QUOTE], CLEAN)
    params = saying(*texts)
    state = of.init_state(params, jax.random.key(4))
    after, metrics = jax.jit(of.update)(state, batch(1.0, 1.0))
    scores = [verdict(row, text)[0] for row, text in enumerate(texts)]
    rewards = np.array([scores[0] - PENALTY, scores[1]])
    lengths = np.array([len(tokens_of(text)) for text in texts])
    by_token = np.repeat(rewards, lengths)
    assert np.exp(9 * np.sqrt(WIDTH)) > 1e30  # the odds of what is said: KL is all of log |V|
    expected = {
        "objective/scores": np.mean(scores),
        "objective/rlhf_reward": np.mean(rewards),
        "reward/min": min(rewards),
        "reward/max": max(rewards),
        "reward/supported_and_plausible": np.mean(
            [verdict(row, text)[1] for row, text in enumerate(texts)]
        ),
        "faults/any": 0.5,
        "faults/short_quote": 0.5,
        "faults/malformed": 0.0,
        "loss/value_avg": np.mean(by_token**2),
        "advantage/mean": np.mean(by_token),
        "policy/kl_avg": np.log(BYTES.size),
        "objective/kl": np.log(BYTES.size) * lengths.mean(),
        "policy/entropy_avg": 0.0,
        "samples/length": lengths.mean(),
        "samples/distinct": 1.0,
        "loss/total": 0.2 * np.log(BYTES.size) + 0.8 * 0.5 * np.mean(by_token**2),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
    # d/db of the value loss, whose last bias b is the value everywhere.
    slope = after.params[VALUE_HEAD]["last"]["bias"]
    np.testing.assert_allclose(slope, [-0.8 * 0.5 * 2 * np.mean(by_token)], rtol=1e-4)
    for part in (TEACHER, REWARD_MODEL):
        jax.tree.map(np.testing.assert_array_equal, after.params[part], params[part])

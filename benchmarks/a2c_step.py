"""One step of actor-critic against the sum of its necessary parts, and with nothing shared.

    python benchmarks/a2c_step.py [--rounds 7] [--size 440m]

A policy of 10 layers of width 256, 6 of them and the embeddings frozen, answers 16 prompts of 256
tokens with up to 64 tokens each under the quotes' constraint; a reward model of 4 layers judges.
With a --size (benchmarks/same_model.py) the policy is of that size in bfloat16, 60 % of its layers
frozen, and the reward model has 40 % as many.
The parts, each compiled and run alone on the same arrays: sampling; the reward model's forward
pass; the teacher's trained layers, forward; the policy's trained layers, forward and backward, with
a plain cross-entropy. What the step has beyond them: masks, divergence, values, the optimiser. With
nothing shared, policy, value and teacher are three whole models that each read the tokens.

All take turns in one run; memory is what the compiler allots. Matrix products are counted in the
compiled programs, loops by their turns.
"""

import argparse
import dataclasses
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.same_model import SIZES, our_config
from data_pipelines.sample_world.convert import to_question
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import prompts
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.question_prompts import encode_question, pages_of
from gophercite.learning import optimizers
from gophercite.learning.a2c import A2CLearner
from gophercite.learning.cross_entropy import cross_entropy
from gophercite.learning.policy_terms import Places, Readouts, policy_terms
from gophercite.learning.rollouts import Rewards, Rollouts, roll_out
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    VALUE_HEAD,
    Params,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.planning.compiled import costs
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.vocabularies import Vocabulary

PROMPTS, LENGTH, QUESTION_LENGTH, MAX_TOKENS = 16, 256, 32, 64
MIB = 2**20
Run = Callable[[], Any]


class Setting(NamedTuple):
    """The models' configurations, and how many of the policy's layers are frozen."""

    policy: TransformerConfig
    judge: TransformerConfig
    frozen_layers: int


def setting(size: str | None, vocab_size: int) -> Setting:
    """The setting for a size of `same_model`; None for the one that suits a few cores."""
    if size is None:
        small = TransformerConfig(
            vocab_size, 256, 10, 8, 32, dtype="float32", position="rope", attention_block=64
        )
        return Setting(small, dataclasses.replace(small, num_layers=4), 6)
    policy = our_config(SIZES[size]._replace(vocabulary=vocab_size), "bfloat16")
    judge = dataclasses.replace(policy, num_layers=math.ceil(0.4 * policy.num_layers))
    return Setting(policy, judge, math.floor(0.6 * policy.num_layers))


def asked(vocabulary: Vocabulary) -> dict[str, Any]:
    """A batch of the sample world's questions, as `RolloutInput` has it."""
    world, constraint, rows = World(), QuoteConstraint(vocabulary), []
    for number in itertools.count():
        question = to_question(world.question(number))
        shown = encode_question(vocabulary, question)
        of_judge = prompts.encode_prompt(vocabulary, question.question, [])
        graph = constraint.graph(pages_of(question))
        fits = len(shown) <= LENGTH and len(of_judge) <= QUESTION_LENGTH
        if fits and graph.shortest_answer <= MAX_TOKENS:
            rows.append((shown, of_judge, graph))
        if len(rows) == PROMPTS:
            break
    shown_to_policy, shown_to_judge, graphs = zip(*rows, strict=True)

    def padded(texts: Sequence[Sequence[int]], length: int) -> np.ndarray:
        rows = [[*text, *[vocabulary.pad_id] * (length - len(text))] for text in texts]
        return np.array(rows, np.int32)

    return {
        "prompts": padded(shown_to_policy, LENGTH),
        "prompt_lengths": np.array(list(map(len, shown_to_policy)), np.int32),
        "questions": padded(shown_to_judge, QUESTION_LENGTH),
        "question_lengths": np.array(list(map(len, shown_to_judge)), np.int32),
        "weights": np.ones(PROMPTS, np.float32),
        "quotes": constraint.host_tables(graphs, MAX_TOKENS),
    }


def make(size: str | None = None) -> tuple[A2CLearner, Params, dict[str, Any]]:
    """A learner, its parameters and a batch of the sample world's prompts."""
    vocabulary = bundled_vocabulary()
    models = setting(size, vocabulary.size)
    transformer = Transformer(models.policy)
    judge = RewardModel(Transformer(models.judge))
    plan = Plan(
        transformer,
        SamplingSettings(max_tokens=MAX_TOKENS),
        vocabulary.eos_id,
        vocabulary.pad_id,
        vocabulary.size,
        samples=1,
        rows=1,
    )
    learner = A2CLearner(
        transformer=transformer,
        optimizer=optimizers.adafactor(),
        schedule=lambda step: jnp.float32(1e-4),
        frozen_parts=("embed",),
        max_grad_norm=1.0,
        rewards=Rewards(judge),
        plan=plan,
    )
    keys = jax.random.split(jax.random.key(0), 4)
    reward_model = {**judge.transformer.init(keys[0]), HEADS: judge.init_heads(keys[1])}
    policy = transformer.init(keys[2], models.frozen_layers)
    params = learner.with_extra_parts(policy, reward_model, learner.value_head.init(keys[3]))
    return learner, params, jax.tree.map(jnp.asarray, asked(vocabulary))


def parts(
    learner: A2CLearner, params: Params, batch: dict[str, Any], rollouts: Rollouts
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The necessary parts: functions, and what they are given."""
    transformer, plan = learner.transformer, learner.plan
    positions = jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape)
    ends = rollouts.prompt_lengths + rollouts.response_lengths
    segments = (positions < ends[:, None]).astype(jnp.int32)
    before = rollouts.prompt_lengths[:, None] - 1 + jnp.arange(MAX_TOKENS)
    weights = (jnp.arange(MAX_TOKENS) < rollouts.response_lengths[:, None]).astype(jnp.float32)
    unembedding = transformer.unembedding(params)
    judged = jnp.zeros((PROMPTS, batch["questions"].shape[1] + MAX_TOKENS), jnp.int32)
    keys = jax.random.split(jax.random.key(1), PROMPTS)
    with_frozen_activations = Plan(**{**vars(plan), "frozen_activations": True})

    def read(params: Params, frozen_activations: Any) -> Any:
        hidden = transformer.from_frozen_activations(
            params, frozen_activations, positions, segments
        )
        return jnp.take_along_axis(hidden, before[..., None], axis=1)

    def teacher(params: Params, frozen_activations: Any) -> Any:
        hidden = read({**params, **params[TEACHER]}, frozen_activations)
        return cross_entropy(hidden, unembedding, rollouts.responses, weights)

    def policy(params: Params, frozen_activations: Any) -> Any:
        def loss(trained: Params) -> Any:
            hidden = read({**params, **trained}, frozen_activations)
            return cross_entropy(hidden, unembedding, rollouts.responses, weights)[0]

        return jax.grad(loss)({TRAINED: params[TRAINED]})

    own = learner.policy_parts(params)
    shown = (batch["prompts"], batch["prompt_lengths"], keys, batch["quotes"])
    return {
        "sampling": (
            lambda own, prompts, lengths, keys, quotes: decode(
                with_frozen_activations, own, prompts, lengths, keys, quotes, None
            ),
            (own, *shown),
        ),
        "reward model, forward": (
            learner.rewards.model.judge,
            (params[REWARD_MODEL], judged, jnp.full(PROMPTS, judged.shape[1])),
        ),
        "teacher's trained layers, forward": (teacher, (params, rollouts.frozen_activations)),
        "trained layers, forward and backward": (policy, (params, rollouts.frozen_activations)),
    }


def nothing_shared(learner: A2CLearner, batch: dict[str, Any]) -> Callable[..., Any]:
    """A step of three whole models; `copies` are the value's and the teacher's."""
    transformer = learner.transformer

    def step(state: Any, copies: Any, batch: dict[str, Any]) -> Any:
        params = state.params
        rollouts = roll_out(learner.plan, learner.rewards, params, batch, state.key)
        positions = jnp.broadcast_to(jnp.arange(rollouts.tokens.shape[1]), rollouts.tokens.shape)
        ends = rollouts.prompt_lengths + rollouts.response_lengths
        segments = (positions < ends[:, None]).astype(jnp.int32)
        before = rollouts.prompt_lengths[:, None] - 1 + jnp.arange(MAX_TOKENS)
        place = jnp.arange(MAX_TOKENS)
        weights = (place < rollouts.response_lengths[:, None]).astype(jnp.float32)
        left = jnp.broadcast_to(MAX_TOKENS - place, weights.shape)
        rewards = rollouts.rewards[:, None]

        def read(model: Params) -> Any:
            hidden, _ = transformer.apply(model, rollouts.tokens, positions, segments)
            return jnp.take_along_axis(hidden, before[..., None], axis=1)

        def loss(policy: Params, value: Params) -> Any:
            whole = {**copies["value"], TRAINED: value[TRAINED]}
            values = learner.value_head.apply(value[VALUE_HEAD], read(whole))
            advantages = jax.lax.stop_gradient(rewards - values)
            model, teacher = {**params, **policy}, copies["teacher"]
            objective, _ = policy_terms(
                Readouts(read(model), transformer.unembedding(model)),
                Readouts(jax.lax.stop_gradient(read(teacher)), transformer.unembedding(teacher)),
                Places(rollouts.responses, left, weights, advantages, rollouts.quote),
                batch["quotes"],
                learner.kl_weight,
                learner.plan.vocabulary_size,
                learner.loss_chunk,
            )
            return objective + jnp.sum(weights * jnp.square(rewards - values))

        value = {TRAINED: copies["value"][TRAINED], VALUE_HEAD: params[VALUE_HEAD]}
        slopes = jax.grad(loss, argnums=(0, 1))({TRAINED: params[TRAINED]}, value)
        norm_and_head = {name: jnp.zeros_like(x) for name, x in params["final_norm"].items()}
        trained = {**slopes[0], "final_norm": norm_and_head, VALUE_HEAD: slopes[1][VALUE_HEAD]}
        after, _ = learner.descend(state, trained)
        return after.params, slopes[1][TRAINED]

    return step


def _compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Run, float, Any]:
    """A program to run, the MiB that it takes at its peak, and itself."""
    program = jax.jit(function).lower(*arguments).compile()
    sizes = program.memory_analysis()
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(arguments) if hasattr(leaf, "nbytes"))
    return (lambda: program(*arguments)), (held + sizes.temp_size_in_bytes) / MIB, program


def _sampling_flops(learner: A2CLearner, params: Params, passes: int) -> int:
    """Of reading the prompts and of each pass after it; the loop's turns are known when it ends."""
    transformer = learner.transformer
    own = learner.policy_parts(params)
    prompts, lengths = jnp.zeros((PROMPTS, LENGTH), jnp.int32), jnp.full(PROMPTS, LENGTH)
    prefill = jax.jit(lambda own: transformer.prefill(own, prompts, lengths, MAX_TOKENS)[:2])
    cache = prefill(own)[1]
    one = jnp.zeros((PROMPTS, 1), jnp.int32)

    def turn(own: Params, cache: Any) -> Any:
        hidden = transformer.decode(own, one, one + LENGTH, one == 0, cache).hidden
        return transformer.logits(own, hidden)

    text = [
        f.lower(*x).compile().as_text()
        for f, x in [(prefill, (own,)), (jax.jit(turn), (own, cache))]
    ]
    return costs(text[0]).flops + passes * costs(text[1]).flops


class Measured(NamedTuple):
    """A step or a part of it: median seconds, as a share of the parts' sum, and what it takes."""

    name: str
    seconds: float
    of_parts: float
    flops: int | None
    mib: float


def measure(size: str | None, rounds: int) -> tuple[list[Measured], str]:
    """Measures the step and its parts in turns; also says how much was sampled."""
    learner, params, batch = make(size)
    state = learner.init_state(params, jax.random.key(1))
    roll = jax.jit(lambda p, b, key: roll_out(learner.plan, learner.rewards, p, b, key))
    rollouts = roll(params, batch, jax.random.key(1))
    necessary = parts(learner, params, batch, rollouts)
    copies = {name: learner.policy_parts(params) for name in ("value", "teacher")}
    copies = jax.tree.map(jnp.copy, copies)
    programs = {name: _compiled(*part) for name, part in necessary.items()}
    programs["the whole step"] = _compiled(learner.update, (state, batch))
    bare = {n: x for n, x in params.items() if n != TEACHER}
    alone = learner.init_state(bare, jax.random.key(1))
    programs["the whole step, nothing shared"] = _compiled(
        nothing_shared(learner, batch), (alone, copies, batch)
    )

    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, (run, _, _) in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(run())
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    passes = int(programs["sampling"][0]().passes)
    sums = np.sum([seconds[name] for name in necessary], axis=0)
    found = []
    for name, (_, memory, program) in programs.items():
        flops = None
        if name == "sampling":
            flops = _sampling_flops(learner, params, passes)
        elif name in necessary:
            flops = costs(program.as_text()).flops
        median = statistics.median(seconds[name])
        ratio = statistics.median(np.array(seconds[name]) / sums)
        found.append(Measured(name, median, ratio, flops, memory))
    sampled = int(rollouts.response_lengths.sum())
    return found, f"{passes} passes of sampling; {sampled} tokens sampled"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", choices=SIZES, help="default: as described above")
    flags = parser.parse_args()
    found, sampled = measure(flags.size, flags.rounds)
    print(f"{sampled}\n")
    print("| | s | of the parts' sum | GFLOP in matrix products | MiB |")
    print("|---|---|---|---|---|")
    for name, seconds, of_parts, flops, mib in found:
        counted = "" if flops is None else f"{flops / 1e9:.1f}"
        print(f"| {name} | {seconds:.3f} | {of_parts:.2f} | {counted} | {mib:.0f} |")


if __name__ == "__main__":
    main()

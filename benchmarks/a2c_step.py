"""One step of actor-critic against the sum of its necessary parts, and with nothing shared.

    python benchmarks/a2c_step.py [--rounds 7]

A policy of 10 layers of width 256, 6 of them and the embeddings frozen, answers 16 prompts of 256
tokens with up to 64 tokens each under the quotes' constraint; a reward model of 4 layers judges.
The parts, each compiled and run alone on the same arrays: sampling; the reward model's forward
pass; the teacher's trained layers, forward; the policy's trained layers, forward and backward, with
a plain cross-entropy. What the step has beyond them: masks, divergence, values, the optimiser. With
nothing shared, policy, value and teacher are three whole models that each read the tokens.

All take turns in one run; memory is what the compiler allots. Matrix products are counted in the
compiled programs, loops by their turns.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_pipelines import tasks  # noqa: F401 (registers the sample world's)
from data_pipelines.rollout_input import RolloutInput
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
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
from gophercite.quoting.quote_settings import QuoteSettings

LAYERS, FROZEN_LAYERS, PROMPTS, LENGTH, MAX_TOKENS = 10, 6, 16, 256, 64
MIB = 2**20
Run = Callable[[], Any]


def config(layers: int, vocab_size: int) -> TransformerConfig:
    return TransformerConfig(
        vocab_size, 256, layers, 8, 32, dtype="float32", position="rope", attention_block=64
    )


def make() -> tuple[A2CLearner, Params, dict[str, Any]]:
    """A learner, its parameters and a batch of the sample world's prompts."""
    prompts = RolloutInput(
        "sample_world_questions", "train", LENGTH, 32, MAX_TOKENS, PROMPTS, 0, QuoteSettings()
    )
    vocabulary = prompts.vocabulary
    transformer = Transformer(config(LAYERS, vocabulary.size))
    judge = RewardModel(Transformer(config(4, vocabulary.size)))
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
    policy = transformer.init(keys[2], FROZEN_LAYERS)
    params = learner.with_extra_parts(policy, reward_model, learner.value_head.init(keys[3]))
    batch = jax.tree.map(jnp.asarray, next(prompts.batches()))
    return learner, params, batch


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
    asked = (batch["prompts"], batch["prompt_lengths"], keys, batch["quotes"])
    return {
        "sampling": (
            lambda own, prompts, lengths, keys, quotes: decode(
                with_frozen_activations, own, prompts, lengths, keys, quotes, None
            ),
            (own, *asked),
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    learner, params, batch = make()
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
    print(f"{passes} passes of sampling; {int(rollouts.response_lengths.sum())} tokens sampled\n")
    print("| | s | of the parts' sum | GFLOP in matrix products | MiB |")
    print("|---|---|---|---|---|")
    for name, (_, memory, program) in programs.items():
        ratio = statistics.median(np.array(seconds[name]) / sums)
        if name == "sampling":
            flops = f"{_sampling_flops(learner, params, passes) / 1e9:.1f}"
        elif name in necessary:
            flops = f"{costs(program.as_text()).flops / 1e9:.1f}"
        else:
            flops = ""
        median = statistics.median(seconds[name])
        print(f"| {name} | {median:.3f} | {ratio:.2f} | {flops} | {memory:.0f} |")


if __name__ == "__main__":
    main()

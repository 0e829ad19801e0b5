"""One update of PPO against the sum of its necessary parts.

    python benchmarks/ppo_step.py [--rounds 5] [--rows 400] [--prompt-tokens 320] [--frozen 2]

The sample web's policy (gin_configs/ppo_sample_web.gin) learns from one rollout of random tokens,
with prompts and responses as long as those of its demonstrations. The parts, each compiled and run
alone on the same rows, in the same pieces: the frozen layers' forward pass, before training and in
training; from there on, the behaviour-cloned policy's forward pass; the value network's forward
pass; the policy, forward and backward, with a plain cross-entropy; the value network, forward and
backward, with a squared error. What the update has beyond them: divergence, advantages, ratios and
clip, shuffling, clipped gradients, the optimiser.

The parts read all rows to their whole length, as does an update with one width. With several
(`PPOLearner.widths`), rows of similar length share a microbatch, which is cut to what it needs.

All take turns in one run.
"""

import argparse
import dataclasses
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

from gophercite.learning import optimizers, schedules
from gophercite.learning.cross_entropy import cross_entropy
from gophercite.learning.experience import Experience, nothing, to_batch
from gophercite.learning.gradient_learner import cut_rows
from gophercite.learning.ppo import PPOLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    FROZEN,
    HEADS,
    VALUE_HEAD,
    VALUE_TRUNK,
    Params,
    initial_policy,
    merge_layers,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.text.counting import counted

MAX_TOKENS, MINIBATCHES, VOCABULARY = 64, 5, 2048
CONFIG = TransformerConfig(
    vocab_size=VOCABULARY,
    d_model=128,
    num_layers=4,
    num_heads=4,
    head_dim=32,
    d_ff=384,
    activation="silu",
    gated_mlp=True,
    position="rope",
    scale_embeddings=True,
    dtype="float32",
    attention_block=64,
    attention_remat=False,
)


def make(rows: int, prompt_tokens: int, frozen: int) -> tuple[PPOLearner, Params, dict[str, Any]]:
    """The learner, its parameters, and a rollout."""
    model = Transformer(CONFIG)
    learner = PPOLearner(
        transformer=model,
        optimizer=optimizers.adam(),
        schedule=schedules.constant(1e-4),
        reward_model=RewardModel(model),
        vocabulary_size=VOCABULARY,
        frozen_parts=("embed",),
        minibatches=MINIBATCHES,
        microbatches=max(1, rows // MINIBATCHES // 8),
        max_grad_norm=1.0,
        value_width=128,
    )
    keys = jax.random.split(jax.random.key(0), 3)
    policy = model.init(keys[0], frozen)
    judge = {**merge_layers(policy), HEADS: learner.reward_model.init_heads(keys[1])}
    params = learner.with_extra_parts(policy, judge, learner.value_head.init(keys[2]))
    draws = np.random.default_rng(0)
    made = nothing(rows, prompt_tokens + MAX_TOKENS, MAX_TOKENS, 0)
    made.tokens[:] = draws.integers(0, VOCABULARY, made.tokens.shape)
    made.prompt_lengths[:] = draws.integers(45, prompt_tokens + 1, rows)
    made.response_lengths[:] = draws.integers(2, 24, rows)
    made.log_probs[:] = -np.log(VOCABULARY)
    made.weights[:] = 1
    made.episode[:] = np.arange(rows) // 5
    made.step[:] = np.arange(rows) % 5
    made.ends[4::5] = 1
    made.rewards[4::5, 0] = draws.normal(size=len(made.ends[4::5]))
    return learner, params, jax.tree.map(jnp.asarray, to_batch(made))


def parts(
    learner: PPOLearner, params: Params, batch: dict[str, Any]
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The necessary parts: functions, and what they are given."""
    model, pieces = learner.transformer, learner.minibatches * learner.microbatches

    def places(rows: Experience) -> tuple[Any, Any]:
        positions = jnp.broadcast_to(jnp.arange(rows.tokens.shape[1]), rows.tokens.shape)
        ends = rows.prompt_lengths + rows.response_lengths
        return positions, (positions < ends[:, None]).astype(jnp.int32)

    def below(rows: Experience) -> Any:
        return model.frozen_activations(params, rows.tokens, *places(rows))

    def read(own: Params, rows: Experience, x: Any) -> Any:
        whole = {**params, **own}
        return rows.before(model.from_frozen_activations(whole, x, *places(rows)))

    def nats(own: Params, rows: Experience, x: Any) -> Any:
        weights = rows.real.astype(jnp.float32)
        unembedding = model.unembedding(params)
        return cross_entropy(read(own, rows, x), unembedding, rows.responses, weights)[0]

    def error(own: Params, rows: Experience, x: Any) -> Any:
        found = learner.value_head.apply(own[VALUE_HEAD], read(own[VALUE_TRUNK], rows, x))
        return jnp.sum(jnp.where(rows.real, jnp.square(found - rows.rewards), 0))

    def in_pieces(batch: Any) -> Any:
        return jax.lax.map(lambda rows: below(Experience(**rows)), cut_rows(batch, pieces))

    def over_pieces(loss: Callable[..., Any]) -> Callable[..., Any]:
        def run(own: Params, batch: dict[str, Any], x: Any) -> Any:
            cut = cut_rows(batch, pieces), x
            return jax.lax.map(lambda piece: loss(own, Experience(**piece[0]), piece[1]), cut)

        return run

    def slopes(loss: Callable[..., Any]) -> Callable[..., Any]:
        def run(own: Params, batch: dict[str, Any], x: Any) -> Any:
            def piece(sums: Params, rows: tuple[dict[str, Any], Any]) -> tuple[Params, None]:
                new = jax.grad(loss)(own, Experience(**rows[0]), rows[1])
                return jax.tree.map(jnp.add, sums, new), None

            zeros = jax.tree.map(jnp.zeros_like, own)
            return jax.lax.scan(piece, zeros, (cut_rows(batch, pieces), x))[0]

        return run

    trained = learner.trained(params)
    values = {name: trained.pop(name) for name in (VALUE_TRUNK, VALUE_HEAD)}
    teacher = {name: part for name, part in initial_policy(params).items() if name in trained}
    x = jax.jit(in_pieces)(batch)
    times = ("before training", "in training") if FROZEN in params else ()
    return {f"frozen layers, forward, {when}": (in_pieces, (batch,)) for when in times} | {
        "cloned policy, forward": (over_pieces(nats), (teacher, batch, x)),
        "values, forward": (over_pieces(error), (values, batch, x)),
        "policy, forward and backward": (slopes(nats), (trained, batch, x)),
        "values, forward and backward": (slopes(error), (values, batch, x)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="rounds to measure (default: 5)")
    add("--rows", type=int, default=400, help="completions of the rollout (default: 400)")
    add("--prompt-tokens", type=int, default=320, help="longest prompt (default: 320)")
    add("--frozen", type=int, default=2, help="frozen layers, of four (default: 2)")
    flags = parser.parse_args()
    learner, params, batch = make(flags.rows, flags.prompt_tokens, flags.frozen)
    state = learner.init_state(params, jax.random.key(1))
    necessary = parts(learner, params, batch)
    programs = {
        name: jax.jit(function).lower(*given).compile()
        for name, (function, given) in necessary.items()
    }
    given = {name: arguments for name, (_, arguments) in necessary.items()}
    for widths in (1, learner.widths):
        name = f"the whole update, {counted(widths, 'width')}"
        own = dataclasses.replace(learner, widths=widths)
        programs[name] = jax.jit(own.update).lower(state, batch).compile()
        given[name] = (state, batch)

    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(flags.rounds + 1):
        for name, program in programs.items():
            begun = time.perf_counter()
            jax.block_until_ready(program(*given[name]))
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    sums = np.sum([seconds[name] for name in necessary], axis=0)
    read = int(jnp.sum(batch["prompt_lengths"] + batch["response_lengths"]))
    print(f"{read} tokens in {batch['tokens'].size} places\n")
    print("| | s | of the parts' sum |\n|---|---|---|")
    for name in programs:
        ratio = statistics.median(np.array(seconds[name]) / sums)
        print(f"| {name} | {statistics.median(seconds[name]):.2f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()

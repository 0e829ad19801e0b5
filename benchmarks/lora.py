"""What training adapters takes beside training all parameters: time, operations, memory.

    python benchmarks/lora.py [--rounds 7]

First a model of 8 layers of width 256 on 8 × 256 tokens, Adam, float32, groups of two layers
rematerialised, on this machine. Steps take turns, so that all see the same machine. Operations are
those of the compiled program's matrix products; memory is what the compiler allots: the state that
a step updates, and its temporaries (activations and gradients).

Then the state of a Llama of 7B parameters by the shapes that the learners themselves ask for;
nothing of it is made.
"""

import argparse
import dataclasses
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.steps_in_turn import seconds_in_turn
from gophercite.learning.optimizers import Optimizer, adafactor, adam
from gophercite.learning.state import TrainState
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import LoRA, adaptable
from gophercite.models.transformer import Transformer
from gophercite.planning.compiled import costs

ROWS, LENGTH, VOCAB = 8, 256, 4096
SMALL = TransformerConfig(
    VOCAB,
    256,
    8,
    8,
    32,
    d_ff=704,
    gated_mlp=True,
    activation="silu",
    position="rope",
    dtype="float32",
    remat_every=2,
    attention_block=64,
)
LLAMA_7B = TransformerConfig(
    32_000,
    4096,
    32,
    32,
    128,
    d_ff=11_008,
    gated_mlp=True,
    activation="silu",
    position="rope",
    tied_embeddings=False,
)
ATTENTION = LoRA(rank=8)
EVERYTHING = LoRA(rank=8, targets=adaptable(SMALL))
MIB, GB = 2**20, 10**9


def make_learner(
    config: TransformerConfig, lora: LoRA | None, optimizer: Optimizer
) -> SupervisedLearner:
    return SupervisedLearner(Transformer(config, lora), optimizer, lambda step: 1e-4)


def state_of(learner: SupervisedLearner) -> TrainState:
    return learner.init_state(learner.transformer.init(jax.random.key(0)), jax.random.key(1))


def size(tree: Any) -> int:
    """Bytes of a tree of arrays, or of their shapes; keys are left out."""
    leaves = [
        x for x in jax.tree.leaves(tree) if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    ]
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)


def count(tree: Any) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


def measure(rounds: int) -> None:
    ids = np.random.default_rng(0).integers(2, VOCAB, (2, ROWS, LENGTH)).astype(np.int32)
    batch = {
        "tokens": ids[0],
        "targets": ids[1],
        "weights": np.ones((ROWS, LENGTH), np.float32),
        "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
        "segments": np.ones((ROWS, LENGTH), np.int32),
    }
    variants = {
        "all parameters": None,
        "adapters of queries and values": ATTENTION,
        "adapters of all matrices": EVERYTHING,
    }
    steps, states, figures = {}, {}, {}
    for name, lora in variants.items():
        learner = make_learner(SMALL, lora, adam())
        states[name] = state_of(learner)
        trained = count(learner.trained(states[name].params))
        kept = size(states[name])
        steps[name] = jax.jit(learner.update, donate_argnums=0).lower(states[name], batch).compile()
        temporary = steps[name].memory_analysis().temp_size_in_bytes
        figures[name] = (trained, costs(steps[name].as_text()).flops, kept, temporary)
    seconds = seconds_in_turn(steps, states, batch, rounds)
    print(
        "| trained | values | s a step | of all | operations of all "
        "| state MiB | temporaries MiB | both, of all |"
    )
    print("|---|---|---|---|---|---|---|---|")
    everything = figures["all parameters"]
    for name, (trained, operations, kept, temporary) in figures.items():
        pairs = zip(seconds[name], seconds["all parameters"], strict=True)
        ratio = statistics.median(own / whole for own, whole in pairs)
        print(
            f"| {name} | {trained:,} | {statistics.median(seconds[name]):.2f} | {ratio:.2f} "
            f"| {operations / everything[1]:.2f} | {kept / MIB:.1f} | {temporary / MIB:.1f} "
            f"| {(kept + temporary) / sum(everything[2:]):.2f} |"
        )


def arithmetic() -> None:
    print("| trained | values | parameters GB | gradients GB | optimiser GB | together GB |")
    print("|---|---|---|---|---|---|")
    rows = (
        ("all, float32, Adam", "float32", None, adam()),
        ("all, bfloat16, Adafactor", "bfloat16", None, adafactor()),
        ("queries' and values' adapters, Adam", "bfloat16", ATTENTION, adam()),
        ("all matrices' adapters, Adam", "bfloat16", EVERYTHING, adam()),
    )
    for name, dtype, lora, optimizer in rows:
        learner = make_learner(dataclasses.replace(LLAMA_7B, param_dtype=dtype), lora, optimizer)
        state = jax.eval_shape(lambda learner=learner: state_of(learner))
        trained = learner.trained(state.params)
        sizes = [size(tree) / GB for tree in (state.params, trained, state.optimizer)]
        cells = " | ".join(f"{each:.3f}" for each in (*sizes, sum(sizes)))
        print(f"| {name} | {count(trained):,} | {cells} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    measure(rounds)
    print()
    arithmetic()


if __name__ == "__main__":
    main()

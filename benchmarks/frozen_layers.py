"""What freezing 60 % of the layers saves, against freezing none and against a mask over the update.

    python benchmarks/frozen_layers.py [--rounds 7]

A model of 10 layers of width 256 on 8 × 512 tokens, Adafactor, float32. Frozen layers run in a scan
of their own under `stop_gradient`; the mask, for comparison, computes every gradient and throws six
layers' away. Steps take turns, so that all three see the same machine; memory is what the compiler
allots: the state that a step updates, and its temporaries.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.steps_in_turn import seconds_in_turn
from gophercite.learning.optimizers import adafactor
from gophercite.learning.state import TrainState
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer

LAYERS, FROZEN, ROWS, LENGTH, VOCAB = 10, 6, 8, 512, 8192
CONFIG = TransformerConfig(
    VOCAB, 256, LAYERS, 8, 32, dtype="float32", position="rope", attention_block=64
)
MIB = 2**20


def masked_update(learner: SupervisedLearner, state: TrainState, batch: Any) -> tuple[Any, Any]:
    """Trains all layers, then puts the first ones back."""
    after, metrics = learner.update(state, batch)
    keep = jnp.arange(LAYERS) < FROZEN

    def put_back(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(keep.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    layers = jax.tree.map(put_back, after.params["trained_layers"], state.params["trained_layers"])
    params = {**after.params, "trained_layers": layers}
    rest = {"step": after.step, "optimizer": after.optimizer, "ema": None, "key": after.key}
    return TrainState(params=params, **rest), metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    ids = rng.integers(2, VOCAB, (2, ROWS, LENGTH)).astype(np.int32)
    batch = {
        "tokens": ids[0],
        "targets": ids[1],
        "weights": np.ones((ROWS, LENGTH), np.float32),
        "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
        "segments": np.ones((ROWS, LENGTH), np.int32),
    }
    learner = SupervisedLearner(Transformer(CONFIG), adafactor(), lambda step: 1e-4)
    variants = {
        "none frozen": (0, learner.update),
        f"{FROZEN} of {LAYERS} by a mask over the update": (
            0,
            lambda state, batch: masked_update(learner, state, batch),
        ),
        f"{FROZEN} of {LAYERS} in a scan of their own": (FROZEN, learner.update),
    }
    steps, states, memory = {}, {}, {}
    for name, (frozen, update) in variants.items():
        params = learner.transformer.init(jax.random.key(0), frozen)
        states[name] = learner.init_state(params, jax.random.key(1))
        steps[name] = jax.jit(update, donate_argnums=0).lower(states[name], batch).compile()
        analysis = steps[name].memory_analysis()
        optimizer = sum(leaf.nbytes for leaf in jax.tree.leaves(states[name].optimizer))
        memory[name] = (analysis.temp_size_in_bytes / MIB, optimizer / MIB)
    seconds = seconds_in_turn(steps, states, batch, rounds)
    base = next(iter(variants))
    print("| layers | s a step | of none | temporaries MiB | of none | optimiser state MiB |")
    print("|---|---|---|---|---|---|")
    for name in variants:
        ratios = [a / b for a, b in zip(seconds[name], seconds[base], strict=True)]
        temporary, optimizer = memory[name]
        print(
            f"| {name} | {statistics.median(seconds[name]):.2f} | {statistics.median(ratios):.2f} "
            f"| {temporary:.0f} | {temporary / memory[base][0]:.2f} | {optimizer:.2f} |"
        )


if __name__ == "__main__":
    main()

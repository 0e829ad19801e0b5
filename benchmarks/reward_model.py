"""Both responses of a pair in one forward pass, against a forward pass for each.

    python benchmarks/reward_model.py [--rounds 7]

A reward model of 6 layers of width 256 on 16 pairs of 2 × 256 tokens, Adam, float32: a step of
training in 4 microbatches, and an evaluation. The two ways take turns, so that both see the same
machine; memory is what the compiler allots for temporaries, the peak above the state and the batch.
"""

import argparse
import collections
import statistics
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.learning.optimizers import adam
from gophercite.learning.reward import RewardLearner
from gophercite.learning.schedules import constant
from gophercite.learning.state import Batch
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS, Params
from gophercite.models.reward_model import Verdict
from gophercite.models.transformer import Transformer

PAIRS, LENGTH, VOCAB, MICROBATCHES = 16, 256, 8192, 4
CONFIG = TransformerConfig(VOCAB, 256, 6, 8, 32, dtype="float32", position="rope")
MIB = 2**20


class TwoPasses(RewardLearner):
    """The first responses in one forward pass, the second ones in another."""

    def verdicts(self, params: Params, batch: Batch, accumulated: Params | None = None) -> Verdict:
        sides = [
            self.model.judge(
                params, batch["tokens"][:, side], batch["lengths"][:, side], accumulated=accumulated
            )
            for side in (0, 1)
        ]
        return Verdict(*(jnp.stack(parts, axis=1) for parts in zip(*sides, strict=True)))


def make_batch() -> Batch:
    rng = np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(2, VOCAB, (PAIRS, 2, LENGTH)).astype(np.int32),
        "lengths": np.full((PAIRS, 2), LENGTH, np.int32),
        "preferred": rng.integers(0, 2, PAIRS).astype(np.float32),
        "preferred_weights": np.ones(PAIRS, np.float32),
        "supported_and_plausible": rng.integers(0, 2, (PAIRS, 2)).astype(np.float32),
        "label_weights": np.ones((PAIRS, 2), np.float32),
    }
    return jax.tree.map(jnp.asarray, batch)


class Way:
    """A learner with its programs, compiled, and a state."""

    def __init__(self, learner: RewardLearner, batch: Batch) -> None:
        params = learner.transformer.init(jax.random.key(0))
        params[HEADS] = learner.model.init_heads(jax.random.key(1))
        self._batch = batch
        self._state = learner.init_state(params, jax.random.key(2))
        self._step = jax.jit(learner.update, donate_argnums=0).lower(self._state, batch).compile()
        self._evaluate = jax.jit(learner.evaluate).lower(params, batch).compile()

    def train(self) -> None:
        """One step."""
        self._state, _ = jax.block_until_ready(self._step(self._state, self._batch))

    def evaluate(self) -> None:
        """The totals of one batch."""
        jax.block_until_ready(self._evaluate(self._state.params, self._batch))

    def temporaries(self) -> dict[str, float]:
        """MiB that the compiler allots beside arguments and results."""
        found = {}
        for what, program in (("training", self._step), ("evaluation", self._evaluate)):
            memory = program.memory_analysis()
            assert memory is not None  # this platform's compiler says
            found[what] = memory.temp_size_in_bytes / MIB
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    batch = make_batch()
    ways = {}
    for name, kind in (("one pass", RewardLearner), ("two passes", TwoPasses)):
        learner = kind(Transformer(CONFIG), adam(), constant(1e-4), microbatches=MICROBATCHES)
        ways[name] = Way(learner, batch)
    seconds: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for turn in range(rounds + 1):
        for name, way in ways.items():
            for what, work in (("training", way.train), ("evaluation", way.evaluate)):
                begun = time.perf_counter()
                work()
                if turn:  # the first is to warm up
                    seconds[what, name].append(time.perf_counter() - begun)
    print("| | pairs/s | of two passes | temporaries MiB |")
    print("|---|---|---|---|")
    for (what, name), taken in seconds.items():
        other = seconds[what, "two passes"]
        ratio = statistics.median(b / a for a, b in zip(taken, other, strict=True))
        speed = PAIRS / statistics.median(taken)
        memory = ways[name].temporaries()[what]
        print(f"| {what}, {name} | {speed:.2f} | {ratio:.2f} | {memory:.1f} |")


if __name__ == "__main__":
    main()

"""Does the paper's reinforcement learning fit 128 TPU v3 cores? Asked of the TPU's own compiler.

    pip install "jax[tpu]"        # the libtpu that the pinned jax asks for; no TPU is needed
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python benchmarks/compile_a2c.py

Lays the whole step out over the slice and compiles it ahead of time: 280B policy with 60 % of its
layers frozen, teacher, value head and 7.1B reward model; 64 prompts of 3,840 tokens, answered with
up to 256 under the quotes' constraint; sampling, judging, loss and update are one program. Says
what memory it takes, and whether anything in it goes to the host. Small models show that sooner:

    … python benchmarks/compile_a2c.py --policy 1.4b --reward_model 117m --slice v3:2x2 --model 4
"""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from compile_280b import report  # noqa: E402

from data_pipelines.sample_world.vocabulary import bundled_vocabulary  # noqa: E402
from gophercite.decoding.decode_state import Plan  # noqa: E402
from gophercite.decoding.sampling_settings import SamplingSettings  # noqa: E402
from gophercite.documents import Document  # noqa: E402
from gophercite.learning import optimizers  # noqa: E402
from gophercite.learning.a2c import A2CLearner  # noqa: E402
from gophercite.learning.rollouts import Rewards  # noqa: E402
from gophercite.models import families  # noqa: E402
from gophercite.models.parameters import HEADS, Params  # noqa: E402
from gophercite.models.reward_model import RewardModel  # noqa: E402
from gophercite.models.transformer import Transformer  # noqa: E402
from gophercite.partitioning import Partitioner, make_mesh  # noqa: E402
from gophercite.quoting.constraint import QuoteConstraint  # noqa: E402
from gophercite.quoting.table_sizes import TableSizes  # noqa: E402
from gophercite.training.program import Program  # noqa: E402

MAX_TOKENS, QUESTION = 256, 256
NODES, EDGES = 40_000, 120_000  # of the graph of a prompt of 3,840 tokens
HOST = re.compile(r" (infeed|outfeed|send|recv|send-done|recv-done)\(|host_callback|python_cpu")


class Shapes:
    """The first parameters of a run by their shapes alone."""

    def __init__(self, learner: A2CLearner, frozen: int) -> None:
        self.learner, self.frozen = learner, frozen

    def shapes(self) -> Params:
        judge = self.learner.rewards.model
        return jax.eval_shape(
            self.learner.with_extra_parts,
            self.learner.transformer.abstract(self.frozen),
            {**judge.transformer.abstract(), HEADS: judge.abstract_heads()},
            self.learner.value_head.abstract(),
        )

    def parameters(self, key: Any, shardings: Params) -> Params:
        raise NotImplementedError("nothing runs here")


def make_learner(policy: str, reward_model: str, microbatches: int, pieces: int) -> A2CLearner:
    options = {"param_dtype": "bfloat16", "remat_every": 1, "attention_block": 2048}
    transformer = Transformer(families.gopher(policy, **options))
    judge = RewardModel(Transformer(families.gopher(reward_model, **options)))
    vocab_size = transformer.config.vocab_size
    drawn = SamplingSettings(max_tokens=MAX_TOKENS, free_log_probs=False)
    return A2CLearner(
        transformer=transformer,
        optimizer=optimizers.adafactor(),
        schedule=lambda step: jnp.float32(2e-6),
        frozen_parts=("embed",),
        microbatches=microbatches,
        max_grad_norm=1.0,
        rewards=Rewards(judge),
        plan=Plan(transformer, drawn, 1, 0, vocab_size, samples=1, rows=1),
        loss_chunk=8192,
        rollout_pieces=pieces,
    )


def abstract_batch(
    partitioner: Partitioner, prompts: int, length: int, vocab_size: int
) -> dict[str, Any]:
    """A batch's shapes and where they lie, its tables those of a small vocabulary made larger."""
    small = bundled_vocabulary()
    constraint = QuoteConstraint(small)
    graph = constraint.graph([Document("a", "A", "Some text to quote.")])
    sizes = TableSizes(prompts * NODES, prompts * EDGES)
    tables = constraint.host_tables([graph] * prompts, MAX_TOKENS, sizes)
    everywhere = NamedSharding(partitioner.mesh, PartitionSpec())

    def whole(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
        shape = tuple(vocab_size if size == small.size else size for size in leaf.shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=everywhere)

    def rows(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        axes = ("batch", *[None] * len(shape))
        place = NamedSharding(partitioner.mesh, partitioner.spec(axes))
        return jax.ShapeDtypeStruct((prompts, *shape), dtype, sharding=place)

    return {
        "prompts": rows(jnp.int32, length),
        "prompt_lengths": rows(jnp.int32),
        "questions": rows(jnp.int32, QUESTION),
        "question_lengths": rows(jnp.int32),
        "weights": rows(jnp.float32),
        "quotes": jax.tree.map(whole, tables),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="280b", help="of the Gopher family (%(default)s)")
    parser.add_argument("--reward_model", default="7.1b", help="likewise (%(default)s)")
    parser.add_argument("--slice", default="v3:8x8", help="TPU slice (%(default)s)")
    parser.add_argument("--model", type=int, default=32, help="tensor-parallel cuts (%(default)s)")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--length", type=int, default=3840, help="tokens of a prompt")
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--rollout_pieces", type=int, default=16)
    flags = parser.parse_args()
    learner = make_learner(
        flags.policy, flags.reward_model, flags.microbatches, flags.rollout_pieces
    )
    devices = topologies.get_topology_desc(flags.slice, platform="tpu").devices
    partitioner = Partitioner(make_mesh(model=flags.model, devices=devices))
    config = learner.transformer.config
    frozen = round(0.6 * config.num_layers)
    print(
        f"{config.parameters:,} parameters, {frozen} of {config.num_layers} layers frozen; "
        f"{flags.prompts} prompts of {flags.length} tokens, sampled in {flags.rollout_pieces} "
        f"pieces, learnt from in {flags.microbatches}; "
        f"{flags.slice}: {dict(partitioner.mesh.shape)}",
        flush=True,
    )
    program = Program(learner, Shapes(learner, frozen), partitioner)
    batch = abstract_batch(partitioner, flags.prompts, flags.length, config.vocab_size)
    begun = time.monotonic()
    compiled = program.compile_update(batch)
    report("the step of actor-critic", begun, compiled)
    to_host = HOST.findall(compiled.as_text())
    print(f"operations that go to the host: {len(to_host)}")


if __name__ == "__main__":
    main()

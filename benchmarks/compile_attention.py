"""Do TPU's fused attention and our blocks compile for a slice, and what do they need there?

    pip install "jax[tpu]"        # the libtpu that the pinned jax asks for; no TPU is needed
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python benchmarks/compile_attention.py

A training step of a model with rotary positions (8 layers, width 2048, 16 heads of 128, 4 key
heads; 16 × 2048 tokens in bfloat16), laid out over a slice and compiled ahead of time, once with
each kernel and once with what "auto" chooses.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import topologies

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.learning.optimizers import adafactor
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.training.initialisation import RandomInitialisation
from gophercite.training.program import Program

ROWS, LENGTH = 16, 2048
GIB = 2**30


def compiled(kernel: str, partitioner: Partitioner) -> jax.stages.Compiled:
    config = TransformerConfig(
        32_000,
        2048,
        8,
        16,
        128,
        num_kv_heads=4,
        d_ff=5632,
        activation="silu",
        gated_mlp=True,
        position="rope",
        remat_every=1,
        attention_kernel=kernel,  # type: ignore[arg-type]
    )
    transformer = Transformer(config)
    learner = SupervisedLearner(transformer, adafactor(), lambda step: 1e-4)
    place = partitioner.batch_sharding
    batch = {
        name: jax.ShapeDtypeStruct((ROWS, LENGTH), dtype, sharding=place)
        for name, dtype in {
            "tokens": jnp.int32,
            "targets": jnp.int32,
            "positions": jnp.int32,
            "segments": jnp.int32,
            "weights": jnp.float32,
        }.items()
    }
    program = Program(learner, RandomInitialisation(transformer), partitioner)
    return program.compile_update(batch)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topology", default="v4:2x2x1")
    parser.add_argument("--model", type=int, default=2, help="tensor-parallel cuts (default: 2)")
    flags = parser.parse_args()
    devices = topologies.get_topology_desc(flags.topology, "tpu").devices
    partitioner = Partitioner(make_mesh(fsdp=-1, model=flags.model, devices=devices))
    print(f"| kernel ({flags.topology}) | fused calls | temporaries, GiB | FLOPs a device |")
    print("|---|---|---|---|")
    for kernel in ("blocks", "splash", "auto"):
        step = compiled(kernel, partitioner)
        fused = step.as_text().count("tpu_custom_call")
        memory, cost = step.memory_analysis(), step.cost_analysis()
        print(
            f"| {kernel} | {fused} | {memory.temp_size_in_bytes / GIB:.2f} | {cost['flops']:.3g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

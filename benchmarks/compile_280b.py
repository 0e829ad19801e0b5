"""Does the paper's 280B fine-tuning step fit 128 TPU v3 cores? Asked of the TPU's own compiler.

    pip install "jax[tpu]"        # the libtpu that the pinned jax asks for; no TPU is needed
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python benchmarks/compile_280b.py

Builds the learner of a gin file (by default GopherCite's supervised fine-tuning: 280B parameters,
128 × 4096 tokens, Adafactor, bfloat16 with stochastic rounding, embeddings frozen, rematerialised
every 3 blocks), lays its whole update out over the slice, and compiles it ahead of time. The
compiler refuses a program that does not fit, and says by how much. It takes minutes and several
gigabytes of this machine's memory.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gin
import jax
import jax.numpy as jnp
from jax.experimental import topologies

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launch")]

import configuration  # noqa: E402, F401 -- registers the library with gin
import gin_files  # noqa: E402

from gophercite.learning.supervised import SupervisedLearner  # noqa: E402
from gophercite.partitioning import Partitioner, make_mesh  # noqa: E402
from gophercite.training.initialisation import RandomInitialisation  # noqa: E402
from gophercite.training.program import Program  # noqa: E402

GIB = 2**30
# What the compiler grants a program of a v3 core's 16 GiB.
USABLE = 15.48
UNUSED = ("MODEL_DIR", "VOCABULARY", "TRAIN_FILES", "ELI5_FILE", "NQ_FILE")


def abstract_batch(partitioner: Partitioner, rows: int, length: int) -> dict[str, Any]:
    """A batch's shapes and where they lie."""

    def field(dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, length), dtype, sharding=partitioner.batch_sharding)

    names = ("tokens", "targets", "positions", "segments")
    return {**{name: field(jnp.int32) for name in names}, "weights": field(jnp.float32)}


def report(what: str, begun: float, compiled: jax.stages.Compiled) -> None:
    """Prints what a program needs; leaves when it is too much."""
    memory = compiled.memory_analysis()
    peak = memory.peak_memory_in_bytes / GIB
    print(
        f"{what} fits: arguments {memory.argument_size_in_bytes / GIB:.2f} GiB a core, of which "
        f"{memory.alias_size_in_bytes / GIB:.2f} are updated in place; peak {peak:.2f} of {USABLE} "
        f"GiB; compiled in {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    if peak > USABLE:
        sys.exit(f"the peak is over {USABLE} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gin_file", default=str(ROOT / "gin_configs/sft_gopher_280b.gin"))
    parser.add_argument("--slice", default="v3:8x8", help="TPU slice (default %(default)s)")
    parser.add_argument(
        "--gin", action="append", default=[], metavar="NAME=VALUE", help="another setting"
    )
    flags = parser.parse_args()
    bindings = dict(setting.split("=", 1) for setting in flags.gin)
    gin_files.load([flags.gin_file], {**dict.fromkeys(UNUSED, "None"), **bindings}, [])
    learner = gin.get_configurable(SupervisedLearner)()
    rows, length = (gin.query_parameter(f"%{name}") for name in ("BATCH_SIZE", "LENGTH"))
    devices = topologies.get_topology_desc(flags.slice, platform="tpu").devices
    mesh = make_mesh(model=gin.query_parameter("partitioner.model"), devices=devices)
    config = learner.transformer.config
    print(
        f"{config.parameters:,} parameters, {rows} × {length} tokens in {learner.microbatches} "
        f"microbatches, {flags.slice}: {dict(mesh.shape)}",
        flush=True,
    )
    partitioner = Partitioner(mesh)
    program = Program(learner, RandomInitialisation(learner.transformer, 0), partitioner)
    batch = abstract_batch(partitioner, rows, length)
    begun = time.monotonic()
    report("the training step", begun, program.compile_update(batch))
    begun = time.monotonic()
    report("evaluation", begun, program.compile_evaluate(batch))


if __name__ == "__main__":
    main()

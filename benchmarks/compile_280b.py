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

GIB = 2**30
# What the compiler grants a program of a v3 core's 16 GiB.
USABLE = 15.48
UNUSED = ("MODEL_DIR", "VOCABULARY", "TRAIN_FILES", "ELI5_FILE", "NQ_FILE")


def compile_update(learner: SupervisedLearner, partitioner: Partitioner, rows: int, length: int):
    """The learner's update on a batch of that size, compiled with its state donated."""
    params = learner.transformer.abstract()
    state = jax.eval_shape(learner.init_state, params, jax.random.key(0))
    shardings = partitioner.shardings(learner.state_axes(params), state)

    def place(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def field(dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, length), dtype, sharding=partitioner.batch_sharding)

    names = ("tokens", "targets", "positions", "segments")
    batch = {**{name: field(jnp.int32) for name in names}, "weights": field(jnp.float32)}
    with partitioner.activate():
        step = jax.jit(
            learner.update, donate_argnums=0, out_shardings=(shardings, partitioner.replicated)
        )
        return step.lower(jax.tree.map(place, state, shardings), batch).compile()


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
    begun = time.monotonic()
    compiled = compile_update(learner, Partitioner(mesh), rows, length)
    memory = compiled.memory_analysis()
    peak = memory.peak_memory_in_bytes / GIB
    print(
        f"fits: arguments {memory.argument_size_in_bytes / GIB:.2f} GiB a core, of which "
        f"{memory.alias_size_in_bytes / GIB:.2f} are updated in place; "
        f"peak {peak:.2f} of {USABLE} GiB; compiled in {time.monotonic() - begun:.0f} s"
    )
    if peak > USABLE:
        sys.exit(f"the peak is over {USABLE} GiB")


if __name__ == "__main__":
    main()

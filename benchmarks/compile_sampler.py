"""Does sampling compile for a TPU slice, with all that it can do, and does it stay on the device?

    pip install "jax[tpu]"        # the libtpu that the pinned jax asks for; no TPU is needed
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python benchmarks/compile_sampler.py

The whole program, prefill and the loop over tokens, for a model of the Gopher family laid out over
a slice, compiled ahead of time: freely, tracked for faults, under the quote constraint, with
omissions, with prompts that wait for others' places. Of each: how much of a device's
memory it needs, how many loops it has, what it calls, and what in it would leave the device, of
which there must be nothing, or the command fails. Each takes a minute or so to compile.
"""

import argparse
import collections
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.decoding import fault_tracking
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.families import gopher
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.vocabularies import Vocabulary, load_vocabulary

ROOT = Path(__file__).resolve().parents[1]
BUNDLED = ROOT / "data_pipelines" / "sample_world" / "model" / "vocabulary"
PAGE = Document(
    "p", "Aldanor", "Aldanor was founded in 1285. Its council is led by Ida Haroa. " * 8
)
PROMPTS, LENGTH, ROWS, TOKENS = 4, 512, 16, 64
MIB = 2**20

# Operations that move data between the device and its host, or ask the host for something.
_HOST_OPERATIONS = ("infeed", "outfeed", "send", "send-done", "recv", "recv-done")
_OPERATION = re.compile(rf" ({'|'.join(_HOST_OPERATIONS)})\(")
_CALL = re.compile(r'custom_call_target="([^"]*)"')
_HOST_MEMORY = re.compile(r"\{[^{}]*S\(5\)\}")

Tables = tuple[Any, Any]  # of the constraint, and of the fault tracker


def cases(
    vocabulary: Vocabulary,
) -> dict[str, tuple[SamplingSettings, Callable[[], Tables], int | None]]:
    """How to sample, by which tables, and how many prompts at a time."""

    def held(**settings: int) -> Any:
        constraint = QuoteConstraint(vocabulary, QuoteSettings(**settings))
        return constraint.tables([constraint.graph([PAGE])] * PROMPTS, TOKENS)

    def tracked() -> Any:
        tracker = fault_tracking.FaultTracker(vocabulary)
        return tracker.tables([tracker.graph([PAGE])] * PROMPTS)

    free = SamplingSettings(TOKENS)
    thin = SamplingSettings(TOKENS, free_log_probs=False)
    return {
        "free": (free, lambda: (None, None), None),
        "fault tracking": (free, lambda: (None, tracked()), None),
        "constrained": (thin, lambda: (held(), None), None),
        "constrained, the model's own log-probabilities, fault tracking": (
            free, lambda: (held(), tracked()), None,
        ),
        "constrained, omissions": (thin, lambda: (held(maximum_omissions=2), None), None),
        "constrained, half of the prompts wait": (thin, lambda: (held(), None), PROMPTS // 2),
    }  # fmt: skip


def compiled(
    transformer: Transformer,
    partitioner: Partitioner,
    vocabulary: Vocabulary,
    settings: SamplingSettings,
    tables: Tables,
    slots: int | None,
) -> jax.stages.Compiled:
    """The program for a slice, of shapes alone."""

    def everywhere(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=partitioner.replicated)

    shapes = transformer.abstract()
    params = jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        shapes,
        partitioner.shardings(transformer.logical_axes(), shapes),
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), PROMPTS))
    numbers = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((PROMPTS, LENGTH), (PROMPTS,)))
    plan = Plan(
        transformer, settings, vocabulary.eos_id, vocabulary.pad_id, vocabulary.size, ROWS, ROWS,
        slots=slots,
    )  # fmt: skip
    with partitioner.activate():
        inputs = jax.tree.map(everywhere, (*numbers, keys, *tables))
        return decode.lower(plan, params, *inputs).compile()


def leaves_the_device(text: str) -> collections.Counter[str]:
    """What of a compiled program's text talks to the host, by name."""
    found = collections.Counter(_OPERATION.findall(text))
    found["host memory"] = len(_HOST_MEMORY.findall(text))
    for target in _CALL.findall(text):
        if "callback" in target.lower() or "host" in target.lower():
            found[target] += 1
    return +found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topology", default="v4:2x2x1")
    parser.add_argument("--family", default="44m", help="of Gopher's sizes (default: 44m)")
    parser.add_argument("--model", type=int, default=2, help="tensor-parallel cuts (default: 2)")
    parser.add_argument("--vocabulary", default=BUNDLED, help="default: the sample world's")
    parser.add_argument("--only", help="the cases whose name holds this")
    flags = parser.parse_args()
    devices = topologies.get_topology_desc(flags.topology, "tpu").devices
    partitioner = Partitioner(make_mesh(fsdp=-1, model=flags.model, devices=devices))
    transformer = Transformer(gopher(flags.family, param_dtype="bfloat16"))
    vocabulary = load_vocabulary(flags.vocabulary)
    print(f"| {flags.family}, {flags.topology} | temporaries, peak, MiB | loops | calls | leaves |")
    print("|---|---|---|---|---|")
    failed = False
    for name, (settings, tables, slots) in cases(vocabulary).items():
        if flags.only and flags.only not in name:
            continue
        program = compiled(transformer, partitioner, vocabulary, settings, tables(), slots)
        text, memory = program.as_text(), program.memory_analysis()
        left = leaves_the_device(text)
        failed |= bool(left)
        temporary, peak = memory.temp_size_in_bytes / MIB, memory.peak_memory_in_bytes / MIB
        calls = ", ".join(sorted(set(_CALL.findall(text))))
        print(
            f"| {name} | {temporary:.0f}, {peak:.0f} | {text.count(' while(')} | {calls} "
            f"| {dict(left) or 'nothing'} |",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

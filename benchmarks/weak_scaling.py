"""What a training step costs each chip as the slice grows and the batch with it: by compiled cost.

    pip install 'gophercite[tpu]'   # the TPU's compiler; no TPU is needed
    python benchmarks/weak_scaling.py --output weak_scaling.jsonl
    python benchmarks/weak_scaling.py --chip v4 --size 7.1b --rows 1 --sizes 4x4x4,4x4x8

Supervised fine-tuning of Gopher's 1.4B with the paper's sequences of 4,096 tokens, the same number
of sequences on each chip, on slices of 8 to 256 chips, compiled by the TPU's own compiler.
Parameters are sharded over all chips (`fsdp`), or over 8 of them with copies for the others
(`data`). In the table, FLOPs, memory traffic and what is sent are of one chip; ideally a row's are
those of the first. The time is the planner's estimate from published peaks.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launch")]

GIB = 2**30
SLICES = "2x4,4x4,4x8,8x8,8x16,16x16"
COPIED = 8  # chips that share a copy of the parameters, where there are copies


class Mesh(NamedTuple):
    """How a slice is divided: copies of the parameters, and shards of each."""

    data: int
    fsdp: int


def meshes(devices: int) -> list[Mesh]:
    """Parameters in shards on all devices, and in copies of `COPIED` shards."""
    whole = Mesh(1, devices)
    return [whole] if devices <= COPIED else [whole, Mesh(devices // COPIED, COPIED)]


def plan(chip: str, name: str, size: str, rows: int, mesh: Mesh) -> dict[str, Any]:
    """The plan of a step on a slice, each of whose chips reads `rows` sequences at once."""
    import configuration  # noqa: F401 -- makes the library known to gin
    import gin_files
    import planned_runs

    from gophercite.planning.chips import topology
    from gophercite.planning.plan import plan_step

    slice_ = topology(f"{chip}:{name}")
    bindings = {
        "BATCH_SIZE": str(rows * len(slice_.devices)),
        "SupervisedLearner.microbatches": "1",
        "gopher.size": f"'{size}'",
        "gopher.remat_every": "1",
        "partitioner.data": str(mesh.data),
        "partitioner.fsdp": str(mesh.fsdp),
        "partitioner.model": "1",
    }
    gin_files.load(["gin_configs/sft_gopher_280b.gin"], bindings, [], unset=[])
    step = planned_runs.planned_run(slice_).step
    return {"slice": f"{chip}:{name}", **mesh._asdict()} | plan_step(step, slice_).to_json()


def table(plans: list[dict[str, Any]]) -> list[str]:
    """A row for each plan; in brackets, relative to the first."""
    lines = [
        "| slice | mesh | TFLOPs a chip | traffic, GB | sent, GB | asynchronous | peak, GiB "
        "| step, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    first = next((each for each in plans if each["memory"]), {})
    for each in plans:
        if each["memory"] is None:
            lines.append(f"| {each['slice']} | | {each['problem']} |" + " |" * 5)
            continue
        sent = sum(exchange[2] for exchange in each["exchanges"])
        number = sum(exchange[3] for exchange in each["exchanges"])
        beneath = sum(exchange[4] for exchange in each["exchanges"])
        axes = " × ".join(f"{axis} {each[axis]}" for axis in Mesh._fields if each[axis] > 1)

        def beside(name: str, each: dict[str, Any] = each) -> str:
            return f"({each[name] / first[name]:.2f})"

        lines.append(
            f"| {each['slice']} | {axes} | {each['flops'] / 1e12:.1f} {beside('flops')} "
            f"| {each['traffic'] / 1e9:.0f} {beside('traffic')} | {sent / 1e9:.2f} "
            f"| {beneath} of {number} | {each['memory']['peak'] / GIB:.2f} "
            f"| {each['seconds']['step']:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chip", default="v5e", help="generation of TPUs (default: %(default)s)")
    parser.add_argument("--size", default="1.4b", help="Gopher's size (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=1, help="sequences a chip (default: 1)")
    parser.add_argument("--sizes", default=SLICES, help="slices (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="plans as JSON lines")
    flags = parser.parse_args()

    from gophercite.planning.chips import TopologyError, topology

    plans: list[dict[str, Any]] = []
    for name in flags.sizes.split(","):
        try:
            devices = len(topology(f"{flags.chip}:{name}").devices)
        except TopologyError as error:
            sys.exit(f"weak_scaling: {error}")
        for mesh in meshes(devices):
            plans.append(plan(flags.chip, name, flags.size, flags.rows, mesh))
            print(f"{flags.chip}:{name} {mesh}: planned", file=sys.stderr, flush=True)
            if flags.output:
                lines = "".join(json.dumps(each) + "\n" for each in plans)
                flags.output.write_text(lines, encoding="utf-8")
    print("\n".join(table(plans)))


if __name__ == "__main__":
    main()

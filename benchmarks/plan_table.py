"""The smallest TPU slice on which each kind of run fits: the table of docs/plans.md.

    pip install 'gophercite[tpu]'   # the TPU's compiler; no TPU is needed
    python benchmarks/plan_table.py --results plans.jsonl
    python benchmarks/plan_table.py --results plans.jsonl --only SFT,7b   # some of them
    python benchmarks/plan_table.py --results plans.jsonl --show          # only the table

Supervised fine-tuning, reward models, actor-critic and sampling of Gopher's 1.4B, 7.1B and 280B on
v3, v4, v5e, v5p and v6e, with the paper's batches. For each, slices are tried from small to large:
those that can't hold the parameters are passed over, the others are compiled for by the TPU's own
compiler, with little tensor parallelism and then with more, until one fits. --results keeps a JSON
line for each slice that was compiled, and nothing found there is compiled again, so the command can
be stopped and started again. Compiling takes half a minute for training, and minutes for whatever
samples.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # plans are made side by side
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "launch")]

GIB = 2**30
PLANE = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
TORUS = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")
SLICES = {
    "v3": ("2x2", "4x4", "8x8", "16x16"),
    "v4": TORUS,
    "v5e": PLANE,
    "v5p": TORUS,
    "v6e": PLANE,
}
SIZES = {"1.4b": "gopher_1_4b", "7.1b": "gopher_7_1b", "280b": "gopher_280b"}
# A program needs some room besides its inputs: slices with less are not worth compiling for.
ROOM = 0.9


class Kind(NamedTuple):
    """A kind of run.

    Attributes:
      gin_file: its settings, for the size that the paper has; None for sampling.
      rows: sequences per step, which the data axes of the mesh have to divide.
      learner: the configurable that has `microbatches`.
    """

    gin_file: str | None
    rows: int
    learner: str


KINDS = {
    "SFT": Kind("sft_gopher_280b.gin", 128, "SupervisedLearner"),
    "RM": Kind("rm_gopher_7b.gin", 256, "RewardLearner"),
    "A2C": Kind("a2c_gopher_280b.gin", 64, "A2CLearner"),
    "sampling": Kind(None, 8, ""),
}
PROMPTS, SAMPLES, LENGTH, TOKENS = 8, 16, 3840, 256  # of sampling


class Cell(NamedTuple):
    """What is planned: a kind of run, a model's size, a generation of TPUs."""

    kind: str
    size: str
    chip: str


def plan(cell: Cell, slice_name: str, model: int) -> dict[str, Any]:
    """Plans a cell on a slice with `model`-way tensor parallelism; compiles nothing too large."""
    import configuration  # noqa: F401 -- makes the library known to gin
    import gin_files
    import planned_runs

    from gophercite.planning.chips import topology
    from gophercite.planning.plan import plan_step

    kind = KINDS[cell.kind]
    slice_ = topology(f"{cell.chip}:{slice_name}")
    shards = len(slice_.devices) // model
    bindings = {"partitioner.model": str(model), "gopher.size": f"'{cell.size}'"}
    judge = sampling = None
    if kind.gin_file is None:
        sampling = planned_runs.Sampling(PROMPTS, SAMPLES, LENGTH, TOKENS)
        files = [f"gin_configs/models/{SIZES[cell.size]}.gin"]
        bindings["gopher.param_dtype"] = "'bfloat16'"
    else:
        files = [f"gin_configs/{kind.gin_file}"]
        # Each device reads one sequence of a microbatch, or two where the paper does.
        pieces = str(max(1, kind.rows // shards // (2 if cell.size == "280b" else 1)))
        bindings[f"{kind.learner}.microbatches"] = pieces
        if cell.kind == "A2C":
            bindings["A2CLearner.rollout_pieces"] = str(max(1, kind.rows // shards))
            small = "1_4b" if cell.size == "1.4b" else "7b"
            judge = planned_runs.model_of(f"gin_configs/rm_gopher_{small}.gin")
    gin_files.load(files, bindings, [], unset=[])
    run = planned_runs.planned_run(slice_, judge, sampling)
    step = run.step
    held = step.parameters + step.optimizer + step.other + step.batch
    found: dict[str, Any] = {
        **cell._asdict(), "slice": slice_name, "model": model, "parameters": run.parameters,
    }  # fmt: skip
    if held > ROOM * slice_.chip.memory:
        return found | {"fits": False, "compiled": False, "held": held}
    return found | {"compiled": True, "settings": bindings} | plan_step(step, slice_).to_json()


def tries(cell: Cell) -> Iterator[tuple[str, int]]:
    """Slices from small to large, each with little and with more tensor parallelism."""
    rows = KINDS[cell.kind].rows
    heads = {"1.4b": 16, "7.1b": 32, "280b": 128}[cell.size]
    for name in SLICES[cell.chip]:
        devices = 2 if cell.chip == "v3" else 1
        for size in name.split("x"):
            devices *= int(size)
        least = max(1, devices // rows, devices // 8 if cell.kind == "sampling" else devices // 32)
        for model in sorted({least, min(8 * least, devices)}):
            if model <= heads:
                yield name, model


def find(cell: Cell, kept: Mapping[tuple[Any, ...], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Plans a cell until a slice fits; yields each new plan."""
    from gophercite.planning.chips import TopologyError

    for name, model in tries(cell):
        found = kept.get((*cell, name, model))
        if found is None:
            begun = time.monotonic()
            try:
                found = plan(cell, name, model)
            except TopologyError as error:
                sys.exit(f"plan_table: {error}")
            except ValueError as error:  # can't be divided in this way
                found = {**cell._asdict(), "slice": name, "model": model, "fits": False}
                found |= {"compiled": False, "refused": str(error)}
            found["took"] = round(time.monotonic() - begun, 1)
            yield found
        if found["fits"]:
            return


def read(path: pathlib.Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Plans by cell, slice and tensor parallelism."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    plans = [json.loads(line) for line in lines]
    names = (*Cell._fields, "slice", "model")
    return {tuple(each[name] for name in names): each for each in plans}


def table(kept: Mapping[tuple[Any, ...], dict[str, Any]]) -> Iterator[str]:
    """The lines of the table: the smallest slice of each cell that fits."""
    yield (
        "| | | chips | mesh | parameters | optimiser | temporaries | peak, GiB | FLOP ratio "
        "| sent, GB | step, s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for kind in KINDS:
        for size in SIZES:
            for chip in SLICES:
                plans = [
                    kept.get((kind, size, chip, *each)) for each in tries(Cell(kind, size, chip))
                ]
                best = next((each for each in plans if each and each["fits"]), None)
                name = f"| {kind} {size} "
                if best is None:
                    done = all(plans)
                    yield (
                        name
                        + f"| {chip} | {'none fits' if done else 'not planned yet'} |"
                        + " |" * 8
                    )
                else:
                    yield name + row(best)


def row(best: Mapping[str, Any]) -> str:
    """A plan's cells."""
    memory, mesh = best["memory"], best["mesh"]
    axes = " × ".join(f"{axis} {size}" for axis, size in mesh.items() if size > 1)
    chips = best["devices"] // (2 if best["chip"] == "v3" else 1)
    parts = (f"{memory[part] / GIB:.2f}" for part in ("parameters", "optimizer", "temporaries"))
    sent = sum(each[2] for each in best["exchanges"]) / 1e9
    return (
        f"| {best['topology']} | {chips} | {axes} | {' | '.join(parts)} "
        f"| {memory['peak'] / GIB:.2f} of {memory['usable'] / GIB:.2f} "
        f"| {best['flops'] / best['needed_flops']:.2f} | {sent:.1f} "
        f"| {best['seconds']['step']:.3g} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--only", default="", help="cells with all of these in them: SFT,7.1b,v5e")
    parser.add_argument("--show", action="store_true", help="compile nothing, print the table")
    flags = parser.parse_args()
    cells = [Cell(kind, size, chip) for size in SIZES for kind in KINDS for chip in SLICES]
    for cell in cells:
        wanted = [part for part in flags.only.split(",") if part]
        if flags.show or not all(part in cell for part in wanted):
            continue
        for found in find(cell, read(flags.results)):
            with flags.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            said = (
                "fits"
                if found["fits"]
                else found.get("problem") or found.get("refused") or "too small"
            )
            print(
                f"{' '.join(cell)}:{found['slice']}, model {found['model']}: {said} "
                f"({found['took']} s)",
                file=sys.stderr,
                flush=True,
            )
    print("\n".join(table(read(flags.results))))


if __name__ == "__main__":
    main()

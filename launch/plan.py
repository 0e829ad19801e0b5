"""Plans a run for devices that you don't have: does it fit, what does it cost, how long is a step.

examples:
  # the paper's fine-tuning on 128 TPU v3 cores
  python launch/plan.py --gin_file=gin_configs/sft_gopher_280b.gin --topology=v3:8x8

  # on other slices, and as JSON
  python launch/plan.py --gin_file=gin_configs/sft_imported.gin \\
    --gin.INITIAL_CHECKPOINT=models/qwen3 --topology=v5e:4x4 --topology=v6e:2x4 --output=plans.jsonl

  # which sharding, how many microbatches, and which layers to recompute
  python launch/plan.py --gin_file=gin_configs/sft_gopher_280b.gin --topology=v5p:4x4x4 --search
  python launch/plan.py … --try=partitioner.model=8,16,32 --try=SupervisedLearner.microbatches=8,16

  # the paper's reinforcement learning, against a reward model of 7.1 billion parameters
  python launch/plan.py --gin_file=gin_configs/a2c_gopher_280b.gin --topology=v3:8x8 \\
    --reward_model=gin_configs/rm_gopher_7b.gin

  # sampling: 64 answers to each of 4 prompts
  python launch/plan.py --gin_file=gin_configs/models/gopher_7_1b.gin --topology=v5e:2x4 \\
    --gin.partitioner.model=8 --sampling --prompts=4 --samples=64

The run's real step is compiled ahead of time: for TPUs by the TPU's own compiler (which needs
`pip install 'gophercite[tpu]'` and no TPU), for `cpu-256` and `gpu-64` by this machine's
CPU compiler for that number of devices. Neither data nor models are needed here.
Times are estimates from published peaks; memory is what the compiler reports.

Exit status: 0 some plan fits; 1 refused, with one line that says why; 2 wrong usage; 3 none fits.
"""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gin_files
import keras_alone
from plan_search import GIB, KINDS, NONE_FITS, REMAT, SIZES, say_unset, several

from data_pipelines.disk_paths import path_on_disk
from gophercite import importing
from gophercite.storage.json_fields import in_one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, bindings = _parse(arguments)
    try:
        plans = several(flags, bindings) if _is_several(flags) else [_one(flags, bindings)]
        if flags.output:
            lines = "".join(json.dumps(plan) + "\n" for plan in plans)
            pathlib.Path(flags.output).write_text(lines, "utf-8")
    except (gin_files.ConfigurationError, ValueError, OSError) as error:
        print(f"plan: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0 if any(plan["fits"] for plan in plans) else NONE_FITS


# --- One plan ---


def _one(flags: argparse.Namespace, bindings: Mapping[str, str]) -> dict[str, Any]:
    """Computes a plan in this process, and prints it.

    Raises:
      ConfigurationError: a file, flag or value is wrong.
      ValueError: the slice is unknown, or can't be divided in this way.
    """
    (name,) = flags.topology
    _set_up_jax(name)
    from gophercite.planning.chips import topology

    slice_ = topology(name)  # before the library is imported, which takes seconds
    with importing.libraries(), keras_alone.keras_alone():
        import configuration  # noqa: F401 -- makes the library known to gin
        import planned_runs
    importing.look_for_garbage_rarely()

    from gophercite.planning.plan import plan_step

    judge = planned_runs.model_of(flags.reward_model) if flags.reward_model else None
    sampling = None
    if flags.sampling:
        sampling = planned_runs.Sampling(
            flags.prompts, flags.samples, flags.prompt_tokens, flags.max_tokens,
            not flags.unconstrained, flags.track_faults, flags.slots,
        )  # fmt: skip
    unset: list[str] = []
    files = gin_files.load(flags.gin_file, bindings, flags.gin_search_paths, unset=unset)
    say_unset(unset)
    with gin_files.one_line(files, bindings):
        if flags.remat_every is not None:
            planned_runs.set_remat(flags.remat_every)
        run = planned_runs.planned_run(slice_, judge, sampling)
    plan = plan_step(run.step, slice_)
    settings = dict(bindings)
    if flags.remat_every is not None:
        settings[REMAT] = str(flags.remat_every)
    found = {"parameters": run.parameters, "settings": settings, **plan.to_json()}
    if flags.json:
        print(json.dumps(found))
    else:
        _show(found, slice_.chip.source)
    return found


def _set_up_jax(name: str) -> None:
    """Tells JAX which devices to use, before it is imported."""
    kind, _, size = name.partition("-")
    if kind in ("cpu", "gpu") and size.isdecimal():
        flag = f"--xla_force_host_platform_device_count={size}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    # Several plans are compiled side by side, perhaps beside a run on this machine's own TPU.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _show(plan: Mapping[str, Any], source: str) -> None:
    mesh = " × ".join(f"{axis} {size}" for axis, size in plan["mesh"].items() if size > 1)
    print(f"{plan['parameters']:,} parameters on {plan['topology']}: {plan['devices']} devices")
    print(f"mesh: {mesh or 'one device'}; compiled in {plan['compile_seconds']:.0f} s\n")
    memory = plan["memory"]
    if memory is None:
        print(f"DOES NOT FIT: {plan['problem']}")
        return
    left = (memory["usable"] - memory["peak"]) / GIB
    print(f"{'fits' if plan['fits'] else 'DOES NOT FIT'}: {left:+.2f} GiB left on each device\n")
    print("Memory per device, GiB")
    for label, field in (
        ("parameters", "parameters"),
        ("optimiser", "optimizer"),
        ("averages and other state", "other"),
        ("batch", "batch"),
        ("temporaries (activations, gradients)", "temporaries"),
        ("peak, inputs included", "peak"),
    ):
        print(f"  {label:<40}{memory[field] / GIB:>10.3f}")
    print("\nOne step, per device")
    print(f"  {'matrix product FLOPs':<40}{plan['flops']:>10.3g}")
    if plan["needed_flops"]:
        ratio = plan["flops"] / plan["needed_flops"]
        print(f"  {'relative to the necessary FLOPs':<40}{ratio:>10.3f} ×")
    print(f"  {'memory traffic in bytes, at most':<40}{plan['traffic']:>10.3g}")
    if plan["kernel_calls"]:
        print(f"  {'calls of kernels, whose FLOPs are not counted':<40}{plan['kernel_calls']:>10}")
    if plan["unknown_loops"]:
        print(f"  {'loops whose length depends on the data':<40}{plan['unknown_loops']:>10}")
    if plan["host_operations"]:
        print(f"  {'operations that go to the host':<40}{plan['host_operations']:>10}")
    for kind, axes, sent, count, hidden in plan["exchanges"]:
        along = " and ".join(axes) or "no axis"
        print(
            f"  {f'{kind} along {along}':<40}{sent:>10.3g} bytes in {count} operations, {hidden} "
            "of them asynchronous"
        )
    seconds = plan["seconds"]
    print(f"\nAn ESTIMATE from published peaks ({source}): {seconds['step']:.3g} s a step")
    print(
        f"  matrix products {seconds['compute']:.3g} s, memory {seconds['memory']:.3g} s, "
        f"exchanges {seconds['exchanges']:.3g} s ({seconds['hidden']:.3g} s of them can overlap "
        "with computation)"
    )
    if plan["mfu"] is not None:
        print(f"  model FLOPs utilisation at that time: {100 * plan['mfu']:.0f} %")


# --- Flags ---


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, dict[str, str]]:
    parser = argparse.ArgumentParser(
        prog="plan.py",
        description=__doc__,
        usage="plan.py --gin_file=FILE --topology=SLICE [--gin.NAME=VALUE …] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    gin_files.add_flags(parser)
    add = parser.add_argument
    add(
        "--topology",
        action="append",
        required=True,
        metavar="SLICE",
        help="such as v3:8x8, v4:2x2x4, v5e:16x16, v5p:4x4x8, v6e:4x8, cpu-256, gpu-64; may be "
        "repeated",
    )
    add(
        "--reward_model",
        metavar="FILE",
        help="a gin file with the reward model's architecture, for reinforcement learning whose "
        "REWARD_MODEL is not a folder on this machine (default: the policy's architecture)",
    )
    add(
        "--sampling",
        action="store_true",
        help="plan sampling with the model of the gin file instead of training, under the quote "
        "constraint",
    )
    for name, size in SIZES.items():
        add(f"--{name}", type=int, default=size, help=f"for --sampling (default: {size})")
    for name, meaning in KINDS.items():
        add(f"--{name}", action="store_true", help=f"for --sampling: {meaning}")
    add(
        "--slots",
        type=int,
        help="for --sampling: sample so many prompts at a time, while the others wait for a place "
        "(default: all); the memory is right, the estimated time too short",
    )
    add(
        "--try",
        dest="tried",
        action="append",
        default=[],
        type=_values,
        metavar="NAME=A,B,…",
        help="make a plan for each value of this setting in gin, or of remat_every; repeated, for "
        "each combination of values",
    )
    add(
        "--search",
        action="store_true",
        help="try degrees of tensor parallelism, recomputed layers and the learner's microbatches",
    )
    add(
        f"--{REMAT}",
        type=int,
        metavar="N",
        help="keep the activations of every Nth layer only, and recompute the others'; 0 keeps all "
        "(default: as in the gin files)",
    )
    add(
        "--most_cuts",
        type=int,
        default=64,
        help="highest degree of tensor parallelism in a search (default: 64)",
    )
    add(
        "--processes",
        type=int,
        default=os.cpu_count(),
        help="plans made at the same time (default: the number of cores)",
    )
    add(
        "--cache",
        type=path_on_disk,
        metavar="FOLDER",
        default=pathlib.Path.home() / ".cache" / "gophercite" / "plans",
        help="where the plans of a search are cached (default: %(default)s)",
    )
    add("--output", metavar="FILE", help="write the plans as JSON lines")
    add("--json", action="store_true", help="print the plan as one line of JSON")
    flags, rest = parser.parse_known_args(arguments)
    _check(parser, flags)
    return flags, gin_files.read_bindings(parser, rest)


def _check(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> None:
    """Refuses flags that can't be, or that mean nothing beside the others, as wrong usage."""
    least = dict.fromkeys([*SIZES, "slots", "most_cuts", "processes"], 1) | {REMAT: 0}
    for name, lowest in least.items():
        value = getattr(flags, name)
        if value is not None and value < lowest:
            parser.error(f"--{name} is {value}: must be at least {lowest}")
    if not flags.sampling:
        given = [name for name, size in SIZES.items() if getattr(flags, name) != size]
        given += [name for name in KINDS if getattr(flags, name)]
        given += [] if flags.slots is None else ["slots"]
        if given:
            parser.error(f"--{given[0]} is for --sampling, which is not given")
    names = [name for name, _ in flags.tried]
    for name in names:
        if names.count(name) > 1:
            parser.error(f"--try={name} is given twice: list its values in one, {name}=A,B")
    if flags.output and pathlib.Path(flags.output).is_dir():
        parser.error(f"--output is {flags.output!r}: this is a folder")
    if flags.output and not pathlib.Path(flags.output).absolute().parent.is_dir():
        parser.error(f"--output is {flags.output!r}: its folder is not there")
    if flags.json and _is_several(flags):
        parser.error("--json prints a single plan: --output FILE writes several as JSON lines")


def _is_several(flags: argparse.Namespace) -> bool:
    """Whether the flags ask for more than one plan."""
    return bool(flags.tried or flags.search or len(flags.topology) > 1)


def _values(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME=A,B,…")
    return name, values.split(",")


if __name__ == "__main__":
    sys.exit(main())

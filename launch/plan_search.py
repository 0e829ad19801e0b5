"""Several plans, each made in a process of its own, cached, and compared in a table."""

import argparse
import concurrent.futures
import itertools
import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gin
import gin_files
import plan_cache
import setting_names

from gophercite.storage import write_whole
from gophercite.storage.json_fields import in_one_line

GIB = 2**30
NONE_FITS = 3
REMAT = "remat_every"  # a flag of this command, as its name in gin depends on the architecture's
_FIELDS = frozenset({"settings", "topology", "mesh", "fits", "memory", "seconds"})  # in a table
# What --sampling plans.
SIZES = {"prompts": 8, "samples": 16, "prompt_tokens": 3840, "max_tokens": 256}
KINDS = {
    "unconstrained": "without the quote constraint",
    "track_faults": "track faults while sampling",
}


def several(flags: argparse.Namespace, bindings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Computes plans in separate processes, and prints a table, with the fastest that fits first.

    Raises:
      ConfigurationError: a search's gin files or flags are wrong.
      ValueError: no plan could be computed.
    """
    learner = learner_of(flags, bindings)
    shared = dict(bindings)
    if flags.remat_every is not None:
        shared[REMAT] = str(flags.remat_every)
    of_slices = {name: tried_of(flags, name, learner) for name in flags.topology}
    jobs = [
        (name, shared | dict(zip(tried, values, strict=True)))
        for name, tried in of_slices.items()
        for values in itertools.product(*tried.values())
    ]
    differ = {key for tried in of_slices.values() for key in tried}
    plans, problems = [], []
    commands = [_command(flags, *job) for job in jobs]
    kept = _kept(flags, commands, [settings for _, settings in jobs])
    with concurrent.futures.ThreadPoolExecutor(flags.processes) as pool:
        outcomes = pool.map(_in_process, commands, kept)
        for number, ((name, settings), plan) in enumerate(
            zip(jobs, outcomes, strict=True), start=1
        ):
            said = ", ".join(f"{key}={value}" for key, value in settings.items() if key in differ)
            if isinstance(plan, str):
                problems.append(plan)
                print(f"[{number}/{len(jobs)}] {name} {said}: {plan}", file=sys.stderr, flush=True)
                continue
            plans.append(plan)
            print(f"[{number}/{len(jobs)}] {name} {said}", file=sys.stderr, flush=True)
    if not plans:
        raise ValueError(problems[0].removeprefix("plan: "))
    plans.sort(key=lambda plan: (not plan["fits"], plan["seconds"].get("step", 0.0)))
    print(
        "| slice | settings | mesh | fits | peak, GiB | FLOP ratio | sent, GB | step, s | MFU % |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for plan in plans:
        print(_row(plan, differ))
    return plans


def learner_of(flags: argparse.Namespace, bindings: Mapping[str, str]) -> str | None:
    """What the gin files train with; None if they train nothing. Says what they leave unset."""
    unset: list[str] = []
    set_by_plans = {name: values[0] for name, values in flags.tried if name != REMAT}
    with setting_names.names_only():
        gin_files.load(
            flags.gin_file, {**bindings, **set_by_plans}, flags.gin_search_paths, unset=unset
        )
        say_unset(unset)
        if flags.sampling:
            return None
        made_by = gin.config._CONFIG.get(("", "gophercite.Run"), {}).get("learner")
    return made_by.selector.rpartition(".")[2] if made_by is not None else None


def tried_of(flags: argparse.Namespace, name: str, learner: str | None) -> dict[str, list[str]]:
    """The values to try for each setting; `learner` is what a search varies."""
    tried = dict(flags.tried)
    if flags.search:
        sizes = name.partition(":")[2] or name.partition("-")[2]
        devices = 1
        for size in sizes.split("x"):
            devices *= int(size) if size.isdecimal() else 1
        devices *= 2 if name.startswith("v3") else 1  # cores per chip
        powers = [str(2**power) for power in range(devices.bit_length()) if devices % 2**power == 0]
        tried.setdefault("partitioner.model", powers[: flags.most_cuts.bit_length()])
        if learner is not None:
            tried.setdefault(f"{learner}.microbatches", ["1", "4", "16"])
        tried.setdefault(REMAT, ["0", "1", "4"])
    return tried


def _command(flags: argparse.Namespace, name: str, settings: Mapping[str, str]) -> list[str]:
    """The arguments of the process that computes a plan."""
    command = ["--json", f"--topology={name}"]
    command += [f"--gin_file={file}" for file in flags.gin_file]
    if flags.gin_search_paths:
        command.append(f"--gin_search_paths={','.join(flags.gin_search_paths)}")
    command += [
        f"--{key}={value}" if key == REMAT else f"--gin.{key}={value}"
        for key, value in settings.items()
    ]
    if flags.reward_model:
        command.append(f"--reward_model={flags.reward_model}")
    if flags.sampling:
        command += ["--sampling", *(f"--{name}={getattr(flags, name)}" for name in SIZES)]
        command += [f"--{name}" for name in KINDS if getattr(flags, name)]
        command += [] if flags.slots is None else [f"--slots={flags.slots}"]
    return command


def _kept(
    flags: argparse.Namespace,
    commands: Sequence[Sequence[str]],
    settings: Sequence[Mapping[str, str]],
) -> list[pathlib.Path | None]:
    """The file of the cache for each command's plan; None for a plan that can't be cached."""
    bindings = [
        {name: value for name, value in of_command.items() if name != REMAT}
        for of_command in settings
    ]
    names = plan_cache.names(
        commands, flags.gin_file, bindings, flags.gin_search_paths, flags.reward_model
    )
    return [None if name is None else flags.cache / f"{name}.json" for name in names]


def _in_process(command: Sequence[str], cached: pathlib.Path | None) -> dict[str, Any] | str:
    """A plan from the cache, or from a process that computes it; or why there is none."""
    if cached is not None and (found := _cached(cached)):
        return found
    program = [sys.executable, str(pathlib.Path(__file__).with_name("plan.py"))]
    process = subprocess.run([*program, *command], capture_output=True, text=True, check=False)
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return f"plan: its process was ended by {name}; perhaps memory ran out (--processes)"
    if process.returncode not in (0, NONE_FITS):
        lines = process.stderr.strip().splitlines()
        return lines[-1] if lines else f"plan: ended with status {process.returncode}"
    plan: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    if cached is not None:
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            with write_whole(cached) as unfinished:
                unfinished.write_text(json.dumps(plan), "utf-8")
        except OSError as error:
            print(f"plan: can't be cached: {in_one_line(error)}", file=sys.stderr)
    return plan


def _cached(path: pathlib.Path) -> dict[str, Any] | None:
    """A plan of the cache; None if it isn't there, or is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.keys() >= _FIELDS else None


def _row(plan: Mapping[str, Any], differ: Collection[str]) -> str:
    """A plan's row, with the settings in which the plans differ."""
    settings = ", ".join(
        f"{name.rpartition('.')[2]} {value}"
        for name, value in plan["settings"].items()
        if name in differ
    )
    mesh = " × ".join(f"{axis} {size}" for axis, size in plan["mesh"].items() if size > 1)
    memory, seconds = plan["memory"], plan["seconds"]
    if memory is None:
        return f"| {plan['topology']} | {settings} | {mesh} | no: {plan['problem']} | | | | | |"
    ratio = f"{plan['flops'] / plan['needed_flops']:.2f}" if plan["needed_flops"] else "–"
    sent = sum(row[2] for row in plan["exchanges"]) / 1e9
    mfu = "–" if plan["mfu"] is None else f"{100 * plan['mfu']:.0f}"
    return (
        f"| {plan['topology']} | {settings} | {mesh} | {'yes' if plan['fits'] else 'no'} "
        f"| {memory['peak'] / GIB:.2f} of {memory['usable'] / GIB:.2f} | {ratio} | {sent:.2f} "
        f"| {seconds['step']:.3g} | {mfu} |"
    )


def say_unset(macros: Sequence[str]) -> None:
    """Names macros that the gin files leave to their users."""
    if macros:
        print(f"plan: not set, and taken as None: {', '.join(macros)}", file=sys.stderr)

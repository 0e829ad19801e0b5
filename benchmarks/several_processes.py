"""Trains and answers with one, two and four processes, and compares the results.

    python benchmarks/several_processes.py
    python benchmarks/several_processes.py --kinds a2c --steps 4 --processes 1,2

There are always four CPU devices, divided among the processes, which find each other on loopback.
Supervised training, a reward model and reinforcement learning run by `launch/train.py` with a tiny
model and seqio's input of the sample world; PPO with environments of a small sample web, shared by
the processes; `launch/eval.py` answers questions with the bundled model. Prints a table: what each
number of processes gives beside one process. A parameter's difference is divided by the largest
change that any parameter has made since the start, a metric's by its value. Exit status 1:
something differs by more than rounding.
"""

import argparse
import dataclasses
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.kills import A2C, ROOT, TINY, Command, command_of, lines, make_models
from gophercite.model_folders.folder import load_model, load_reward_model

DEVICES = 4
KINDS = ("sft", "rm", "a2c", "ppo", "answers")
CLOSE = 1e-2  # sums over devices are added in another order, and Adam divides by small numbers
MODEL = ROOT / "data_pipelines" / "sample_world" / "model"
FILES = {"sft": "sft_sample_world.gin", "rm": "rm_sample_world.gin", "a2c": "a2c_sample_world.gin"}
ALONE = {
    "Run.evaluations": "{}",
    "train.early_stopping": "None",
    "train.best_metric": "None",
    "train.profile_step": "None",
}

# With the usual epsilon, Adam's step is the sign of what is nearly zero, which rounding decides.
LARGE_EPSILON = {"adam.eps": "1e-3"}


def run_of(kind: str, steps: int, scratch: pathlib.Path) -> Command:
    """The training run of a kind, from the models in a folder."""
    lasts = {"TRAIN_STEPS": str(steps), "train.save_every": str(steps)}
    if kind == "ppo":
        command = command_of("ppo", scratch)
        settings = {**command.settings, **ALONE, **lasts, **LARGE_EPSILON}
        settings.pop("EarlyStopping.patience")
        return dataclasses.replace(command, settings=settings)
    of_kind = {} if kind == "sft" else A2C | {"REWARD_MODEL": str(scratch / "judge")}
    if kind == "rm":
        of_kind = {"RewardLearner.microbatches": "1"}
    settings = TINY | of_kind | ALONE
    settings |= {"INITIAL_CHECKPOINT": str(scratch / "policy")}
    settings |= lasts
    for name in ("EarlyStopping.limits", "EarlyStopping.patience"):
        settings.pop(name, None)
    return Command(FILES[kind], settings, scratch / "cache")


def train(command: Command, folder: pathlib.Path, count: int) -> float:
    """Trains with some processes; returns the seconds.

    Raises:
      RuntimeError: one of them failed.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    together = [f"--coordinator_address=localhost:{port}", f"--num_processes={count}"]
    variables = {"JAX_NUM_CPU_DEVICES": str(DEVICES // count)}
    begun = time.monotonic()
    running = [
        command.start(
            folder,
            more=[*together, f"--process_id={number}"] if count > 1 else [],
            variables=variables,
        )
        for number in range(count)
    ]
    failed = [each for each in running if each.wait() != 0]
    if failed:
        raise RuntimeError("a process failed:\n" + "".join(failed[0].lines[-20:]))
    return time.monotonic() - begun


def parameters(kind: str, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The parameters of a model folder or of a run's last step, by their paths."""
    load = load_reward_model if kind == "rm" and folder.name != "policy" else load_model
    leaves, _ = jax.tree_util.tree_flatten_with_path(load(folder).params)
    return {jax.tree_util.keystr(path): np.asarray(leaf, np.float64) for path, leaf in leaves}


def compare(
    kind: str, start: pathlib.Path, one: pathlib.Path, several: pathlib.Path
) -> tuple[str, bool]:
    """What is different between two runs from the same start; and whether that is rounding."""
    first, expected, found = (parameters(kind, each) for each in (start, one, several))
    metrics, others = lines(one), lines(several)
    if found.keys() != expected.keys() or len(metrics) != len(others):
        return "other parameters, or another number of metrics", False
    if all(np.array_equal(found[name], expected[name]) for name in expected):
        worst = 0.0
    else:
        moved = max(np.abs(expected[name] - first[name]).max() for name in expected.keys() & first)
        worst = max(np.abs(found[name] - expected[name]).max() for name in expected) / moved
    pairs = [
        (other[name], value)
        for line, other in zip(metrics, others, strict=True)
        for name, value in line.items()
        if isinstance(value, float)
    ]
    farthest = max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)
    said = f"parameters {worst:.0e} of the largest change" if worst else "parameters bit-equal"
    return f"{said}, metrics within {farthest:.0e}", max(worst, farthest) < CLOSE


def answer(scratch: pathlib.Path, count: int, questions: int) -> float:
    """Lets some processes share questions; returns the seconds.

    Raises:
      RuntimeError: one of them failed.
    """
    command = [
        sys.executable, "launch/eval.py", "--model", str(MODEL), "--limit", str(questions),
        "--questions", str(scratch / "world" / "questions_test.jsonl"), "--constrained",
        "--temperature", "1", "--batch-size", "8", "--max-tokens", "64",
        "--output", str(scratch / f"answers_{count}"),
    ]  # fmt: skip
    places = [[f"--num_processes={count}", f"--process_id={number}"] for number in range(count)]
    begun = time.monotonic()
    # The last call finds all questions answered, and writes the report.
    for flags in (places, [[]]) if count > 1 else ([[]],):
        running = [
            subprocess.Popen(
                [*command, *each], cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for each in flags
        ]  # fmt: skip
        said = [each.communicate()[1] for each in running]
        failed = [text for each, text in zip(running, said, strict=True) if each.returncode]
        if failed:
            raise RuntimeError(f"a process failed:\n{failed[0][-2000:]}")
    return time.monotonic() - begun


def main() -> int:
    """Prints the table; 1 if something differs by more than rounding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)} (default: all)")
    add("--processes", default="1,2,4", help="numbers of processes, 1 first (default: 1,2,4)")
    add("--steps", type=int, default=10, help="of each training (default: 10)")
    add("--questions", type=int, default=64, help="that are answered (default: 64)")
    flags = parser.parse_args()
    counts = [int(count) for count in flags.processes.split(",")]
    print("| kind | processes × devices | seconds | beside one process |\n|---|---|---:|---|")
    good = True
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        make_models(scratch)
        subprocess.run(
            [sys.executable, "-m", "data_pipelines.sample_world", "--out", str(scratch / "world"),
             "--questions", str(flags.questions)],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for kind in flags.kinds.split(","):
            run = None if kind == "answers" else run_of(kind, flags.steps, scratch)
            for count in counts:
                if run is None:
                    took = answer(scratch, count, flags.questions)
                    one, this = (scratch / f"answers_{each}.jsonl" for each in (1, count))
                    same = this.read_bytes() == one.read_bytes()
                    said = f"{flags.questions} answers {'byte-equal' if same else 'DIFFER'}"
                else:
                    folder = scratch / f"{kind}_{count}"
                    took = train(run, folder, count)
                    said, same = compare(kind, scratch / "policy", scratch / f"{kind}_1", folder)
                good &= same
                devices = "one each" if kind == "answers" else str(DEVICES // count)
                what = "–" if count == 1 else said
                print(f"| {kind} | {count} × {devices} | {took:.0f} | {what} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

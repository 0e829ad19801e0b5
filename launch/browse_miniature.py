"""Learning to browse in miniature, on a sample web: launch/browse_miniature.sh sets it up.

The bundled language model imitates scripted demonstrations. Its answers to other questions, and
those of scripts that often quote the wrong sentence, are compared by what is true. Two reward
models learn from these comparisons, on different questions, and the policy learns from the rewards
of the first one. Both policies then answer questions about a web whose names no training saw.
MODEL_DIR gets

  web/, sets/            the web, its demonstrations, and questions for comparisons and for PPO
  completions/, bc/      the data of behaviour cloning, and its model
  rated/, comparisons/   answers of that model and of careless scripts, and comparisons of them
  rm/, rm_validation/    the reward models
  ppo/                   the policy after reinforcement learning
  answers/bc/, …/ppo/    episodes of both, scored
  scaling/               with --scaling: models from parts of the data, in two sizes
  report.md, .html       how good they are, and the best of n

A finished stage is skipped and an interrupted one resumes: start the same command again.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; otherwise that
of the stage that failed, 75 if it was asked to stop and saved.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from browse_plan import Plan
from browse_scaling import report_flags, scaling_stages
from refusals import local_folder
from stages import StageError, hold_folder, run_python, run_stages

from gophercite.storage.json_fields import in_one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    plan = Plan(flags.model_dir, flags.seed, flags.questions, flags.episodes, flags.scale)
    stages = plan.stages() + (scaling_stages(plan) if flags.scaling else [])
    report = plan.report_command() + (report_flags(plan) if flags.scaling else [])
    start = time.monotonic()
    try:
        with hold_folder(plan.folder, _say):
            status = run_stages(stages, run_python, _say)
            status = status or run_python(report)
    except (StageError, OSError) as error:
        print(f"browse_miniature: {in_one_line(error)}", file=sys.stderr)
        return 1
    if status == 0:
        _say(f"This run took {time.monotonic() - start:.0f} s")
    return status


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="launch/browse_miniature.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "model_dir",
        nargs="?",
        metavar="MODEL_DIR",
        default="runs/browse_miniature",
        help="folder on a disk for everything that is made (default: runs/browse_miniature)",
    )
    add("--seed", type=int, default=0, help="seed of all random draws (default: SEED=, or 0)")
    add(
        "--questions",
        type=int,
        default=64,
        help="number of questions for the final comparison (default: 64)",
    )
    add("--episodes", type=int, default=16, help="episodes per question (default: 16)")
    add(
        "--scale",
        type=float,
        default=1.0,
        help="size of the web and of all trainings, relative to the default (default: 1)",
    )
    add(
        "--scaling",
        action="store_true",
        help="also train on parts of the demonstrations and comparisons, in two sizes (figures 6 "
        "and 7); on two cores this takes half an hour more",
    )
    flags = parser.parse_args(arguments)
    for name in ("questions", "episodes"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} is {getattr(flags, name)}: must be at least 1")
    if not 0 < flags.scale < float("inf"):
        parser.error(f"--scale is {flags.scale}: must be a number above 0")
    flags.model_dir = local_folder(parser, "MODEL_DIR", flags.model_dir)
    return flags


if __name__ == "__main__":
    sys.exit(main())

"""The whole paper in miniature, on the sample world: launch/miniature.sh sets up what it needs.

The bundled pretrained model is fine-tuned on good answers, a reward model is trained on comparisons
of answers, the fine-tuned model learns from its rewards, and both answer questions about names that
no training saw. MODEL_DIR gets

  sft/, rm/, rl_0/         the trainings; each is a model folder
  answers/sft/, …          samples of each, constrained and free, judged and scored
  report.md, .html, .json  table 1, figures 4 and 5, diversity and faults

A stage that is done is passed over, and one that was interrupted goes on: start the same again.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; otherwise that
of the stage that failed, 75 where it was asked to stop and saved.
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

from stages import Stage, StageError, run_python, run_stages

# Fewer steps than the quickstart's: a model that is right nearly always leaves nothing to gain.
_SUPERVISED = {"TRAIN_STEPS": 300, "train.evaluate_every": 300, "Run.answers": None}
_TITLE = "The paper in miniature: supervised fine-tuning, a reward model, reinforcement learning"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    start = time.monotonic()
    try:
        status = run_stages(
            stages(flags.model_dir, flags.seed, flags.seeds, flags.questions, flags.samples),
            run_python,
            _say,
        )
    except (StageError, OSError) as error:
        print(f"miniature: {error}", file=sys.stderr)
        return 1
    if status:
        return status
    status = run_python(report_command(flags.model_dir, flags.seed, flags.seeds))
    _say(f"All of it took {time.monotonic() - start:.0f} s")
    return status


def stages(
    folder: pathlib.Path, seed: int, seeds: int, questions: int, samples: int
) -> list[Stage]:
    """Returns what there is to do before the report.

    Args:
      folder: where all of it goes.
      seed: of all draws; reinforcement learning's own are this and the following.
      seeds: how often reinforcement learning is done.
      questions: how many questions are asked.
      samples: how many answers to each.
    """
    world, sft, rm = folder / "world", folder / "sft", folder / "rm"
    write_world = ["-m", "data_pipelines.sample_world", "--out", str(world)]
    found = [
        Stage("questions", world, [[*write_world, "--questions", str(questions)]]),
        Stage(
            "supervised fine-tuning",
            sft,
            [_train("sft_sample_world", sft, {"SEED": seed, **_SUPERVISED})],
        ),
        Stage("reward model", rm, [_train("rm_sample_world", rm, {"SEED": seed})]),
    ]
    for number in range(seed, seed + seeds):
        models = {"INITIAL_CHECKPOINT": str(sft), "REWARD_MODEL": str(rm)}
        found.append(
            Stage(
                _of_seeds("reinforcement learning", number, seeds),
                folder / f"rl_{number}",
                [_train("a2c_sample_world", folder / f"rl_{number}", {"SEED": number, **models})],
                [sft, rm],
            )
        )
    policies = {"the supervised model": sft} | {
        _of_seeds("the reinforced model", number, seeds): folder / f"rl_{number}"
        for number in range(seed, seed + seeds)
    }
    for name, policy in policies.items():
        answers = folder / "answers" / policy.name
        prefix = answers / "test"
        common = ["--model", str(policy), "--questions", str(world / "questions_test.jsonl")]
        common += ["--temperature", "1", "--seed", str(seed), "--max-tokens", "64"]
        common += ["--no-baselines", "--examples", "0"]
        constrained = ["--constrained", "--samples", str(samples), "--reward-model", str(rm)]
        found.append(
            Stage(
                f"answers of {name}",
                answers,
                [
                    ["launch/eval.py", *common, *constrained, "--output", str(prefix)],
                    ["launch/eval.py", *common, "--output", f"{prefix}_free"],
                ],
                [world, policy, rm],
            )
        )
    return found


def report_command(folder: pathlib.Path, seed: int, seeds: int) -> list[str]:
    """Returns the command that makes the report of what the stages have made.

    Args:
      folder: where it is.
      seed: as of `stages`.
      seeds: likewise.
    """
    runs = {_of_seeds("RL", n, seeds): folder / f"rl_{n}" for n in range(seed, seed + seeds)}
    answers = {name: folder / "answers" / run.name / "test" for name, run in runs.items()}
    trained = {"SFT": folder / "sft", "reward model": folder / "rm", **runs}
    return [
        "launch/compare_policies.py",
        f"SFT={folder / 'answers' / 'sft' / 'test'}",
        *(f"{name}={prefix}" for name, prefix in answers.items()),
        *("--output", str(folder / "report"), "--title", _TITLE),
        *("--trained", *(f"{name}={run}" for name, run in trained.items())),
    ]


def _of_seeds(name: str, seed: int, seeds: int) -> str:
    return name if seeds == 1 else f"{name}, seed {seed}"


def _train(config: str, folder: pathlib.Path, settings: Mapping[str, object]) -> list[str]:
    """A training's command, with settings of gin's over those of its file."""
    bindings = {"MODEL_DIR": str(folder), **settings}
    return [
        "launch/train.py",
        f"--gin_file=gin_configs/{config}.gin",
        *(f"--gin.{name}={_gin(value)}" for name, value in bindings.items()),
    ]


def _gin(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="launch/miniature.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "model_dir",
        nargs="?",
        type=pathlib.Path,
        metavar="MODEL_DIR",
        default=pathlib.Path("runs/miniature"),
        help="where all of it goes (default: runs/miniature)",
    )
    add("--seed", type=int, default=0, help="of all draws (default: SEED=, or 0)")
    add("--seeds", type=int, default=1, help="times to do reinforcement learning (default: 1)")
    add("--questions", type=int, default=200, help="questions to ask (default: 200)")
    add("--samples", type=int, default=16, help="answers to each (default: 16)")
    flags = parser.parse_args(arguments)
    for name in ("seeds", "questions", "samples"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} is {getattr(flags, name)}: must be at least 1")
    return flags


if __name__ == "__main__":
    sys.exit(main())

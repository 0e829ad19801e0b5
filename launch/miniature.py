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
import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

from stages import Stage, StageError, run_python, run_stages

# Ten minutes on two cores for all: fewer steps than the files of these trainings have. A supervised
# model that is right nearly always would leave nothing to gain, besides.
_SUPERVISED = {"TRAIN_STEPS": 240, "train.evaluate_every": 240, "Run.answers": None}
_REWARD = {"TRAIN_STEPS": 600, "train.evaluate_every": 300, "train.save_every": 300}
_REINFORCEMENT = {"TRAIN_STEPS": 90, "train.evaluate_every": 45, "train.save_every": 45}
_TITLE = "The paper in miniature: supervised fine-tuning, a reward model, reinforcement learning"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    plan = Plan(flags.model_dir, flags.seed, flags.seeds, flags.questions, flags.samples)
    start = time.monotonic()
    try:
        status = run_stages(plan.stages(), run_python, _say)
    except (StageError, OSError) as error:
        print(f"miniature: {error}", file=sys.stderr)
        return 1
    status = status or run_python(plan.report_command())
    if status == 0:
        _say(f"This start took {time.monotonic() - start:.0f} s")
    return status


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
      folder: where all of it goes.
      seed: of all draws; reinforcement learning's own are this and the following.
      seeds: how often reinforcement learning is done.
      questions: how many questions are asked.
      samples: how many answers to each.
    """

    folder: pathlib.Path
    seed: int = 0
    seeds: int = 1
    questions: int = 200
    samples: int = 16

    def stages(self) -> list[Stage]:
        """Returns all but the report."""
        write_world = ["-m", "data_pipelines.sample_world", "--out", str(self._world)]
        return [
            Stage("questions", self._world, [[*write_world, "--questions", str(self.questions)]]),
            Stage(
                "supervised fine-tuning",
                self._sft,
                [_train("sft_sample_world", self._sft, {"SEED": self.seed, **_SUPERVISED})],
            ),
            Stage(
                "reward model",
                self._rm,
                [_train("rm_sample_world", self._rm, {"SEED": self.seed, **_REWARD})],
            ),
            *(self._learning(name, seed) for name, seed in self._learnt.items()),
            self._answers("SFT", self._sft),
            *(self._answers(name, self._rl(seed)) for name, seed in self._learnt.items()),
        ]

    def report_command(self) -> list[str]:
        """Returns the command that makes the report of what the stages have made."""
        policies = {"SFT": self._sft, **{n: self._rl(seed) for n, seed in self._learnt.items()}}
        trained = {**policies, "reward model": self._rm}
        return [
            "launch/compare_policies.py",
            *(f"{name}={self._prefix(policy)}" for name, policy in policies.items()),
            *("--output", str(self.folder / "report"), "--title", _TITLE),
            *("--trained", *(f"{name}={run}" for name, run in trained.items())),
        ]

    @property
    def _world(self) -> pathlib.Path:
        return self.folder / "world"

    @property
    def _sft(self) -> pathlib.Path:
        return self.folder / "sft"

    @property
    def _rm(self) -> pathlib.Path:
        return self.folder / "rm"

    def _rl(self, seed: int) -> pathlib.Path:
        return self.folder / f"rl_{seed}"

    @property
    def _learnt(self) -> dict[str, int]:
        """The seeds of reinforcement learning, by what its models are called."""
        seeds = range(self.seed, self.seed + self.seeds)
        return {"RL" if self.seeds == 1 else f"RL, seed {seed}": seed for seed in seeds}

    def _prefix(self, policy: pathlib.Path) -> pathlib.Path:
        """Of the results of a policy's answers."""
        return self.folder / "answers" / policy.name / "test"

    def _learning(self, name: str, seed: int) -> Stage:
        folder = self._rl(seed)
        models = {"INITIAL_CHECKPOINT": str(self._sft), "REWARD_MODEL": str(self._rm)}
        settings = {"SEED": seed, **models, **_REINFORCEMENT}
        command = _train("a2c_sample_world", folder, settings)
        return Stage(f"reinforcement learning: {name}", folder, [command], [self._sft, self._rm])

    def _answers(self, name: str, policy: pathlib.Path) -> Stage:
        """Samples under the constraint, with rewards; and free ones, for their faults."""
        prefix, questions = self._prefix(policy), self._world / "questions_test.jsonl"
        command = ["launch/eval.py", "--model", str(policy), "--questions", str(questions)]
        command += ["--temperature", "1", "--seed", str(self.seed), "--max-tokens", "64"]
        command += ["--no-baselines", "--examples", "0"]
        constrained = ["--constrained", "--samples", str(self.samples)]
        constrained += ["--reward-model", str(self._rm)]
        return Stage(
            f"answers of {name}",
            prefix.parent,
            [
                [*command, *constrained, "--output", str(prefix)],
                [*command, "--output", f"{prefix}_free"],
            ],
            [self._world, policy, self._rm],
        )


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

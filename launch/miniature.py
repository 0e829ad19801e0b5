"""The whole paper in miniature, on the sample world: launch/miniature.sh sets up what it needs.

The bundled pretrained model is fine-tuned on good answers, a reward model is trained on comparisons
of answers, the fine-tuned model learns from its rewards, and both answer questions about names that
no training saw. With --seeds N all of this is done N times, each time with another seed: N chains,
which share only the questions. MODEL_DIR gets

  world/                   the questions
  sft_0/, rm_0/, rl_0/     the training runs of the chain with seed 0; each is a model folder
  answers/sft_0/, …        samples of each, constrained and free, judged and scored
  report.md, .html, .json  table 1, figures 4 and 5, diversity and faults

A finished stage is skipped and an interrupted one resumes: start the same command again.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; otherwise that
of the stage that failed, 75 if it was asked to stop and saved.
"""

import argparse
import dataclasses
import pathlib
import sys
import time
from collections.abc import Sequence

from refusals import local_folder, refuse_large_seeds
from stages import Stage, StageError, hold_folder, run_python, run_stages, training_command

from gophercite.cli.arguments import seed
from gophercite.storage.json_fields import in_one_line

# About half an hour per chain on two idle cores, with fewer steps than in the files of these
# runs. A supervised model that is nearly always right would also leave nothing to gain.
_SUPERVISED = {"TRAIN_STEPS": 240, "train.evaluate_every": 240, "Run.answers": None}
_REINFORCEMENT = {"TRAIN_STEPS": 90, "train.evaluate_every": 45, "train.save_every": 45}
_TITLE = "The paper in miniature: supervised fine-tuning, a reward model, reinforcement learning"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    plan = Plan(flags.model_dir, flags.seed, flags.seeds, flags.questions, flags.samples)
    start = time.monotonic()
    try:
        with hold_folder(plan.folder, _say):
            status = run_stages(plan.stages(), run_python, _say)
            status = status or run_python(plan.report_command())
    except (StageError, OSError) as error:
        print(f"miniature: {in_one_line(error)}", file=sys.stderr)
        return 1
    if status == 0:
        _say(f"This run took {time.monotonic() - start:.0f} s")
    return status


@dataclasses.dataclass(frozen=True)
class Chain:
    """One seed's training runs and results; nothing in it depends on another chain.

    Attributes:
      folder: output folder.
      seed: seed of its training runs and of sampling.
    """

    folder: pathlib.Path
    seed: int

    @property
    def supervised(self) -> pathlib.Path:
        """The supervised model."""
        return self.folder / f"sft_{self.seed}"

    @property
    def rated(self) -> pathlib.Path:
        """The supervised model's samples for training questions, and comparisons of them."""
        return self.folder / f"samples_{self.seed}"

    @property
    def judge(self) -> pathlib.Path:
        """The reward model."""
        return self.folder / f"rm_{self.seed}"

    @property
    def learnt(self) -> pathlib.Path:
        """The supervised model after reinforcement learning."""
        return self.folder / f"rl_{self.seed}"

    def answers(self, policy: pathlib.Path) -> pathlib.Path:
        """The prefix of the results for a policy's answers."""
        return self.folder / "answers" / policy.name / "test"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of the whole miniature.

    Attributes:
      folder: output folder.
      seed: seed of the first chain; the others use the following ones.
      seeds: number of chains.
      questions: number of questions that are asked.
      samples: number of answers per question.
      rated_questions, rated_samples: number of training questions and of samples per question for
        the reward model's comparisons.
    """

    folder: pathlib.Path
    seed: int = 0
    seeds: int = 1
    questions: int = 200
    samples: int = 16
    rated_questions: int = 4000
    rated_samples: int = 8

    @property
    def chains(self) -> list[Chain]:
        """Returns one chain per seed."""
        return [Chain(self.folder, self.seed + place) for place in range(self.seeds)]

    def stages(self) -> list[Stage]:
        """Returns all stages except the report, one chain after the other."""
        write_world = ["-m", "data_pipelines.sample_world", "--out", str(self._world)]
        world = [*write_world, "--questions", str(self.questions)]
        return [
            Stage("questions", self._world, [world]),
            *(stage for chain in self.chains for stage in self._stages(chain)),
        ]

    def report_command(self) -> list[str]:
        """Returns the command that builds the report from the stages' results."""
        pairs, trained = [], []
        for chain in self.chains:
            seed = "" if self.seeds == 1 else f", seed {chain.seed}"
            policies = {f"SFT{seed}": chain.supervised, f"RL{seed}": chain.learnt}
            pairs += [f"{name}={chain.answers(policy)}" for name, policy in policies.items()]
            trained += [f"{name}={run}" for name, run in policies.items()]
            trained.append(f"reward model{seed}={chain.judge}")
        output = ["--output", str(self.folder / "report"), "--title", _TITLE]
        return ["launch/compare_policies.py", *pairs, *output, "--trained", *trained]

    @property
    def _world(self) -> pathlib.Path:
        return self.folder / "world"

    def _stages(self, chain: Chain) -> list[Stage]:
        seed, sft, rm, rl = chain.seed, chain.supervised, chain.judge, chain.learnt
        comparisons = {"SAMPLES": str(chain.rated)}
        models = {"INITIAL_CHECKPOINT": str(sft), "REWARD_MODEL": str(rm)}
        learning = {"SEED": seed, **models, **_REINFORCEMENT}
        of_seed = f"seed {seed}: "
        return [
            Stage(
                f"{of_seed}supervised fine-tuning",
                sft,
                [training_command("sft_sample_world", sft, {"SEED": seed, **_SUPERVISED})],
            ),
            self._rated(chain, f"{of_seed}comparisons of its samples"),
            Stage(
                f"{of_seed}reward model",
                rm,
                [training_command("rm_rated_samples", rm, {"SEED": seed, **comparisons})],
                [chain.rated],
            ),
            Stage(
                f"{of_seed}reinforcement learning",
                rl,
                [training_command("a2c_sample_world", rl, learning)],
                [sft, rm],
            ),
            self._answers(chain, f"{of_seed}answers before it", sft),
            self._answers(chain, f"{of_seed}answers after it", rl),
        ]

    def _rated(self, chain: Chain, title: str) -> Stage:
        """Comparisons of the supervised model's samples, rated by the world's truth."""
        world, prefix = chain.rated / "world", chain.rated / "of"
        write_world = ["-m", "data_pipelines.sample_world", "--out", str(world)]
        ask = ["launch/eval.py", "--model", str(chain.supervised), "--seed", str(chain.seed)]
        # Hotter than for answers: the best of many samples has rare faults.
        ask += ["--questions", str(world / "questions_train.jsonl"), "--temperature", "1.5"]
        ask += ["--constrained", "--samples", str(self.rated_samples), "--max-tokens", "64"]
        ask += ["--no-baselines", "--examples", "0", "--output", str(prefix)]
        compare = ["-m", "data_pipelines.sample_comparisons"]
        return Stage(
            title,
            chain.rated,
            [
                [*write_world, "--questions", str(self.rated_questions)],
                ask,
                [*compare, f"{prefix}_samples.jsonl", str(chain.rated)],
            ],
            [chain.supervised],
        )

    def _answers(self, chain: Chain, title: str, policy: pathlib.Path) -> Stage:
        """Samples under the constraint, with rewards; and free ones, for their faults."""
        prefix, questions = chain.answers(policy), self._world / "questions_test.jsonl"
        command = ["launch/eval.py", "--model", str(policy), "--questions", str(questions)]
        command += ["--temperature", "1", "--seed", str(chain.seed), "--max-tokens", "64"]
        command += ["--no-baselines", "--examples", "0"]
        constrained = ["--constrained", "--samples", str(self.samples)]
        constrained += ["--reward-model", str(chain.judge)]
        return Stage(
            title,
            prefix.parent,
            [
                [*command, *constrained, "--output", str(prefix)],
                [*command, "--output", f"{prefix}_free"],
            ],
            [self._world, policy, chain.judge],
        )


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
        metavar="MODEL_DIR",
        default="runs/miniature",
        help="folder for everything that is made (default: runs/miniature)",
    )
    add("--seed", type=seed, default=0, help="seed of all random draws (default: SEED=, or 0)")
    add(
        "--seeds",
        type=int,
        default=1,
        help="number of chains, each with its own seed (default: 1)",
    )
    add("--questions", type=int, default=200, help="number of questions to ask (default: 200)")
    add("--samples", type=int, default=16, help="number of answers to each question (default: 16)")
    flags = parser.parse_args(arguments)
    for name in ("seeds", "questions", "samples"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} is {getattr(flags, name)}: must be at least 1")
    refuse_large_seeds(parser, flags.seed, flags.seeds)
    flags.model_dir = local_folder(parser, "MODEL_DIR", flags.model_dir)
    return flags


if __name__ == "__main__":
    sys.exit(main())

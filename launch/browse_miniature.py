"""Learning to browse in miniature, on a sample web: launch/browse_miniature.sh sets it up.

The bundled language model imitates scripted demonstrations. Its answers to other questions, and
those of scripts that often quote the wrong sentence, are compared by what is true. Two reward
models learn from these comparisons, on different questions,
and the policy learns from the rewards of the first one. Both policies then answer questions about
a web whose names no training saw. MODEL_DIR gets

  web/, sets/            the web, its demonstrations, and questions for comparisons and for PPO
  completions/, bc/      the data of behaviour cloning, and its model
  rated/, comparisons/   answers of that model and of careless scripts, and comparisons of them
  rm/, rm_validation/    the reward models
  ppo/                   the policy after reinforcement learning
  answers/bc/, …/ppo/    episodes of both, scored
  report.md, .html       how good they are, and the best of n

A finished stage is skipped and an interrupted one resumes: start the same command again.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; otherwise that
of the stage that failed, 75 if it was asked to stop and saved.
"""

import argparse
import dataclasses
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

from stages import Stage, StageError, run_python, run_stages, training_command

from gophercite.storage.json_fields import in_one_line

_RULES = ["--view-lines", "6", "--results", "3"]  # as in gin_configs/ppo_sample_web.gin
_PROMPT_TOKENS = "320"  # likewise
_BROWSING = [*_RULES, "--actions", "16", "--prompt-tokens", _PROMPT_TOKENS, "--max-tokens", "64"]
_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"
_PREFIX = "112"  # as in gin_configs/rm_sample_web.gin
_CARELESS = ["--rate", "wrong_quote=0.5", "--rate", "namesake=0.3"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    plan = Plan(flags.model_dir, flags.seed, flags.questions, flags.episodes, flags.scale)
    start = time.monotonic()
    try:
        status = run_stages(plan.stages(), run_python, _say)
    except (StageError, OSError) as error:
        print(f"browse_miniature: {in_one_line(error)}", file=sys.stderr)
        return 1
    status = status or run_python(plan.report_command())
    if status == 0:
        _say(f"This run took {time.monotonic() - start:.0f} s")
    return status


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of the whole miniature.

    Attributes:
      folder: output folder.
      seed: seed of all random draws.
      questions: number of questions that are asked at the end.
      episodes: number of episodes per question, to choose the best from.
      scale: factor for the numbers of steps and the web's size.
    """

    folder: pathlib.Path
    seed: int = 0
    questions: int = 64
    episodes: int = 16
    scale: float = 1.0

    def stages(self) -> list[Stage]:
        """Returns all stages except the report."""
        at = self._at
        web, sets, bc, rm = at("web"), at("sets"), at("bc"), at("rm")
        second, ppo = at("rm_validation"), at("ppo")
        data = "data_pipelines"
        demonstrations = f"{web}/made/demonstrations_train.jsonl.gz"
        make = [f"{data}.sample_web", "--out", f"{web}/made", "--seed", str(self.seed)]
        pages = max(40, int(self._scaled(900)))  # a web has at least 40
        make += ["--pages", str(pages), "--questions", self._scaled(15000)]
        make += ["--demonstrations", self._scaled(4500), "--steps", "5,3", *_RULES]
        make += ["--styles", "direct", "--noise", "0.3"]  # one way: a million parameters learn it
        # People forget to cite. Imitation learns that from them, too; rewards can unteach it.
        make += ["--rate", "uncited=0.3"]
        deal = [f"{data}.question_sets", f"{web}/made/questions_train.jsonl", str(sets)]
        deal += ["--share", "rm=1", "--share", "rl=2", "--without", demonstrations]
        learn = [f"{data}.browsing_completions", f"{web}/made/world_train", demonstrations]
        learn += [str(at("completions")), "--prompt-tokens", _PROMPT_TOKENS, "--held-out", "0.04"]
        learn += ["--faults", "--vocabulary", f"{data}/sample_world/model/vocabulary"]
        compare = [f"{data}.browsing_comparisons", f"{sets}/questions_rm.jsonl"]
        compare += [f"{at('rated')}/of/episodes.jsonl.gz"]
        compare += [f"{at('rated')}/script_{number}.jsonl.gz" for number in range(3)]
        compare += ["--out", str(at("comparisons")), "--validation-model", "0.3"]
        compare += ["--held-out", "0.1", "--no-ties"]
        careless: tuple[list[str], ...] = (_CARELESS, _CARELESS, [])
        reward = {"INITIAL_CHECKPOINT": str(bc), "TRAIN_STEPS": int(self._scaled(800))}
        return [
            # An unfinished web is built again.
            Stage("a web to learn on", web, [["-c", _REMOVE, f"{web}/made"], ["-m", *make]]),
            Stage("questions for comparisons and PPO", sets, [["-m", *deal]], [web]),
            Stage(
                "demonstrations for behaviour cloning", at("completions"), [["-m", *learn]], [web]
            ),
            Stage(
                "behaviour cloning",
                bc,
                [
                    self._train(
                        "bc_sample_web",
                        bc,
                        {
                            "DEMONSTRATIONS": str(at("completions")),
                            "TRAIN_STEPS": int(self._scaled(1100)),
                        },
                    )
                ],
                [at("completions")],
            ),
            Stage(
                "answers to compare",
                at("rated"),
                [
                    self._browse(
                        bc,
                        f"{web}/made/world_train",
                        f"{sets}/questions_rm.jsonl",
                        f"{at('rated')}/of",
                        "4",
                        ["--limit", self._scaled(300), "--temperature", "1"],
                    ),
                    # Few of its answers are decided pairs; scripts write as many as are needed.
                    *[self._script(number, rates) for number, rates in enumerate(careless)],
                ],
                [bc, sets],
            ),
            Stage("comparisons of them", at("comparisons"), [["-m", *compare]], [at("rated")]),
            Stage(
                "reward model",
                rm,
                [
                    self._train(
                        "rm_sample_web", rm, {**reward, "COMPARISONS": str(at("comparisons"))}
                    )
                ],
                [bc, at("comparisons")],
            ),
            Stage(
                "validation reward model",
                second,
                [
                    self._train(
                        "rm_sample_web",
                        second,
                        {
                            **reward,
                            "TRAIN_STEPS": int(self._scaled(400)),
                            "COMPARISONS": f"{at('comparisons')}/validation_model",
                        },
                    )
                ],
                [bc, at("comparisons")],
            ),
            Stage(
                "PPO",
                ppo,
                [
                    self._train(
                        "ppo_sample_web",
                        ppo,
                        {
                            "INITIAL_CHECKPOINT": str(bc),
                            "REWARD_MODEL": str(rm),
                            "WORLD": f"{web}/made/world_train",
                            "QUESTIONS": f"{sets}/questions_rl.jsonl",
                            "HELD_OUT_WORLD": f"{web}/made/world_validation",
                            "HELD_OUT_QUESTIONS": f"{web}/made/questions_validation.jsonl",
                            "TRAIN_STEPS": int(self._scaled(32)),
                        },
                    )
                ],
                [bc, rm, sets],
            ),
            *[self._answers(policy) for policy in (bc, ppo)],
        ]

    def report_command(self) -> list[str]:
        """The command that writes the report."""
        answers = [f"{name}={self._at('answers')}/{name}/of" for name in ("bc", "ppo")]
        return ["launch/browse_report.py", *answers, "--output", str(self._at("report"))]

    def _answers(self, policy: pathlib.Path) -> Stage:
        """Episodes of a policy on the test split, scored by both reward models."""
        web, folder = self._at("web"), self._at("answers") / policy.name
        rm, second = self._at("rm"), self._at("rm_validation")
        judges = ["--reward-model", str(rm), "--validation-reward-model", str(second)]
        judges += ["--prefix-tokens", _PREFIX, "--limit", str(self.questions)]
        command = self._browse(
            policy, f"{web}/made/world_test", f"{web}/made/questions_test.jsonl", f"{folder}/of",
            str(self.episodes), judges,
        )  # fmt: skip
        return Stage(f"answers of {policy.name}", folder, [command], [web, policy, rm, second])

    def _script(self, seed: int, rates: Sequence[str]) -> list[str]:
        """A script's episodes for the questions of the comparisons."""
        command = ["-m", "data_pipelines.demonstrators", str(self._at("web") / "made/world_train")]
        command += [str(self._at("sets") / "questions_rm.jsonl")]
        command += [str(self._at("rated") / f"script_{seed}.jsonl.gz"), "--styles", "direct"]
        return [*command, "--seed", str(seed), *rates, *_RULES]

    def _browse(
        self,
        model: pathlib.Path,
        world: str,
        questions: str,
        output: str,
        episodes: str,
        others: Sequence[str],
    ) -> list[str]:
        command = ["launch/browse_questions.py", "--model", str(model), "--world", world]
        command += ["--questions", questions, "--output", output, "--episodes", episodes]
        command += ["--free", "--seed", str(self.seed), "--together", "8"]  # fast on two cores
        return [*command, *_BROWSING, *others]

    def _train(
        self, config: str, folder: pathlib.Path, settings: Mapping[str, object]
    ) -> list[str]:
        return training_command(config, folder, {"SEED": self.seed, **settings})

    def _at(self, name: str) -> pathlib.Path:
        return self.folder / name

    def _scaled(self, number: int) -> str:
        return str(max(1, round(number * self.scale)))


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
        type=pathlib.Path,
        metavar="MODEL_DIR",
        default=pathlib.Path("runs/browse_miniature"),
        help="folder for everything that is made (default: runs/browse_miniature)",
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
    flags = parser.parse_args(arguments)
    for name in ("questions", "episodes"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} is {getattr(flags, name)}: must be at least 1")
    if not flags.scale > 0:
        parser.error(f"--scale is {flags.scale}: must be above 0")
    return flags


if __name__ == "__main__":
    sys.exit(main())

"""The stages of learning to browse in miniature, from a web to answers (browse_miniature.py)."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from stages import Stage, training_command

_VOCABULARY = "data_pipelines/sample_world/model/vocabulary"
_RULES = ["--view-lines", "6", "--results", "3"]  # as in gin_configs/ppo_sample_web.gin
_PROMPT_TOKENS = "320"  # likewise
_BROWSING = [*_RULES, "--actions", "16", "--prompt-tokens", _PROMPT_TOKENS, "--max-tokens", "64"]
_REMOVE = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"
_PREFIX = "112"  # as in gin_configs/rm_sample_web.gin
_CARELESS = ["--rate", "wrong_quote=0.5", "--rate", "namesake=0.3"]


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
        at = self.at
        web, sets, bc, rm = at("web"), at("sets"), at("bc"), at("rm")
        data = "data_pipelines"
        make = [f"{data}.sample_web", "--out", f"{web}/made", "--seed", str(self.seed)]
        pages = max(40, int(self.scaled(900)))  # a web has at least 40
        make += ["--pages", str(pages), "--questions", self.scaled(15000)]
        make += ["--demonstrations", self.scaled(4500), "--steps", "5,3", *_RULES]
        make += ["--styles", "direct", "--noise", "0.3"]  # one way: a million parameters learn it
        # People forget to cite. Imitation learns that from them, too; rewards can unteach it.
        make += ["--rate", "uncited=0.3"]
        deal = [f"{data}.question_sets", f"{web}/made/questions_train.jsonl", str(sets)]
        deal += ["--share", "rm=1", "--share", "rl=2", "--without", self._demonstrations]
        careless: tuple[list[str], ...] = (_CARELESS, _CARELESS, [])
        second = at("rm_validation")
        return [
            # An unfinished web is built again.
            Stage("a web to learn on", web, [["-c", _REMOVE, f"{web}/made"], ["-m", *make]]),
            Stage("questions for comparisons and PPO", sets, [["-m", *deal]], [web]),
            self.completions("demonstrations for behaviour cloning", at("completions")),
            self.cloning("behaviour cloning", bc, at("completions")),
            Stage(
                "answers to compare",
                at("rated"),
                [
                    self._browse(
                        bc,
                        f"{web}/made/world_train",
                        f"{sets}/questions_rm.jsonl",
                        f"{at('rated')}/of",
                        4,
                        ["--limit", self.scaled(300), "--temperature", "1"],
                    ),
                    # Few of its answers are decided pairs; scripts write as many as are needed.
                    *[self._script(number, rates) for number, rates in enumerate(careless)],
                ],
                [bc, sets],
            ),
            self.comparisons("comparisons of them", at("comparisons")),
            self.reward_model("reward model", rm, bc, at("comparisons")),
            self.reward_model(
                "validation reward model", second, bc, at("comparisons"), "validation_model", 400
            ),
            self._ppo(bc, rm),
            *[
                self.answers(f"answers of {name}", at("answers") / name, at(name), self.episodes)
                for name in ("bc", "ppo")
            ],
        ]

    def report_command(self) -> list[str]:
        """The command that writes the report."""
        answers = [f"{name}={self.at('answers')}/{name}/of" for name in ("bc", "ppo")]
        return ["launch/browse_report.py", *answers, "--output", str(self.at("report"))]

    def completions(self, title: str, folder: pathlib.Path, *others: str) -> Stage:
        """The data of behaviour cloning.

        Args:
          title: what the stage does.
          folder: its folder.
          *others: more flags.
        """
        web = self.at("web")
        command = ["data_pipelines.browsing_completions", f"{web}/made/world_train"]
        command += [self._demonstrations, str(folder), "--prompt-tokens", _PROMPT_TOKENS]
        command += ["--held-out", "0.04", "--faults", "--vocabulary", _VOCABULARY, *others]
        return Stage(title, folder, [["-m", *command]], [web])

    def cloning(
        self,
        title: str,
        folder: pathlib.Path,
        completions: pathlib.Path,
        settings: Mapping[str, object] | None = None,
        needs: Sequence[pathlib.Path] = (),
    ) -> Stage:
        """Behaviour cloning.

        Args:
          title: what the stage does.
          folder: its folder, the run's.
          completions: folder with the data.
          settings: more gin settings.
          needs: folders of more stages that it needs.
        """
        bindings = {
            "DEMONSTRATIONS": str(completions),
            "TRAIN_STEPS": int(self.scaled(1100)),
            **(settings or {}),
        }
        command = self.train("bc_sample_web", folder, bindings)
        return Stage(title, folder, [command], [completions, *needs])

    def comparisons(self, title: str, folder: pathlib.Path, *others: str) -> Stage:
        """Comparisons of answers by what is true; the arguments are those of `completions`."""
        rated = self.at("rated")
        command = ["data_pipelines.browsing_comparisons", f"{self.at('sets')}/questions_rm.jsonl"]
        command += [f"{rated}/of/episodes.jsonl.gz"]
        command += [f"{rated}/script_{number}.jsonl.gz" for number in range(3)]
        command += ["--out", str(folder), "--validation-model", "0.3"]
        command += ["--held-out", "0.1", "--no-ties", *others]
        return Stage(title, folder, [["-m", *command]], [rated])

    def reward_model(
        self,
        title: str,
        folder: pathlib.Path,
        start: pathlib.Path,
        comparisons: pathlib.Path,
        part: str = "",
        steps: int = 800,
        settings: Mapping[str, object] | None = None,
    ) -> Stage:
        """A reward model.

        Args:
          title: what the stage does.
          folder: its folder, the run's.
          start: the cloned policy to start from.
          comparisons: folder with the data.
          part: folder in it, if any.
          steps: number of steps, before scaling.
          settings: more gin settings.
        """
        bindings = {
            "INITIAL_CHECKPOINT": str(start),
            "TRAIN_STEPS": int(self.scaled(steps)),
            "COMPARISONS": str(comparisons / part),
            **(settings or {}),
        }
        command = self.train("rm_sample_web", folder, bindings)
        return Stage(title, folder, [command], [start, comparisons])

    def answers(
        self, title: str, folder: pathlib.Path, policy: pathlib.Path, episodes: int
    ) -> Stage:
        """Episodes of a policy on the test split, scored by both reward models.

        Args:
          title: what the stage does.
          folder: its folder.
          policy: the policy's folder.
          episodes: number of episodes per question.
        """
        web, rm, second = self.at("web"), self.at("rm"), self.at("rm_validation")
        judges = ["--reward-model", str(rm), "--validation-reward-model", str(second)]
        judges += ["--prefix-tokens", _PREFIX, "--limit", str(self.questions)]
        command = self._browse(
            policy, f"{web}/made/world_test", f"{web}/made/questions_test.jsonl", f"{folder}/of",
            episodes, judges,
        )  # fmt: skip
        return Stage(title, folder, [command], [web, policy, rm, second])

    def train(self, config: str, folder: pathlib.Path, settings: Mapping[str, object]) -> list[str]:
        """A training command with this run's seed; arguments as for `training_command`."""
        return training_command(config, folder, {"SEED": self.seed, **settings})

    def at(self, name: str) -> pathlib.Path:
        """A stage's folder."""
        return self.folder / name

    def scaled(self, number: int) -> str:
        """A number of steps or records, for the size of this run."""
        return str(max(1, round(number * self.scale)))

    @property
    def _demonstrations(self) -> str:
        return f"{self.at('web')}/made/demonstrations_train.jsonl.gz"

    def _ppo(self, bc: pathlib.Path, rm: pathlib.Path) -> Stage:
        web, sets, folder = self.at("web"), self.at("sets"), self.at("ppo")
        settings = {
            "INITIAL_CHECKPOINT": str(bc),
            "REWARD_MODEL": str(rm),
            "WORLD": f"{web}/made/world_train",
            "QUESTIONS": f"{sets}/questions_rl.jsonl",
            "HELD_OUT_WORLD": f"{web}/made/world_validation",
            "HELD_OUT_QUESTIONS": f"{web}/made/questions_validation.jsonl",
            "TRAIN_STEPS": int(self.scaled(32)),
        }
        return Stage(
            "PPO", folder, [self.train("ppo_sample_web", folder, settings)], [bc, rm, sets]
        )

    def _script(self, seed: int, rates: Sequence[str]) -> list[str]:
        """A script's episodes for the questions of the comparisons."""
        command = ["-m", "data_pipelines.demonstrators", f"{self.at('web')}/made/world_train"]
        command += [str(self.at("sets") / "questions_rm.jsonl")]
        command += [str(self.at("rated") / f"script_{seed}.jsonl.gz"), "--styles", "direct"]
        return [*command, "--seed", str(seed), *rates, *_RULES]

    def _browse(
        self,
        model: pathlib.Path,
        world: str,
        questions: str,
        output: str,
        episodes: int,
        others: Sequence[str],
    ) -> list[str]:
        command = ["launch/browse_questions.py", "--model", str(model), "--world", world]
        command += ["--questions", questions, "--output", output, "--episodes", str(episodes)]
        command += ["--free", "--seed", str(self.seed), "--together", "8"]  # fast on two cores
        return [*command, *_BROWSING, *others]

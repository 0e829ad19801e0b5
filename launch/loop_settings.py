"""The configuration of `launch/loop.py`, and the commands that follow from it."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gin
from stages import Stage, training_command

_COUNT = "a whole number, at least 1"
_BY_NAME = 'settings by name, such as {"temperature": 0.5}'
_SELECTIONS = ("random", "disagreement", "uncertainty")


def _check(name: str, value: object, is_right: Callable[[Any], bool], right: str) -> None:
    """Refuses a setting: gin lets any value through, and stages may run for days before it is used.

    Raises:
      ValueError: the value is not right.
    """
    if not is_right(value):
        raise ValueError(f"{name} = {value!r}: must be {right}")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _is_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value))


@dataclasses.dataclass(frozen=True)
class Training:
    """One of the training runs of a round.

    Attributes:
      config: gin file.
      settings: override those of the file.
    """

    config: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("Training.config", self.config, _is_text, "text")
        _check("Training.settings", self.settings, _is_by_name, _BY_NAME)

    def command(
        self, folder: pathlib.Path, given: Mapping[str, object], named: Callable[[str], str]
    ) -> list[str]:
        """Returns the training command.

        Args:
          folder: MODEL_DIR.
          given: macros that the loop sets.
          named: replaces names in the texts of the user's settings (`Place.named`).
        """
        own = {
            name: named(value) if isinstance(value, str) else value
            for name, value in self.settings.items()
        }
        return training_command(named(self.config), folder, {**given, **own})


@dataclasses.dataclass(frozen=True)
class SimulatedRaters:
    """Raters who err at random; the samples must come from questions with known answers.

    Attributes:
      count: number of raters per item.
      accuracy: probability that one of their judgements is right.
    """

    count: int = 3
    accuracy: float = 0.9

    def __post_init__(self) -> None:
        _check("SimulatedRaters.count", self.count, _is_count, _COUNT)
        _check(
            "SimulatedRaters.accuracy",
            self.accuracy,
            lambda value: type(value) in (int, float) and 0 <= value <= 1,
            "from 0 to 1",
        )

    def flags(self, seed: int) -> list[str]:
        """Returns the flags of `launch/loop_ratings.py`."""
        who = ["--simulated", str(self.count), "--accuracy", str(self.accuracy)]
        return [*who, "--seed", str(seed)]

    def __str__(self) -> str:
        """Describes them in words."""
        return (
            f"{self.count} simulated raters; each judgement is right with probability "
            f"{self.accuracy}"
        )


@dataclasses.dataclass(frozen=True)
class People:
    """People, who rate in the app (`gophercite rate serve`).

    Attributes:
      pool: the pool they belong to.
    """

    pool: str = "super"

    def __post_init__(self) -> None:
        _check("People.pool", self.pool, _is_text, "text")

    def flags(self, seed: int) -> list[str]:
        """Returns the flags of `launch/loop_ratings.py`."""
        return ["--pool", self.pool]

    def __str__(self) -> str:
        """Describes them in words."""
        return f"people of the pool {self.pool!r}"


@dataclasses.dataclass(frozen=True)
class Loop:
    """The loop of figure 3: sample, select, rate, train, evaluate; repeat with the best model.

    `{folder}` and `{seed}` are replaced in `preparation`, in paths, and in settings that are text.

    Attributes:
      base: model folder of the language model that every training starts from.
      questions: file of questions to sample for, with their pages; each round draws others.
      validation_questions: file of questions by which the best model is chosen.
      test_questions: file of questions for the report.
      supervised, reward, reinforcement: the training runs of each round. Supervised fine-tuning
        gets INITIAL_CHECKPOINT and RECORDS, the reward model INITIAL_CHECKPOINT and COMPARISONS,
        reinforcement learning INITIAL_CHECKPOINT and REWARD_MODEL; all get MODEL_DIR and SEED.
        If `reinforcement` is None it is left out.
      raters: who rates.
      preparation: a Python command that runs first, such as one that writes the questions.
      rounds: number of rounds.
      questions_per_round: number of questions to sample for in each round.
      items_per_round: maximum number of answer pairs that are rated per round.
      selection: how these pairs are chosen (`python -m data_pipelines.rating_items --help`).
      contrast: whether a question's only answer is compared with the same claim next to another
        sentence.
      sampling: settings of launch/eval.py for the samples.
      base_sampling: settings that differ in the first round, with the base model.
      evaluation: settings of launch/eval.py for validation and test.
      validated_questions, tested_questions: maximum number of questions in each evaluation.
    """

    base: str
    questions: str
    validation_questions: str
    test_questions: str
    supervised: Training
    reward: Training
    reinforcement: Training | None
    raters: SimulatedRaters | People
    preparation: Sequence[str] = ()
    rounds: int = 4
    questions_per_round: int = 400
    items_per_round: int = 200
    selection: Literal["random", "disagreement", "uncertainty"] = "disagreement"
    contrast: bool = False
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base_sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    validated_questions: int = 200
    tested_questions: int = 200

    def __post_init__(self) -> None:
        """Refuses settings that can't be run.

        Raises:
          ValueError: a setting is of the wrong kind, or out of range.
        """
        for names, is_right, right in (
            ("rounds questions_per_round items_per_round", _is_count, _COUNT),
            ("validated_questions tested_questions", _is_count, _COUNT),
            ("base questions validation_questions test_questions", _is_text, "text"),
            ("preparation", _is_texts, "a list of texts"),
            ("sampling base_sampling evaluation", _is_by_name, _BY_NAME),
            ("contrast", lambda value: type(value) is bool, "True or False"),
            ("selection", _SELECTIONS.__contains__, "random, disagreement or uncertainty"),
            ("supervised reward", lambda value: isinstance(value, Training), "a Training"),
            (
                "reinforcement",
                lambda value: isinstance(value, Training | None),
                "a Training or None",
            ),
            (
                "raters",
                lambda value: isinstance(value, SimulatedRaters | People),
                "SimulatedRaters or People",
            ),
        ):
            for name in names.split():
                _check(f"Loop.{name}", getattr(self, name), is_right, right)
        if self.contrast and self.selection == "uncertainty":
            raise ValueError(
                "Loop.contrast = True: its answers have no rewards, but selection = "
                "'uncertainty' needs them"
            )


@dataclasses.dataclass(frozen=True)
class Place:
    """One loop's folder; nothing in it depends on a loop with another seed.

    Attributes:
      loop: its settings.
      folder: output folder.
      seed: seed of its random draws.
    """

    loop: Loop
    folder: pathlib.Path
    seed: int

    def named(self, text: str) -> str:
        """Replaces `{folder}` and `{seed}`."""
        return text.replace("{folder}", str(self.folder)).replace("{seed}", str(self.seed))

    def round(self, number: int) -> pathlib.Path:
        """The folder of a round."""
        return self.folder / f"round_{number}"

    def answers(self, policy: pathlib.Path, split: str) -> pathlib.Path:
        """The prefix of a policy's evaluation results."""
        return policy.parent / f"answers_{policy.name}" / split

    def base_answers(self) -> pathlib.Path:
        """The prefix of the base model's evaluation results."""
        return self.folder / "answers_base" / "test"

    def policies(self, number: int) -> dict[str, pathlib.Path]:
        """A round's models that answer questions, by their names in the report."""
        folder = self.round(number)
        found = {"SFT": folder / "sft"}
        return found | ({"RL": folder / "rl"} if self.loop.reinforcement else {})

    def first_stages(self) -> list[Stage]:
        """The stages before the first round: the questions, and the base model's answers."""
        loop, stages, needs = self.loop, list[Stage](), list[pathlib.Path]()
        if loop.preparation:
            needs = [self.folder / "world"]
            stages = [Stage("questions", needs[0], [[*map(self.named, loop.preparation)]])]
        settings = {**loop.evaluation, **loop.base_sampling, "limit": loop.tested_questions}
        asked = self._ask(self.named(loop.base), loop.test_questions, self.base_answers(), settings)
        return [*stages, Stage("the base model's answers", self.folder / "answers_base", [asked])]

    def stages(
        self, number: int, best: pathlib.Path | None, reward: pathlib.Path | None
    ) -> list[Stage]:
        """The stages of a round.

        Args:
          number: the round, from 0.
          best: the model that is sampled from; None means the base model.
          reward: the newest reward model.
        """
        loop, folder, seed = self.loop, self.round(number), str(self.seed)
        samples, items, rated = folder / "samples", folder / "items", folder / "ratings"
        data, sft, rm = folder / "data", folder / "sft", folder / "rm"
        questions = str(self.questions(number))
        settings = loop.sampling if best else {**loop.sampling, **loop.base_sampling}
        if reward:
            settings = {**settings, "reward_model": str(reward)}
        select = ["-m", "data_pipelines.rating_items", f"{samples}/of_samples.jsonl", questions]
        select += [str(items), "--by", self._selection(reward), "--seed", seed]
        select += ["--items", str(loop.items_per_round)]
        select += ["--contrast"] if loop.contrast else []
        study, experiment = str(self.folder / "study"), f"round {number}"
        rate = [
            "launch/loop_ratings.py",
            study,
            experiment,
            str(items),
            *loop.raters.flags(self.seed),
        ]
        export = ["-m", "gophercite", "rate", "export", study, experiment]
        merge = ["-m", "data_pipelines.rated_rounds", str(data)]
        every = [self.round(each) / "ratings" for each in range(number + 1)]
        draws: dict[str, object] = {"SEED": self.seed}
        base = {"INITIAL_CHECKPOINT": self.named(loop.base), **draws}
        on = f"round {number}: "
        stages = [
            Stage(
                f"{on}samples",
                samples,
                [
                    self._ask(
                        str(best or self.named(loop.base)), questions, samples / "of", settings
                    )
                ],
                [each for each in (best, reward) if each],
            ),
            Stage(f"{on}what is rated", items, [select], [samples]),
            Stage(
                f"{on}ratings",
                rated,
                [
                    rate,
                    [*export, "rated-answers", str(rated / "rated_answers.jsonl")],
                    [*export, "comparisons", str(rated / "comparisons.jsonl")],
                ],
                [items],
            ),
            Stage(f"{on}all ratings so far", data, [[*merge, *map(str, every)]], every),
            Stage(
                f"{on}supervised fine-tuning",
                sft,
                [loop.supervised.command(sft, base | {"RECORDS": f"{data}/answers"}, self.named)],
                [data],
            ),
            Stage(
                f"{on}reward model",
                rm,
                [
                    loop.reward.command(
                        rm, base | {"COMPARISONS": f"{data}/comparisons"}, self.named
                    )
                ],
                [data],
            ),
        ]
        if loop.reinforcement:
            learnt = {"INITIAL_CHECKPOINT": str(sft), "REWARD_MODEL": str(rm)}
            rl = folder / "rl"
            command = loop.reinforcement.command(rl, {**learnt, **draws}, self.named)
            stages.append(Stage(f"{on}reinforcement learning", rl, [command], [sft, rm]))
        for name, policy in self.policies(number).items():
            stages.append(self._evaluation(f"{on}answers of {name}", policy, rm))
        return stages

    def questions(self, number: int) -> pathlib.Path:
        """The file of questions for which a round samples."""
        return self.folder / "questions" / f"round_{number}.jsonl"

    def _selection(self, reward: pathlib.Path | None) -> str:
        """How pairs are chosen: by disagreement as long as there is no reward model."""
        is_early = self.loop.selection == "uncertainty" and reward is None
        return "disagreement" if is_early else self.loop.selection

    def _evaluation(self, title: str, policy: pathlib.Path, reward: pathlib.Path) -> Stage:
        loop, judged = self.loop, {"reward_model": str(reward)}
        commands = [
            self._ask(
                str(policy),
                questions,
                self.answers(policy, split),
                {**loop.evaluation, **judged, "limit": limit},
            )
            for split, questions, limit in (
                ("validation", loop.validation_questions, loop.validated_questions),
                ("test", loop.test_questions, loop.tested_questions),
            )
        ]
        return Stage(title, self.answers(policy, "test").parent, commands, [policy, reward])

    def _ask(
        self, model: str, questions: str, output: pathlib.Path, settings: Mapping[str, Any]
    ) -> list[str]:
        command = ["launch/eval.py", "--model", model, "--questions", self.named(questions)]
        command += ["--output", str(output), "--seed", str(self.seed)]
        for name, value in {"baselines": False, "examples": 0, **settings}.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                command.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                command += [f"--{flag}", self.named(str(value))]
        return command


for _made in (Loop, Training, SimulatedRaters, People):
    gin.external_configurable(_made, module="loop")

"""The loop of figure 3: its commands, with tiny models in the trainings' stead."""

import collections
import dataclasses
import gzip
import json
import pathlib
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

import configuration
import gin
import gin_files
import jax
import loop
import pytest
from loop_report import best_policy, quality_of, write_loop_report
from loop_settings import Loop, People, Place, SimulatedRaters, Training
from stages import RECORD, Stage, StageError
from test_miniature import bindings
from tiny_runs import TINY

from data_pipelines import rated_rounds, rating_items
from data_pipelines.sample_world.__main__ import write_world
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import cli, records
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.ratings.experiments import experiment_named, experiments
from gophercite.ratings.simulated import SimulatedRater, simulate
from gophercite.ratings.study import Study
from gophercite.records import RatedAnswer
from gophercite.reports.results import json_lines
from gophercite.reports.saved_results import SavedResultsError
from tests.drawn_parameters import drawn_heads

pytestmark = pytest.mark.usefixtures("two_devices")

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"
CONFIG = ["gin_configs/loop/sample_world.gin"]
ASKED = {"samples": 3, "temperature": 1.0, "max_tokens": 64, "constrained": True}


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """Of random weights: what the trainings would have made, by their folders' names."""
    settings = TINY | {"MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"}
    gin_files.load(["gin_configs/sft_sample_world.gin"], settings)
    transformer = Transformer(configuration.build().transformer.config)
    sft, rm = map(transformer.init, jax.random.split(jax.random.key(3), 2))
    heads = drawn_heads(RewardModel(transformer), 4)
    vocabulary = bundled_vocabulary()
    return {
        "sft": Model(transformer, sft, vocabulary, {}),
        "rm": Model(transformer, {**rm, HEADS: heads}, vocabulary, {}),
    }


@pytest.fixture
def place(tmp_path: pathlib.Path, models: dict[str, Model]) -> Place:
    """A loop of two rounds with a tiny base model."""
    save_model(tmp_path / "base", models["sft"])
    for split in ("train", "validation", "test"):
        # Of so few pages no prompt is longer than 128 tokens, and one program samples for all.
        write_world(tmp_path / "world", World(split=split, pages=24), 12 if split == "train" else 3)
    made = Loop(
        base=str(tmp_path / "base"),
        questions=f"{tmp_path}/world/questions_train.jsonl",
        validation_questions=f"{tmp_path}/world/questions_validation.jsonl",
        test_questions="{folder}/../world/questions_test.jsonl",
        supervised=Training("sft.gin", {"TRAIN_STEPS": 7}),
        reward=Training("rm.gin"),
        reinforcement=None,
        raters=SimulatedRaters(2, 0.2),  # who call most bad answers good: there are no others
        rounds=2,
        questions_per_round=6,
        items_per_round=5,
        selection="uncertainty",
        sampling=ASKED,
        evaluation=ASKED,
    )
    return Place(made, tmp_path / "seed_3", 3)


def runner(models: dict[str, Model], ran: list[list[str]]) -> Callable[[Sequence[str]], int]:
    """Runs the loop's own commands but for the trainings, in whose stead there are the models."""
    mains: dict[str, Callable[[list[str]], int]] = {
        "data_pipelines.rating_items": rating_items.main,
        # Of so few questions half are held out, or none might be.
        "data_pipelines.rated_rounds": lambda flags: rated_rounds.main(
            [*flags, "--held-out", "0.5"]
        ),
        "gophercite": cli.main,
    }
    for name in ("eval", "loop_ratings"):
        mains[f"launch/{name}.py"] = runpy.run_path(str(LAUNCH / f"{name}.py"))["main"]

    def run(command: Sequence[str]) -> int:
        ran.append(list(command))
        name, *flags = command[1:] if command[0] == "-m" else command
        if name != "launch/train.py":
            return mains[name](flags)
        folder = pathlib.Path(json.loads(bindings(flags)[1]["MODEL_DIR"]))
        record = (folder / RECORD).read_text()
        shutil.rmtree(folder)
        save_model(folder, models[folder.name])
        (folder / RECORD).write_text(record)
        return 0

    return run


def test_the_folder_and_the_seed_are_named_wherever_settings_are_text() -> None:
    settings = {"INDEX": "{folder}/index", "TRAIN_STEPS": 7}
    made = Loop(
        base="{folder}/base",
        questions="q",
        validation_questions="v",
        test_questions="t",
        supervised=Training("{folder}/sft.gin", settings),
        reward=Training("rm", settings),
        reinforcement=Training("rl", settings),
        raters=SimulatedRaters(),
        sampling={"index": "{folder}/seed_{seed}", "samples": 2},
        evaluation={"index": "{folder}/seed_{seed}"},
    )
    place = Place(made, pathlib.Path("here"), 3)
    stages = [*place.first_stages(), *place.stages(0, None, None)]
    commands = [" ".join(command) for stage in stages for command in stage.commands]
    assert not [each for each in commands if "{" in each]
    of_eval = [each for each in commands if each.startswith("launch/eval.py")]
    assert all("--index here/seed_3" in each for each in of_eval)
    assert sum("--model here/base " in each for each in of_eval) == 2
    trainings = [each for each in commands if each.startswith("launch/train.py")]
    assert all('--gin.INDEX="here/index" --gin.TRAIN_STEPS=7' in each for each in trainings)
    assert sum('--gin.INITIAL_CHECKPOINT="here/base"' in each for each in trainings) == 2
    assert "--gin_file=here/sft.gin" in trainings[0]


def test_two_rounds_from_questions_to_the_report(
    place: Place, models: dict[str, Model], capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    assert loop.run_loop(place, runner(models, ran)) == 0, capsys.readouterr().err
    folder = place.folder

    # Each round takes other questions, and is rated whole: in one study, an experiment a round.
    taken = [
        [json.loads(line)["id"] for line in place.questions(number).read_text().splitlines()]
        for number in range(2)
    ]
    assert [len(ids) for ids in taken] == [6, 6]
    assert not {*taken[0]} & {*taken[1]}
    study = Study(folder / "study")
    with study.store.reading() as connection:
        assert [each.name for each in experiments(connection)] == ["round 0", "round 1"]
    study.store.close()
    for number in range(2):
        answers = list(
            records.read(place.round(number) / "ratings/rated_answers.jsonl", RatedAnswer)
        )
        assert {each.question_id for each in answers} <= {*taken[number]}
        assert all(len(each.ratings) == 2 for each in answers)

    # The first round samples of the base model, the second of the best, judged by the reward model.
    evaluations = [each for each in ran if each[0] == "launch/eval.py"]
    asked = [each for each in evaluations if "/samples/of" in " ".join(each)]
    assert [each[each.index("--model") + 1] for each in asked] == [
        place.loop.base,
        str(folder / "round_0" / "sft"),
    ]
    assert "--reward-model" not in asked[0]
    assert asked[1][asked[1].index("--reward-model") + 1] == str(folder / "round_0" / "rm")
    selections = [
        each[each.index("--by") + 1] for each in ran if "data_pipelines.rating_items" in each
    ]
    assert selections == ["disagreement", "uncertainty"]

    # All trainings begin with the base model, and learn from the ratings of all rounds.
    trained = [bindings(each)[1] for each in ran if each[0] == "launch/train.py"]
    assert {each["INITIAL_CHECKPOINT"] for each in trained} == {json.dumps(place.loop.base)}
    assert {each["SEED"] for each in trained} == {"3"}
    assert trained[2]["RECORDS"] == json.dumps(str(folder / "round_1" / "data" / "answers"))
    assert trained[2]["TRAIN_STEPS"] == "7"
    assert trained[3]["COMPARISONS"] == json.dumps(f"{folder}/round_1/data/comparisons")
    files = sorted(path.name for path in (folder / "round_1" / "data" / "answers").iterdir())
    assert files == ["round_0.jsonl", "round_1.jsonl"]

    # Started again, nothing is run; with other settings it is refused.
    assert loop.run_loop(place, pytest.fail) == 0
    other = Place(Loop(**{**vars(place.loop), "items_per_round": 4}), folder, 3)
    with pytest.raises(StageError, match="with other settings"):
        loop.run_loop(other, pytest.fail)

    capsys.readouterr()
    lines = list(write_loop_report([place], folder.parent / "report"))
    numbers = json.loads((folder.parent / "report.json").read_text())
    assert len(numbers["rounds"]["SFT, first answer"]) == 2
    assert "SFT, top@3" in numbers["rounds"]
    assert numbers["best"] == [str(folder / "round_1" / "sft")]  # of equals the latest
    assert "| round 1 " in lines[0]
    markdown = (folder.parent / "report.md").read_text()
    assert "](report_growth.png)" in markdown
    assert "](report_rounds.png)" in markdown
    assert "Last round minus first" in markdown
    first = Place(Loop(**{**vars(place.loop), "rounds": 1}), folder, 3)
    assert list(write_loop_report([first], folder.parent / "report"))
    assert "gains can't be measured yet" in (folder.parent / "report.md").read_text()

    counts = folder / "round_1" / "data" / "counts.json"
    whole = json.loads(counts.read_text("utf-8"))
    for damaged, said in [
        (whole[:1], "must be a list of 2 rounds"),
        ([whole[0], {**whole[1], "good": "3"}], r"\[1\]\.good"),
    ]:
        counts.write_text(json.dumps(damaged), "utf-8")
        with pytest.raises(ValueError, match=rf"counts\.json.*{said}"):
            list(write_loop_report([place], folder.parent / "report"))


def answers(place: Place, number: int, split: str, shares: Sequence[float]) -> None:
    """Results of which each question has four samples, so many of them supported."""
    prefix = place.answers(place.policies(number)["SFT"], split)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "question_id": str(at),
            "supported": sample < 4 * share,
            "reward": float(sample == 0),
            "log_prob": -1.0,
            "text": "x",
        }
        for at, share in enumerate(shares)
        for sample in range(4)
    ]
    pathlib.Path(f"{prefix}.jsonl").write_text(json_lines(lines[::4]))
    pathlib.Path(f"{prefix}_samples.jsonl").write_text(json_lines(lines))
    pathlib.Path(f"{prefix}.json").write_text('{"run": {"model": "m", "provenance": {}}}')


def test_the_best_model_is_that_of_the_validation_questions(place: Place) -> None:
    answers(place, 0, "validation", [0.5, 1.0])
    answers(place, 1, "validation", [0.5, 0.5])
    for number in range(2):
        answers(place, number, "test", [0.0, number])
    assert best_policy(place, 0) == (place.round(0) / "sft", place.round(0) / "rm")
    assert best_policy(place, 1) == (place.round(0) / "sft", place.round(1) / "rm")
    quality = quality_of(place.answers(place.round(0) / "sft", "validation"))
    assert quality.first == {"0": 0.5, "1": 1.0}
    assert quality.best == {"0": 1.0, "1": 1.0}
    # With one sample a question there is no file of samples, and declined questions don't count.
    prefix = place.answers(place.round(0) / "sft", "validation")
    pathlib.Path(f"{prefix}_samples.jsonl").unlink()
    given = {"question_id": "0", "supported": True}
    declined = {"question_id": "1", "declined": True}
    pathlib.Path(f"{prefix}.jsonl").write_text(json_lines([given, declined]))
    assert quality_of(prefix).first == {"0": 1.0}
    pathlib.Path(f"{prefix}.jsonl").write_text(json_lines([declined]))
    with pytest.raises(SavedResultsError, match="no question was answered"):
        quality_of(prefix)


def test_one_question_with_more_pages_does_not_choose_the_model(tmp_path: pathlib.Path) -> None:
    lines = [
        {"question_id": str(at), "supported": good, "reward": reward}
        for at, rewarded in enumerate(([1, 1, 0], [0, 1], [1, 0], [0]))
        for reward, good in enumerate(rewarded)
    ]
    chosen = {line["question_id"]: line for line in lines}
    (tmp_path / "of.jsonl").write_text(json_lines(chosen.values()))
    (tmp_path / "of_samples.jsonl").write_text(json_lines(lines))
    quality = quality_of(tmp_path / "of")
    assert quality.first == {"0": 2 / 3, "1": 0.5, "2": 0.5, "3": 0.0}
    assert quality.samples == 2
    assert quality.best == pytest.approx({"0": 1 / 3, "1": 1.0, "2": 0.0})


@pytest.mark.parametrize(
    ("file", "names"),
    [("sample_world.gin", ["sft", "rm", "rl"]), ("real_questions.gin", ["sft", "rm"])],
)
def test_the_loops_that_come_along_have_trainings_that_can_be_built(
    tmp_path: pathlib.Path, models: dict[str, Model], file: str, names: list[str]
) -> None:
    """With the bundled model in a published one's stead, which has no gates to adapt."""
    bundled = {"Loop.base": json.dumps(str(VOCABULARY_FOLDER.parent))}
    gin_files.load([f"gin_configs/loop/{file}"], bundled)
    made = gin.get_configurable(Loop)()
    place = Place(made, tmp_path / "seed_1", 1)
    assert "--few-shot" in place.first_stages()[-1].commands[0]
    if made.preparation:
        assert place.first_stages()[0].commands[0][-1] == "1"  # the world's seed
    data = place.round(1) / "data"
    source = tmp_path / "ratings"
    source.mkdir()
    (page,) = [World(split="train").page(5).document]
    quoted = page.text[:30]
    rated = RatedAnswer("q", "When?", (page,), "x", page.title, quoted, page.id, True, True)
    records.write(source / "rated_answers.jsonl", [rated])
    pair = {"claim": "x", "title": page.title, "quote": quoted}
    lines = [
        {
            "id": str(at), "question": f"{at}?", "source": "s", "responses": [[pair], [pair]],
            "preferred": 1.0,
        }
        for at in range(30)
    ]  # fmt: skip
    (source / "comparisons.jsonl").write_text(json_lines(lines))
    rated_rounds.merge([source], data, 0.3)
    trainings: dict[str, Stage] = {
        stage.folder.name: stage
        for stage in place.stages(1, place.round(0) / "rl", place.round(0) / "rm")
        if stage.commands[0][0] == "launch/train.py"
    }
    assert list(trainings) == names
    for name, stage in trainings.items():
        files, settings = bindings(stage.commands[0])
        if file == "real_questions.gin":
            settings |= {"LoRA.targets": '("query", "value")', "BATCH_SIZE": "8"}
        gin_files.load(files, (TINY | settings) if name == "rl" else settings)
        run = configuration.build()
        assert run.settings.model_dir == str(place.round(1) / name)
        assert run.settings.seed == 1
        if name != "rl":  # which learns from these two
            save_model(place.round(1) / name, models[name])
    if "rl" in names:
        assert trainings["rl"].needs == [place.round(1) / "sft", place.round(1) / "rm"]


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"Loop.rounds": "0"}, "Loop.rounds = 0: must be a whole number, at least 1"),
        ({"Loop.rounds": "2.5"}, "Loop.rounds = 2.5: must be a whole number, at least 1"),
        ({"Loop.rounds": "'4'"}, "Loop.rounds = '4': must be a whole number, at least 1"),
        ({"Loop.tested_questions": "True"}, "Loop.tested_questions = True: must be a whole"),
        ({"Loop.questions": "None"}, "Loop.questions = None: must be text"),
        ({"Loop.preparation": "'prepare'"}, "Loop.preparation = 'prepare': must be a list of te"),
        ({"Loop.contrast": "'no'"}, "Loop.contrast = 'no': must be True or False"),
        ({"Loop.sampling": "5"}, "Loop.sampling = 5: must be settings by name"),
        ({"Loop.evaluation": "{1: 2}"}, "Loop.evaluation = {1: 2}: must be settings by name"),
        ({"Loop.reward": "5"}, "Loop.reward = 5: must be a Training"),
        ({"Loop.reinforcement": "5"}, "Loop.reinforcement = 5: must be a Training or None"),
        ({"Loop.raters": "3"}, "Loop.raters = 3: must be SimulatedRaters or People"),
        ({"SimulatedRaters.count": "1.5"}, "SimulatedRaters.count = 1.5: must be a whole number"),
        ({"SimulatedRaters.accuracy": "'1'"}, "SimulatedRaters.accuracy = '1': must be from 0"),
        ({"Loop.selection": "[]"}, "Loop.selection = []: must be random, disagreement or uncerta"),
        ({"Loop.selection": "best"}, "Loop.selection = 'best': must be random, disagreement"),
        ({"SimulatedRaters.accuracy": "2"}, "SimulatedRaters.accuracy = 2: must be from 0 to 1"),
        ({"Loop.round": "3"}, "did you mean"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(
    binding: dict[str, str], message: str, tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # What is not refused ends at its first stage.
    given = {"Loop.preparation": "('-c', 'raise SystemExit(3)')", **binding}
    flags = [f"--gin.{name}={value}" for name, value in given.items()]
    assert loop.main([str(tmp_path / "run"), f"--gin_file={CONFIG[0]}", *flags]) == 1
    said = capsys.readouterr().err
    assert message in said
    typed, _, _ = flags[-1].partition("=")
    assert said.startswith(f"loop: {typed}")
    assert not (tmp_path / "run").exists()


def test_a_wrong_setting_in_a_file_is_named_with_its_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.gin"
    file.write_text("include 'gin_configs/loop/sample_world.gin'\n\nLoop.rounds = 0\n")
    assert loop.main([str(tmp_path / "run"), f"--gin_file={file}"]) == 1
    assert f"loop: Loop.rounds in {file}:3 = 0: must be a whole" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gs://bucket/m"], "FOLDER is gs://bucket/m: must be a folder on a disk"),
        (["run", "--seed", "-1"], "--seed: -1: must be from 0 to 4294967295"),
        (["run", "--seed", "4294967296"], "--seed: 4294967296: must be from 0 to 4294967295"),
        (
            ["run", "--seed", "4294967295", "--seeds", "2"],
            "--seeds is 2: the last seed would be 4294967296, but must be at most 4294967295",
        ),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    said: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = pathlib.Path(CONFIG[0]).resolve()
    monkeypatch.chdir(tmp_path)
    stop = "--gin.Loop.preparation=('-c', 'raise SystemExit(3)')"
    with pytest.raises(SystemExit) as ended:
        loop.main([*arguments, f"--gin_file={config}", stop])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_rounds_draw_questions_from_all_over_the_file(tmp_path: pathlib.Path, place: Place) -> None:
    """Files of questions are in the order of their pages; no round is all about the first."""
    lines = [f'{{"id": "{number}\u2028"}}\n' for number in range(400)]
    (tmp_path / "questions.jsonl").write_text("".join(lines))
    settings = {"questions": str(tmp_path / "questions.jsonl"), "questions_per_round": 100}
    drawn = {}
    for seed in (0, 1):
        here = Place(dataclasses.replace(place.loop, **settings), tmp_path / str(seed), seed)
        for number in range(4):
            loop.take_questions(here, number)
        rounds = [here.questions(number).read_text().split("\n")[:-1] for number in range(4)]
        assert sorted(f"{line}\n" for each in rounds for line in each) == sorted(lines)
        for each in rounds:
            quarters = collections.Counter(lines.index(f"{line}\n") // 100 for line in each)
            assert min(quarters[quarter] for quarter in range(4)) >= 10
        drawn[seed] = rounds
    assert drawn[0][0] != drawn[1][0]

    # What has been sampled for is not drawn again, although the file has grown meanwhile.
    (tmp_path / "questions.jsonl").write_text("".join(lines) + '{"id": "new"}\n')
    loop.take_questions(here, 4)
    assert here.questions(4).read_text() == '{"id": "new"}\n'


def test_questions_that_run_out_are_named(place: Place) -> None:
    for number in range(2):
        loop.take_questions(place, number)
    with pytest.raises(ValueError, match=r"no questions left for round 2.*questions_per_round"):
        loop.take_questions(place, 2)


def test_the_loop_waits_for_people_and_goes_on_when_they_are_done(tmp_path: pathlib.Path) -> None:
    """A real process, which is ended while it waits, and started again."""
    page = World(split="train").page(5).document
    quoted = page.text[:30]
    items = tmp_path / "items"
    items.mkdir()
    rated = [
        RatedAnswer(str(at // 2), "When?", (page,), claim, page.title, quoted, page.id)
        for at, claim in enumerate(["1", "2"] * 4)
    ]
    records.write(items / "items.jsonl", rated)
    command = [sys.executable, str(LAUNCH / "loop_ratings.py"), str(tmp_path / "study")]
    command += ["round 0", str(items), *People("super").flags(0), "--poll", "0.05"]
    for attempt in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("waiting for people: 0 of 4 items are")
            if attempt == 0:
                process.kill()
                continue
            study = Study(tmp_path / "study")
            with study.store.reading() as connection:
                experiment = experiment_named(connection, "round 0")
            assert experiment.settings.comment_words == 7  # as the paper has it, for people
            judged = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
            truth = {str(at): judged for at in range(4)}
            people = {name: SimulatedRater(1.0) for name in ("ada", "bob", "eve")}
            assert simulate(study.store, experiment, truth, people) == 12
            study.store.close()
            rest = process.stdout.read()
            assert process.wait(60) == 0
            assert rest.endswith("round 0: all 4 items are rated\n")


def test_simulated_raters_need_samples_that_were_judged(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = World(split="train").page(5).document
    rated = [
        RatedAnswer("q", "When?", (page,), claim, page.title, page.text[:30], page.id)
        for claim in ("1", "2")
    ]
    records.write(tmp_path / "items.jsonl", rated)
    (tmp_path / "truth.jsonl").write_text("")
    main = runpy.run_path(str(LAUNCH / "loop_ratings.py"))["main"]
    flags = [str(tmp_path / "study"), "round 0", str(tmp_path), "--simulated", "3"]
    assert main(flags) == 1
    assert "simulated raters need samples that were judged" in capsys.readouterr().err


def test_questions_that_were_drawn_with_other_settings_are_refused(place: Place) -> None:
    loop.take_questions(place, 0)
    loop.take_questions(place, 0)
    fewer = dataclasses.replace(place.loop, questions_per_round=5)
    with pytest.raises(StageError, match=r"questions_per_round = 5: round_0 was drawn with 6"):
        loop.take_questions(dataclasses.replace(place, loop=fewer), 0)
    with pytest.raises(StageError, match="seed = 4: round_0 was drawn with 3"):
        # The same folder: only the seed differs.
        loop.take_questions(dataclasses.replace(place, seed=4), 0)
    other = dataclasses.replace(place.loop, questions=place.loop.validation_questions)
    with pytest.raises(StageError, match=r"questions_validation.*drawn from .*questions_train"):
        loop.take_questions(dataclasses.replace(place, loop=other), 0)
    record = place.questions(0).parent / "round_0_drawn.json"
    drawn = record.read_text("utf-8")
    for damaged in drawn[:20], "[]":
        record.write_text(damaged, "utf-8")
        with pytest.raises(ValueError, match=r"round_0_drawn\.json"):
            loop.take_questions(place, 0)
    record.write_text(drawn, "utf-8")
    # Loops that were begun before this was recorded go on, as do those whose file only grew.
    questions = pathlib.Path(place.loop.questions)
    questions.write_text(questions.read_text("utf-8") + '{"id": "more"}\n', "utf-8")
    loop.take_questions(place, 0)
    (place.questions(0).parent / "round_0_drawn.json").unlink()
    loop.take_questions(dataclasses.replace(place, loop=other), 0)


def test_compressed_questions_are_drawn_alike(place: Place) -> None:
    loop.take_questions(place, 0)
    plain = place.questions(0).read_bytes()
    packed = place.loop.questions + ".gz"
    data = gzip.compress(pathlib.Path(place.loop.questions).read_bytes())
    pathlib.Path(packed).write_bytes(data)
    there = Place(dataclasses.replace(place.loop, questions=packed), place.folder / "gz", 3)
    loop.take_questions(there, 0)
    assert there.questions(0).read_bytes() == plain
    pathlib.Path(packed).write_bytes(data[:-20])
    with pytest.raises(ValueError, match=r"questions_train.jsonl.gz: .* is damaged"):
        loop.take_questions(there, 1)

"""The paper in miniature: its commands, with tiny models."""

import json
import pathlib
import runpy
import shutil
from collections.abc import Sequence

import configuration
import gin_files
import jax
import miniature
import pytest
from stages import RECORD, run_stages
from test_compare import Tags
from tiny_runs import TINY

from data_pipelines import sample_comparisons
from data_pipelines.sample_world.__main__ import write_world
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.evidence import Evidence
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.records import Comparison
from gophercite.reports.results import json_lines
from tests.drawn_parameters import drawn_heads

pytestmark = pytest.mark.usefixtures("two_devices")

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """Of random weights: what the trainings would have made, by their folders' names."""
    settings = TINY | {"MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"}
    gin_files.load(["gin_configs/sft_sample_world.gin"], settings)
    transformer = Transformer(configuration.build().transformer.config)
    vocabulary = bundled_vocabulary()
    sft, rm, rl = map(transformer.init, jax.random.split(jax.random.key(3), 3))
    heads = drawn_heads(RewardModel(transformer), 4)
    return {
        "sft_0": Model(transformer, sft, vocabulary, {}),
        "rm_0": Model(transformer, {**rm, HEADS: heads}, vocabulary, {}),
        "rl_0": Model(transformer, rl, vocabulary, {"step": 50}),
    }


def bindings(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    files = [each.split("=", 1)[1] for each in command if each.startswith("--gin_file=")]
    named = (each[6:].split("=", 1) for each in command if each.startswith("--gin."))
    return files, dict(named)


def commands(folder: pathlib.Path, **settings: int) -> dict[str, list[list[str]]]:
    return {
        str(stage.folder.relative_to(folder)): [list(command) for command in stage.commands]
        for stage in miniature.Plan(folder, **settings).stages()
    }


def rated(folder: pathlib.Path) -> None:
    """Comparisons such as the stage before the reward model leaves."""
    folder.mkdir(exist_ok=True)
    pair = ((Evidence("1812", "Mill", "It burned."),), (Evidence("1813", "Mill", "It burned."),))
    for split in ("train", "validation"):
        comparison = Comparison("q/0", "When?", "samples", pair, 0.0, (True, False))
        records.write(folder / f"comparisons_{split}.jsonl", [comparison])


def test_the_trainings_are_runs_that_can_be_built(
    tmp_path: pathlib.Path, models: dict[str, Model]
) -> None:
    """Each chain with a seed of its own, and each training from its own chain's models."""
    made = commands(tmp_path, seed=3, seeds=2)
    assert list(made) == [
        "world",
        "sft_3", "samples_3", "rm_3", "rl_3", "answers/sft_3", "answers/rl_3",
        "sft_4", "samples_4", "rm_4", "rl_4", "answers/sft_4", "answers/rl_4",
    ]  # fmt: skip
    for seed in (3, 4):
        for kind in ("sft", "rm", "rl"):
            files, settings = bindings(made[f"{kind}_{seed}"][0])
            if kind == "rm":
                assert settings["SAMPLES"] == json.dumps(str(tmp_path / f"samples_{seed}"))
                rated(tmp_path / f"samples_{seed}")
            gin_files.load(files, (TINY | settings) if kind == "rl" else settings)
            run = configuration.build()
            folder = str(tmp_path / f"{kind}_{seed}")
            assert (run.settings.seed, run.settings.model_dir) == (seed, folder)
            if kind == "rl":
                assert settings["INITIAL_CHECKPOINT"] == json.dumps(str(tmp_path / f"sft_{seed}"))
                assert settings["REWARD_MODEL"] == json.dumps(str(tmp_path / f"rm_{seed}"))
            else:
                save_model(tmp_path / f"{kind}_{seed}", models[f"{kind}_0"])
    _, sampled, compared = made["samples_4"]
    assert sampled[sampled.index("--model") + 1] == str(tmp_path / "sft_4")
    assert sampled[sampled.index("--output") + 1] + "_samples.jsonl" == compared[2]
    answered = made["answers/rl_4"][0]
    assert answered[answered.index("--model") + 1] == str(tmp_path / "rl_4")
    assert answered[answered.index("--reward-model") + 1] == str(tmp_path / "rm_4")
    assert answered[answered.index("--seed") + 1] == "4"


def test_a_chain_is_the_same_however_many_there_are(tmp_path: pathlib.Path) -> None:
    """So that a later start with more seeds adds the chains that lack, and makes none anew."""
    alone, both = commands(tmp_path), commands(tmp_path, seeds=2)
    assert {folder: both[folder] for folder in alone} == alone


def test_the_stages_from_questions_to_the_report(
    tmp_path: pathlib.Path, models: dict[str, Model], capsys: pytest.CaptureFixture[str]
) -> None:
    """The miniature's own commands but for the trainings, in whose stead there are the models."""
    programs = {
        name: runpy.run_path(str(LAUNCH / f"{name}.py"))["main"]
        for name in ("eval", "compare_policies")
    }

    def run(command: Sequence[str]) -> int:
        program, *flags = command
        if flags[0] == "data_pipelines.sample_comparisons":
            assert sample_comparisons.main(flags[1:]) == 1  # random weights are never right
            rated(pathlib.Path(flags[2]))
            return 0
        if program == "-m":
            folder = pathlib.Path(flags[flags.index("--out") + 1])
            for split in ("train", "test"):
                write_world(folder, World(split=split, pages=40), 4)
            return 0
        if program != "launch/train.py":
            status: int = programs[pathlib.Path(program).stem](flags)
            return status
        folder = pathlib.Path(json.loads(bindings(flags)[1]["MODEL_DIR"]))
        record = (folder / RECORD).read_text()
        shutil.rmtree(folder)
        save_model(folder, models[folder.name])
        evaluated = [
            {"step": step, "split": "validation", "eval/validation/kl": kl}
            for step, kl in ((0, 0.0), (50, 0.25), (100, 0.5))
        ]
        if folder.name == "rl_0":
            evaluated += [
                {"step": step, "split": "train", "critic/vf_explained_var": share}
                for step, share in ((60, -9.0), (80, 0.3), (90, 0.5))
            ]
        (folder / "metrics.jsonl").write_text(json_lines(evaluated))
        (folder / RECORD).write_text(record)
        return 0

    said: list[str] = []
    plan = miniature.Plan(tmp_path, questions=4, samples=2, rated_questions=4, rated_samples=2)
    stages = plan.stages()
    assert run_stages(stages, run, said.append) == 0, capsys.readouterr().err
    assert run(plan.report_command()) == 0
    printed = capsys.readouterr().out
    assert "| SFT, first answer" in printed
    assert "| RL, top@2" in printed

    numbers = json.loads((tmp_path / "report.json").read_text())
    assert (numbers["questions"], numbers["samples"]) == (4, 2)
    policies = numbers["policies"]
    assert policies["RL"]["kl"] == 0.25  # at the step that answered
    assert policies["SFT"]["kl"] is None
    assert policies["SFT"]["faulty"]["mean"] == 0  # under the constraint
    assert policies["SFT"]["faulty_free"]["mean"] == 1  # a random model's
    assert len(Tags((tmp_path / "report.html").read_text()).links) == 2
    markdown = (tmp_path / "report.md").read_text()
    assert "](report_best_of.png)" in markdown
    trainings = markdown.split("## Trainings")[1]
    assert "the critic explains 40 % of the rewards' variance" in trainings  # of steps 61 to 90
    assert trainings.count("the critic explains") == 1

    run_stages(stages, pytest.fail, said.append)  # all of it is there
    assert said[-1].endswith(f"already done, in {tmp_path / 'answers' / 'rl_0'}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "0"], "--seeds is 0: must be at least 1"),
        (["gs://bucket/m"], "MODEL_DIR is gs://bucket/m: must be a folder on a disk"),
        ([""], "MODEL_DIR is empty: must be a folder on a disk"),  # a variable that nothing set
        ([__file__], f"MODEL_DIR is {__file__}: is a file; must be a folder on a disk"),
        (["--seed", "-1"], "--seed: -1: must be from 0 to 4294967295"),
        (["--seed", "4294967296"], "--seed: 4294967296: must be from 0 to 4294967295"),
        (
            ["--seed", "4294967294", "--seeds", "3"],
            "--seeds is 3: the last seed would be 4294967296, but must be at most 4294967295",
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
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        miniature.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_what_is_no_evaluation_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_policies = runpy.run_path(str(LAUNCH / "compare_policies.py"))["main"]
    output = [f"RL={tmp_path / 'none'}", "--output", str(tmp_path / "report")]
    command = [f"SFT={tmp_path / 'none'}", *output]
    assert compare_policies(command) == 1
    assert "none.jsonl: there is no such file" in capsys.readouterr().err
    (tmp_path / "none.jsonl").write_text("")
    for summary, said in (
        (None, "there is no such file; launch/eval.py --output writes it"),
        ({}, "field 'run': is missing"),
        ({"run": {}}, "field 'run.model': is missing"),
        ({"run": {"model": 5}}, "field 'run.model': expected a string, got the number 5"),
        ({"run": {"model": "m", "provenance": []}}, "field 'run.provenance': expected an object"),
    ):
        if summary is not None:
            (tmp_path / "none.json").write_text(json.dumps(summary))
        assert compare_policies(command) == 1
        assert f"none.json: {said}" in capsys.readouterr().err
    (tmp_path / "none.json").write_text('{"run": {"model": "m", "provenance": {}}}')
    assert compare_policies(command) == 1
    assert "no question has samples of every model" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        compare_policies([f"SFT={tmp_path / 'none'}", *output[1:]])
    assert "1 results were given, but they must come in pairs" in capsys.readouterr().err
    for own in ("none", "none_free"):
        with pytest.raises(SystemExit):
            compare_policies([*command[:-1], str(tmp_path / "report" / ".." / own)])
        assert ", which is an input: choose another output" in capsys.readouterr().err


def test_the_report_reads_metrics_of_strangers(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_policies = runpy.run_path(str(LAUNCH / "compare_policies.py"))["main"]
    lines = [
        {"question_id": str(at), "text": "x", "reward": 0, "log_prob": -1, "supported": True,
         "faults": []}
        for at in range(2)
    ]  # fmt: skip
    (tmp_path / "of.jsonl").write_text(json_lines(lines))
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "of.json").write_text(json.dumps({"run": {"model": str(run)}}))
    one = [f"SFT={tmp_path / 'of'}", f"RL={tmp_path / 'of'}"]
    command = [*one, "--output", str(tmp_path / "report"), "--trained"]
    assert compare_policies([*command, f"X={tmp_path / 'nowhere'}"]) == 1
    missing = f"compare_policies: --trained X={tmp_path}/nowhere: there is no such folder\n"
    assert capsys.readouterr().err == missing
    metrics = run / "metrics.jsonl"
    for text, said in (
        ("5\n", "expected an object"),
        ('\n{"eval/validation/kl": "low"}\n', "field 'eval/validation/kl': expected a number"),
        ('{"step": []}\n', "field 'step': expected a number"),
    ):
        metrics.write_text(text)
        assert compare_policies([*command, f"X={run}"]) == 1
        number = 1 + text.startswith("\n")
        assert f"{metrics}:{number}: {said}" in capsys.readouterr().err
    metrics.write_text('{"split": "train"}\n' + "[" * 100_000 + '\n{"step": 3, "split": "val')
    assert compare_policies([*command, f"X={run}"]) == 0
    assert "2 questions, 1 sample each." in capsys.readouterr().out

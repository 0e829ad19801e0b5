"""PPO over browsing by launch/train.py: from folders to a policy, and on from a checkpoint."""

import argparse
import dataclasses
import json
import pathlib
import shutil
from typing import Any

import browse_questions
import browse_report
import browsed_scores
import configuration
import gin
import gin_files
import jax
import numpy as np
import pytest
import train
from tiny_runs import TINY

from benchmarks import kills
from data_pipelines.browsing_comparisons import long_answer
from data_pipelines.browsing_input import BrowsingInput
from data_pipelines.demonstrators.truth import compare
from data_pipelines.question_sets import main as question_sets
from data_pipelines.question_sets import set_of
from data_pipelines.sample_web.making import make_split
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import records
from gophercite.browser.encoding import encode_judged_response
from gophercite.browser.episodes import read_episodes
from gophercite.browser.settings import Settings
from gophercite.browsing.collecting import Rollout
from gophercite.browsing.playing import Player
from gophercite.model_folders.checkpoint_files import read_parameters, saved_steps
from gophercite.model_folders.folder import Model, load_model, load_reward_model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import (
    ADAPTERS,
    HEADS,
    REWARD_MODEL,
    TEACHER,
    TRAINED,
    VALUE_HEAD,
    VALUE_TRUNK,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import read_metrics
from gophercite.records import Question
from gophercite.storage.json_lines import read_json_lines
from gophercite.training.early_stopping import EarlyStopping
from tests.drawn_parameters import drawn_heads, drawn_parameters
from tests.long_forms import LONG

pytestmark = pytest.mark.usefixtures("two_devices", "same_programs")

RUN, IMPORTED = "gin_configs/ppo_sample_web.gin", "gin_configs/ppo_imported.gin"
ONE_LAYER = TINY | {"TransformerConfig.num_layers": "1"}
SMALL = {name: value for name, value in ONE_LAYER.items() if not name.startswith("linear")} | {
    **kills.PPO,
    "TRAIN_STEPS": "2",
    "PPOLearner.widths": "1",
    "BrowsingSettings.constrained": "False",
    "train.evaluate_every": "2",
    "train.save_every": "1",
}
UNEVALUATED = {
    "Run.evaluations": "{}",
    "train.best_metric": "None",
    "train.early_stopping": "None",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A policy and a reward model of random weights, a web, and questions."""
    root = tmp_path_factory.mktemp("folders")
    gin_files.load(
        ["gin_configs/sft_sample_world.gin"],
        ONE_LAYER | {"MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"},
    )
    transformer = Transformer(configuration.build().transformer.config)
    params = drawn_parameters(transformer, 3)
    vocabulary = bundled_vocabulary()
    save_model(root / "policy", Model(transformer, params, vocabulary, {}))
    heads = drawn_heads(RewardModel(transformer), 4)
    save_model(root / "judge", Model(transformer, {**params, HEADS: heads}, vocabulary, {}))
    make_split(
        root, "train", seed=0, pages=40, questions=12, demonstrated=4, steps=(1,),
        settings=Settings(view_lines=8), progress=lambda *_: lambda *_: None,
    )  # fmt: skip
    return {
        "INITIAL_CHECKPOINT": repr(str(root / "policy")),
        "REWARD_MODEL": repr(str(root / "judge")),
        "WORLD": repr(str(root / "world_train")),
        "QUESTIONS": repr(str(root / "questions_train.jsonl")),
        "HELD_OUT_QUESTIONS": repr(str(root / "questions_train.jsonl")),
        "WITHOUT": repr(str(root / "demonstrations_train.jsonl.gz")),
    }


def run(folder: pathlib.Path, cache: str, file: str = RUN, **settings: str) -> int:
    bindings = SMALL | settings | {"MODEL_DIR": repr(str(folder))}
    if file == IMPORTED:  # the architecture comes from the policy's folder
        bindings = {n: bindings[n] for n in bindings if not n.startswith("TransformerConfig.")}
    flags = [f"--gin.{name}={value}" for name, value in bindings.items()]
    return train.main([f"--gin_file={file}", *flags, cache])


def lines(folder: pathlib.Path) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
        for line in read_metrics(folder)
    ]


def test_a_policy_learns_by_browsing_and_goes_on_bit_for_bit(
    folders: dict[str, str], cache: str, tmp_path: pathlib.Path
) -> None:
    assert run(tmp_path / "whole", cache, **folders) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")  # as one killed after the first step
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "2")
    assert saved_steps(tmp_path / "parts") == [1]
    assert run(tmp_path / "parts", cache, **folders, **UNEVALUATED) == 0
    steps = [lines(tmp_path / name) for name in ("whole", "parts")]
    of_training = [[one for one in each if one["split"] == "train"] for each in steps]
    assert of_training[0] == of_training[1]
    assert [one["step"] for one in of_training[0]] == [1, 2]
    whole, parts = (read_parameters(tmp_path / name, 2) for name in ("whole", "parts"))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    first = load_model(json.loads(folders["INITIAL_CHECKPOINT"].replace("'", '"'))).params
    jax.tree.map(np.testing.assert_array_equal, whole[TEACHER][TRAINED], first[TRAINED])
    for network in (whole, whole[VALUE_TRUNK]):
        same = jax.tree.map(np.array_equal, network[TRAINED], first[TRAINED])
        assert not all(jax.tree.leaves(same))
    # The run's file freezes the embedding, of which there is one.
    jax.tree.map(np.testing.assert_array_equal, whole["embed"], first["embed"])
    assert "embed" not in {*whole[VALUE_TRUNK], *whole[TEACHER]}
    assert {REWARD_MODEL, VALUE_HEAD} <= set(whole)
    # What inference loads is the policy alone.
    assert set(load_model(tmp_path / "whole").params) == set(first)
    trained = of_training[0][0]
    # The sampler's log-probabilities are the learner's own, and the teacher's at first.
    assert trained["objective/kl"] == pytest.approx(0, abs=0.02)
    assert 0 <= trained["episodes/invalid"] <= 1
    assert {"objective/scores", "policy/clipfrac_avg", "episodes/supported"} <= set(trained)
    evaluated = [one for one in steps[0] if one["split"] == "validation"]
    assert [one["step"] for one in evaluated] == [0, 2]
    assert evaluated[0]["eval/validation/kl"] == pytest.approx(0, abs=0.02)
    assert {"eval/validation/reward", "eval/validation/episodes/right"} <= set(evaluated[0])
    assert saved_steps(tmp_path / "whole")[-1] == 2


@LONG  # learning/test_ppo_shared.py has the adapters, test_adapter_runs.py their runs
def test_adapters_learn_by_browsing_above_a_model_that_stays(
    folders: dict[str, str], cache: str, tmp_path: pathlib.Path
) -> None:
    """Of policy and value network a checkpoint has the adapters, and a run goes on with these."""
    folder = tmp_path / "run"
    few = {"LoRA.targets": "('up',)"}  # to compile less
    settings = folders | UNEVALUATED | few | {"model_config.dtype": "'float32'"}
    assert run(folder, cache, IMPORTED, **settings, TRAIN_STEPS="1") == 0
    stored = read_parameters(folder, 1)
    assert stored.keys() == {ADAPTERS, VALUE_HEAD, VALUE_TRUNK}
    assert stored[VALUE_TRUNK].keys() == {ADAPTERS}
    for network in (stored, stored[VALUE_TRUNK]):
        assert all(np.any(each["b"]) for each in network[ADAPTERS].values())
    assert run(folder, cache, IMPORTED, **settings, TRAIN_STEPS="2") == 0
    first, second = lines(folder)
    assert first["objective/kl"] == pytest.approx(0, abs=0.02)
    assert second["step"] == 2
    base = load_model(json.loads(folders["INITIAL_CHECKPOINT"].replace("'", '"'))).params
    params = load_model(folder).params
    jax.tree.map(np.testing.assert_array_equal, params["embed"], base["embed"])
    assert np.any(params[TRAINED]["up"] != base[TRAINED]["up"])


def test_minibatches_that_don_t_suit_a_rollout_are_refused_at_the_start(
    folders: dict[str, str], cache: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rows, minibatches, environments, steps, said in (
        (18, 2, 4, 5, "PPOLearner.trained_rows = 18: must be from 20"),
        (26, 2, 4, 5, "to 24 (Rollout.environments × (Rollout.steps + 1))"),
        (None, 5, 4, 5, "= 5: must divide the 24 rows of a rollout"),
        (15, 3, 3, 4, "a batch of 15 rows can't be divided evenly among the 2 devices"),
    ):
        changes = {
            "PPOLearner.trained_rows": str(rows),
            "PPOLearner.minibatches": str(minibatches),
            "Rollout.environments": str(environments),
            "Rollout.steps": str(steps),
        }
        assert run(tmp_path / "run", cache, **folders, **changes) == 1
        assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_questions_are_in_one_set_each_and_none_is_demonstrated(
    folders: dict[str, str], tmp_path: pathlib.Path
) -> None:
    files = {name: json.loads(value.replace("'", '"')) for name, value in folders.items()}
    every = [each.question for each in records.read(files["QUESTIONS"], Question)]
    flags = ["--share", "rm=1", "--share", "rl=2", "--without", files["WITHOUT"]]
    assert question_sets([files["QUESTIONS"], str(tmp_path), *flags]) == 0
    dealt = {
        name: {
            each.question for each in records.read(tmp_path / f"questions_{name}.jsonl", Question)
        }
        for name in ("rm", "rl")
    }
    assert not dealt["rm"] & dealt["rl"]
    assert len(dealt["rm"]) + len(dealt["rl"]) == len(every) - 4
    for name, questions in dealt.items():
        assert {set_of(f" {each.upper()} ", {"rm": 1, "rl": 2}) for each in questions} <= {name}
    asked = BrowsingInput(
        files=files["QUESTIONS"],
        vocabulary=bundled_vocabulary(),
        batch_size=5,
        without=(str(tmp_path / "questions_rm.jsonl"), files["WITHOUT"]),
    )
    assert {each.question for each in asked.records} == dealt["rl"]
    passed = [number for batch in asked.one_pass() for number in batch["questions"].tolist()]
    assert [number for number in passed if number >= 0] == list(range(len(asked.records)))
    assert len(passed) % 5 == 0
    # Five processes have one question of each batch, in the order of one process.
    shares = [[*asked.share(index, 5).one_pass()] for index in range(5)]
    of_batches = zip(*shares, strict=True)
    numbers = [part["questions"] for parts in of_batches for part in parts]
    assert np.concatenate(numbers).tolist() == passed
    with pytest.raises(ValueError, match=r"batch_size = 5: must be a multiple of 2, the number of"):
        asked.share(0, 2)


def test_questions_are_browsed_and_reported_with_what_they_cost(
    folders: dict[str, str],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {name: json.loads(value.replace("'", '"')) for name, value in folders.items()}
    out, judge = tmp_path / "answers", files["REWARD_MODEL"]
    command = ["--model", files["INITIAL_CHECKPOINT"], "--world", files["WORLD"], "--questions"]
    command += [files["QUESTIONS"], "--output", str(out), "--limit", "2", "--episodes", "2"]
    command += ["--actions", "4", "--max-tokens", "16", "--prompt-tokens", "160", "--together", "2"]
    command += ["--at-once", "2", "--view-lines", "8"]
    judges = ["--reward-model", judge, "--validation-reward-model", judge, "--prefix-tokens", "96"]
    with monkeypatch.context() as patched:

        def fails(*_: object) -> None:
            raise ValueError("no memory to judge with")

        patched.setattr(browsed_scores, "_judged", fails)
        assert browse_questions.main(command) == 1
    # As if it had been killed while the second of two batches was kept.
    shutil.copytree(out, interrupted := tmp_path / "interrupted")
    lines = (interrupted / "unfinished.jsonl").read_text().splitlines(keepends=True)
    assert [json.loads(line)["name"][-2:] for line in lines] == ["/0", "/1"] * 2
    (interrupted / "unfinished.jsonl").write_text("".join(lines[:3]) + lines[3][:50])
    with monkeypatch.context() as patched:
        patched.setattr(Player, "play", fails)  # nothing is browsed again
        assert browse_questions.main([*command, *judges]) == 0
    again = [*command, "--output", str(interrupted)]
    capsys.readouterr()
    assert browse_questions.main([*again, "--temperature", "0.5"]) == 1
    assert "unfinished.jsonl: was started with temperature = 0.8" in capsys.readouterr().err
    assert browse_questions.main([*again, *judges]) == 0
    assert not [*out.glob("unfinished*"), *interrupted.glob("unfinished*")]
    for name in ("episodes.jsonl.gz", "scores.jsonl"):
        whole, parts = (list(read_json_lines(each / name)) for each in (out, interrupted))
        assert whole == parts
    summary = json.loads((out / "summary.json").read_text())
    params = load_model(files["INITIAL_CHECKPOINT"]).params
    assert summary["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(params))
    # Answers are compared with the accepted ones, question by question.
    scored = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    asked = {each.id: each for each in records.read(files["QUESTIONS"], Question)}
    for line, played in zip(scored, read_episodes(out / "episodes.jsonl.gz"), strict=True):
        assert line["opened"] <= line["offered"]
        assert line["overlaps"] <= line["opened"]
        assert 0 <= line["absent_finds"] <= line["finds"] <= line["actions"]
        of_line = {name: line[name] for name in ("exact", "f1", "quote_contains_answer")}
        assert of_line == dataclasses.asdict(compare(asked[line["question_id"]], played.end))
    for name in ("exact", "f1", "quote_contains_answer", "offered", "finds"):
        mean = sum(line[name] for line in scored) / len(scored)
        assert summary[name] == pytest.approx(mean, abs=1e-4)
    # Twice the parameters for each token, read or written.
    episodes = list(read_episodes(out / "episodes.jsonl.gz"))
    steps = sum(len(each.steps) for each in episodes)
    tokens = summary["operations"] * len(episodes) / (2 * summary["parameters"])
    assert 2 * steps <= tokens <= (160 + 16) * steps + 2 * (96 + 16) * len(episodes)
    # The reward model reads answers with their references.
    shown = [each for each in read_episodes(files["WITHOUT"]) if each.end.answer]
    vocabulary = bundled_vocabulary()
    flags = argparse.Namespace(reward_model=judge, prefix_tokens=96)
    read = sum(
        len(encode_judged_response(vocabulary, e.start.question, long_answer(e.end), 96))
        for e in shown
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(load_reward_model(judge).params))
    assert read
    assert browsed_scores._operations_of_judging(flags, shown) == 2 * size * read
    # Demonstrations are judged as they were when they were made, also a right one without proof.
    whole = next(each for each in shown if each.supported)
    unproved = dataclasses.replace(whole.end, references=())
    assert whole.right
    asks = argparse.Namespace(reward_model=None)
    bare = dataclasses.replace(whole, end=unproved, right=None, supported=None)
    found = browsed_scores._judged(asks, [whole, bare], asked)
    assert [(each.right, each.supported) for each in found] == [(True, True), (True, False)]
    capsys.readouterr()
    assert browse_report.main([f"bc={out}", "--output", str(tmp_path / "report")]) == 0
    assert "One episode per question" in capsys.readouterr().out


def a_question_and_a_bad_line(path: pathlib.Path) -> None:
    records.write(path, [Question("q", "Why?", "t", ())])
    with path.open("a") as file:
        file.write("{}\n")


def test_what_can_be_refused_is_refused_before_anything_is_browsed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_question_and_a_bad_line(tmp_path / "q.jsonl")
    command = ["--model", str(tmp_path / "policy"), "--world", str(tmp_path / "world")]
    command += ["--questions", str(tmp_path / "q.jsonl")]
    new = ["--output", str(tmp_path / "out")]
    for flag in ("--reward-model", "--validation-reward-model"):
        assert browse_questions.main([*command, *new, flag, str(tmp_path / "judge")]) == 1
        bad, problem = capsys.readouterr().err.splitlines()
        assert f"{tmp_path / 'q.jsonl'}:2: " in bad
        assert str(tmp_path / "judge") in problem
    (tmp_path / "file").touch()
    assert browse_questions.main([*command, "--output", str(tmp_path / "file")]) == 1
    assert f"{tmp_path / 'file'}: file exists" in capsys.readouterr().err
    for limit in ("0", "-1"):
        with pytest.raises(SystemExit, match="2"):
            browse_questions.main([*command, *new, "--limit", limit])
        assert f"--limit is {limit}: must be at least 1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        browse_questions.main([*command, *new, "--seed", "9" * 20])
    assert f"--seed: {'9' * 20}: must be from 0 to" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        browse_questions.main([*command, "--output", "gs://bucket/out"])
    assert "--output gs://bucket/out: must be a folder on a disk" in capsys.readouterr().err


def test_bad_lines_of_questions_to_ask_are_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_question_and_a_bad_line(tmp_path / "q.jsonl")
    asked = BrowsingInput(
        files=str(tmp_path / "q.jsonl"), vocabulary=bundled_vocabulary(), batch_size=2
    )
    assert len(asked.records) == 1
    assert f"{tmp_path / 'q.jsonl'}:2: " in capsys.readouterr().err
    for name in ("limit", "batch_size"):
        with pytest.raises(ValueError, match=f"BrowsingInput.{name} = 0: must be at least 1"):
            dataclasses.replace(asked, **{name: 0})
    assert len(asked.share(1, 2).records) == 1
    assert not capsys.readouterr().err, "one process says it"


def test_the_flags_say_what_a_model_may_write(folders: dict[str, str]) -> None:
    model = load_model(json.loads(folders["INITIAL_CHECKPOINT"].replace("'", '"')))
    named = ["--model", "m", "--world", "w", "--questions", "q", "--output", "o"]
    for more, constrained, present in (
        ([], True, False), (["--find-present"], True, True), (["--free"], False, False),
    ):  # fmt: skip
        flags = browse_questions._parse([*named, *more, "--prompt-tokens", "160"])
        settings = browse_questions._player(model, flags).settings
        assert (settings.constrained, settings.commands.find_present) == (constrained, present)
        assert (settings.prompt_tokens, settings.sampling.max_tokens) == (160, 128)


@pytest.mark.parametrize(
    ("size", "parameters", "cloning", "reward", "ppo"),
    [
        ("760m", 0.76e9, (256, 2.5e-5), (64, 1.25e-5), (1e-6, 19, 10.5)),
        ("13b", 12.9e9, (512, 1e-5), (64, 5e-6), (4e-7, 30, 6.8)),
        ("175b", 174.6e9, (512, 6e-6), (32, 1e-6), (2.4e-7, 18, 12.0)),
    ],
)
def test_the_paper_s_sizes_have_the_paper_s_settings(
    size: str,
    parameters: float,
    cloning: tuple[int, float],
    reward: tuple[int, float],
    ppo: tuple[float, int, float],
) -> None:
    """Tables 5 to 8, and GPT-3's numbers of parameters."""
    policy = {"MODEL_DIR": '"x"', "INITIAL_CHECKPOINT": '"x"'}
    cloned = policy | {"DEMONSTRATIONS": '"x"', "TRAIN_STEPS": "7"}
    compared = policy | {"COMPARISONS": '"x"'}
    for run, (batch, rate), own in (("bc", cloning, cloned), ("rm", reward, compared)):
        gin_files.load([f"gin_configs/{run}_webgpt_{size}.gin"], own)
        assert gin.query_parameter("constant_schedule.learning_rate") == rate
        learner = "SupervisedLearner" if run == "bc" else "RewardLearner"
        assert gin.query_parameter(f"{learner}.ema_decay") == 0.99
        assert gin.get_configurable("train")().batch_size == batch
    assert gin.query_parameter("RewardLearner.auxiliary_weight") == 0
    names = ["REWARD_MODEL", "WORLD", "QUESTIONS", "HELD_OUT_QUESTIONS"]
    own = policy | dict.fromkeys(names, '"x"') | {"VOCABULARY_SIZE": "50257"}
    gin_files.load([f"gin_configs/ppo_webgpt_{size}.gin"], own)
    rate, iterations, budget = ppo
    assert gin.query_parameter("constant_schedule.learning_rate") == rate
    assert gin.get_configurable("train")().total_steps == iterations
    stopping = gin.get_configurable(EarlyStopping)()
    assert stopping.limits == {"eval/validation/kl": budget}
    rollout = gin.get_configurable(Rollout)()
    assert (rollout.environments, rollout.steps) == (256, 256)
    assert (rollout.chunk, rollout.extra_answers) == (64, 15)
    assert gin.query_parameter("PPOLearner.minibatches") == 128
    assert gin.query_parameter("PPOLearner.trained_rows") == rollout.environments * rollout.steps
    assert gin.get_configurable(Settings)().actions == (20, 100)
    shapes = Transformer(gin.get_configurable(TransformerConfig)()).abstract()
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == pytest.approx(parameters, rel=0.03)

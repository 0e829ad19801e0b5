"""The evaluation command: a saved model answers a file of questions."""

import copy
import dataclasses
import json
import os
import pathlib
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import get_args

import pytest
from entailment import entailment_server
from evaluation_settings import WRITTEN, Evaluation
from vocabulary_fixtures import trained

from data_pipelines import bootstrap
from gophercite import records
from gophercite.documents import Document
from gophercite.few_shot.prompting import Style
from gophercite.model_folders.description import renew
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.reward_model import HEADS, RewardModel
from gophercite.models.transformer import Transformer
from gophercite.records import Hit, Question, Span
from gophercite.reports.results import Choice
from gophercite.retrieval.index import DocumentIndex
from tests.drawn_parameters import drawn_heads, drawn_parameters
from tests.long_forms import IS_LONG

PATIENCE = 300  # seconds
SCRIPT = pathlib.Path(__file__).parents[2] / "launch" / "eval.py"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = TransformerConfig(
        vocab_size=trained().size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
        position="rope", dtype="float32",
    )  # fmt: skip
    transformer = Transformer(config)
    params = drawn_parameters(transformer)
    save_model(folder, Model(transformer, params, trained(), {"id": "tiny"}))
    heads = drawn_heads(RewardModel(transformer), 1)
    judge = Model(transformer, {**params, HEADS: heads}, trained(), {"id": "judge"})
    save_model(folder.with_name("judge"), judge)
    return folder


def start(
    compiled: pathlib.Path, *arguments: object, stdout: int | None = None
) -> subprocess.Popen[str]:
    command = [sys.executable, SCRIPT, *arguments]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        list(map(str, command)), stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment
    )


def run(*arguments: object) -> int:
    status: int = runpy.run_path(str(SCRIPT))["main"](list(map(str, arguments)))
    return status


def question(number: int, text: str = "Its lighthouse was built in 1874. It is tall.") -> Question:
    page = Document("o", "Ormsby", text)
    return Question(f"q{number}", "When?", "test", (page,), ("1874",), (Span("o", 0, 33),))


def test_a_report_is_printed_and_written(
    model_folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "questions.jsonl"
    long = question(1, "Its lighthouse was built in 1874. " + "Long. " * 900)
    records.write(path, [question(0), long, *map(question, range(2, 5))])
    with path.open("a") as file:
        file.write("{}\n")
    status = run(
        *("--model", model_folder, "--questions", path, "--batch-size", 2, "--max-tokens", 6),
        *("--limit", 3, "--max-prompt-tokens", 500, "--output", tmp_path / "out" / "test"),
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert f"{path}:6: field 'documents': is missing" in printed.err
    assert "3 prompts, 1 of them with shortened pages" in printed.err
    table = [line for line in printed.out.splitlines() if line.startswith("| ")]
    rows = [re.sub(" +", " ", line) for line in table]
    assert rows[2].startswith("| model | 3 | ")
    # First sentence: well-formed, verbatim, contains the answer, but claims the whole sentence.
    first = next(row for row in rows if row.startswith("| first sentence | 3 |"))
    assert [cell.split()[0] for cell in first.split("|")[3:-1]] == [
        "100.0", "100.0", "0.0", "28.6", "100.0", "0.0",
    ]  # fmt: skip
    gold = next(row for row in rows if row.startswith("| gold + TF-IDF sentence | 3 |"))
    assert [cell.split()[0] for cell in gold.split("|")[3:-1]] == ["100.0"] * 6
    assert printed.out.count("Question: When?") == 3

    lines = [json.loads(line) for line in (tmp_path / "out" / "test.jsonl").open()]
    assert [line["question_id"] for line in lines] == ["q0", "q1", "q3"]
    assert all(line["model"] == "tiny" and len(line["tokens"]) <= 6 for line in lines)
    report = (tmp_path / "out" / "test.md").read_text()
    assert "\n".join(table) in report
    assert "| When? | 1874 |" in report


def test_prompts_are_as_long_as_in_training_unless_there_are_examples() -> None:
    vocabulary = copy.copy(trained())
    config = TransformerConfig(
        vocab_size=vocabulary.size, d_model=16, num_layers=1, num_heads=2, head_dim=8
    )
    learned = dataclasses.replace(config, position="learned", max_positions=512)
    for architecture, length, more, expected in (
        (config, None, {}, 3840),
        (config, 1024, {}, 896),
        (config, 1024, {"max_tokens": 24}, 1000),
        (config, 1024, {"few_shot": "short"}, 3840),
        (config, 1024, {"max_prompt_tokens": 99}, 99),
        (learned, 1024, {}, 256),
        (learned, None, {"max_tokens": 24, "few_shot": "short"}, 488),
    ):
        vocabulary.trained_length = length
        model = Model(Transformer(architecture), {}, vocabulary, {})
        asking = Evaluation("questions.jsonl", "model", **more).asking(model)
        assert asking.prompts.prompt_tokens == expected


def test_pages_longer_than_in_training_are_cut(
    model_folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = tmp_path / "short", tmp_path / "questions.jsonl"
    shutil.copytree(model_folder, folder)
    (folder / "vocabulary" / "prompt.json").write_text('{"trained_length": 448}')
    renew(folder)
    records.write(path, [question(0), question(1, "Its lighthouse was built in 1874. " * 50)])
    arguments = ["--questions", path, "--batch-size", 2, "--max-tokens", 6, "--no-baselines"]
    for model, cut in ((folder, 1), (model_folder, 0)):
        assert run("--model", model, *arguments) == 0
        assert f"2 prompts, {cut} of them with shortened pages" in capsys.readouterr().err


def test_search_results_are_looked_up_and_asked_about_one_by_one(
    model_folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        "o": "Its lighthouse was built in 1874. " + "It is tall. " * 200,
        "i": "A river.",
        "s": "1",
    }
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add(Document(id, f"Page {id}", text) for id, text in texts.items())
    hits = {id: Hit(id, text[:30]) for id, text in texts.items()}
    asked = [
        Question(
            *("several", "When?", "test", (hits["o"], hits["i"], hits["s"]), ("1874",)),
            incorrect_answers=("never",),
        ),
        Question("nothing", "When?", "test", (hits["s"],), ("1874",)),
    ]
    path = tmp_path / "questions.jsonl"
    records.write(path, asked)
    main = runpy.run_path(str(SCRIPT))["main"]
    flags = {
        "--model": model_folder, "--questions": path, "--index": tmp_path / "corpus.db",
        "--pages": "each", "--samples": 2, "--max-tokens": 60, "--max-prompt-tokens": 100,
        "--batch-size": 4, "--output": tmp_path / "out",
    }  # fmt: skip
    arguments = [str(part) for flag in flags.items() for part in flag]
    judged = ["--reward-model", str(model_folder.with_name("judge")), "--train", str(path)]
    constrained = ["--constrained", "--omissions", "2", "--boundaries", "characters"]
    with entailment_server() as url:
        assert main([*arguments, *constrained, *judged, "--nli", url]) == 0
    printed = capsys.readouterr()
    assert "4 prompts, 1 of them with shortened pages" in printed.err
    assert "1 question declined: no quote from the pages shown fits" in printed.err
    assert re.search(r"\| model, constrained +\| 1 ", printed.out)
    assert re.search(r"\| first sentence +\| 1 ", printed.out)
    assert "citation recall %" in printed.out
    best, declined = (json.loads(line) for line in (tmp_path / "out.jsonl").open())
    assert (best["question_id"], best["declined"], best["verbatim"]) == ("several", False, True)
    assert (declined["question_id"], declined["declined"]) == ("nothing", True)
    assert "Declined, and counted in no row: 1 question." in (tmp_path / "out.md").read_text()
    every = [json.loads(line) for line in (tmp_path / "out_samples.jsonl").open()]
    assert sorted(sample["document"] for sample in every) == ["i", "i", "o", "o"]
    assert best["reward"] == max(sample["reward"] for sample in every)
    assert all(0 < sample["supported_and_plausible"] < 1 for sample in every)
    report = (tmp_path / "out.md").read_text()
    assert "citation recall %" in report
    assert re.search(r"\| question overlap +\| 1 ", report)
    assert "nearer to a right answer" in report
    written = {path.name.removeprefix("out") for path in tmp_path.glob("out*") if path.is_file()}
    assert "_coverage.png" in written
    assert written <= set(WRITTEN)
    (claim,) = (json.loads(line) for line in (tmp_path / "out_claims.jsonl").open())
    assert claim["incorrect_answers"] == ["never"]

    # The samples are what bootstrapping takes.
    rated = tmp_path / "rated.jsonl"
    files = [str(tmp_path / "out_samples.jsonl"), str(path), str(rated), "--style", "short"]
    assert bootstrap.main([*files, "--index", str(tmp_path / "corpus.db")]) in (0, 1)
    assert "4 samples of 1 question" in capsys.readouterr().out

    assert main([*arguments, "--constrained", "--limit", "1", "--max-tokens", "3"]) == 1
    assert "every question was declined" in capsys.readouterr().err


def test_baselines_need_no_model(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "questions.jsonl", [question(0)])
    main = runpy.run_path(str(SCRIPT))["main"]
    files = ["--questions", str(tmp_path / "questions.jsonl"), "--output", str(tmp_path / "out")]
    assert main(files) == 0
    printed = capsys.readouterr().out
    assert "| gold + TF-IDF sentence | 1 " in printed
    assert "| model" not in printed
    assert "| first sentence " in (tmp_path / "out.md").read_text()
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("file", "output"),
    [
        ("asked.jsonl", "asked"),
        ("x_samples.jsonl", "y/../x"),
        ("y/../asked.jsonl", "asked"),
        ("asked.json", "asked/"),
        ("asked.md", "link/asked"),
        ("{folder}/asked.html", "asked"),
        ("asked.jsonl", "{folder}/asked"),
        ("link/asked.jsonl", "asked"),
        ("pointer", "asked"),
    ],
)
def test_results_are_not_written_over_the_questions(
    file: str,
    output: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "pointer").symlink_to("asked.jsonl")
    file, output = (each.format(folder=tmp_path) for each in (file, output))
    records.write(file, [question(0)])
    records.write("others.jsonl", [question(1)])
    before = pathlib.Path(file).read_bytes()
    for inputs in (["--questions", file], ["--questions", "others.jsonl", "--train", file]):
        assert run(*inputs, "--model", tmp_path, "--output", output) == 1
        assert f" would overwrite {file}, which is an input" in capsys.readouterr().err
    assert pathlib.Path(file).read_bytes() == before


def test_objects_of_a_bucket_are_told_apart_by_name() -> None:
    """And no file system is asked about them."""
    with pytest.raises(ValueError, match=r"would overwrite gs://bucket//test\.jsonl"):
        Evaluation("gs://bucket//test.jsonl", output="gs://bucket/test")
    Evaluation("gs://bucket/test.jsonl", output="gs://other/test")
    Evaluation("bucket/test.jsonl", output="gs://bucket/test")


@pytest.mark.parametrize("content", ["", "{}\n", '{"id": "c", "prompt": "a", "completion": "b"}\n'])
def test_training_questions_none_of_which_can_be_read_are_refused(
    content: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compared with them, every question would be new."""
    records.write(tmp_path / "questions.jsonl", [question(0)])
    (tmp_path / "train.jsonl").write_text(content)
    files = ["--questions", tmp_path / "questions.jsonl", "--train", tmp_path / "questions.jsonl"]
    assert run(*files, tmp_path / "train.jsonl", "--model", tmp_path) == 1
    *skipped, refusal = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/train.jsonl: has no question that can be used" in refusal
    assert bool(content) == any(f"{tmp_path}/train.jsonl:1: " in line for line in skipped)


def test_bad_lines_of_training_questions_are_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "questions.jsonl"
    records.write(path, [question(0)])
    (tmp_path / "train.jsonl").write_text(path.read_text() + "{}\n")
    # Training questions are read before the model, which this folder isn't.
    assert run("--questions", path, "--train", tmp_path / "train.jsonl", "--model", tmp_path) == 1
    said = capsys.readouterr().err
    assert "train.jsonl: 1 record read, 1 skipped" in said
    assert f"{tmp_path}/train.jsonl:2: " in said


def test_search_results_without_their_pages_are_not_scored(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [
        Question(f"q{number}", "When?", "test", (Hit(page, "Its lighthouse"),), ("1874",))
        for number, page in enumerate(("o", "gone"))
    ]
    path = tmp_path / "questions.jsonl"
    records.write(path, found)
    for more in ([], ["--model", tmp_path]):
        assert run("--questions", path, *more) == 1
        printed = capsys.readouterr()
        assert "question 'q0': page 'o' has a snippet but no text; give the --index" in printed.err
        assert not printed.out

    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add([Document("o", "Ormsby", "Its lighthouse was built in 1874.")])
    given = ["--questions", path, "--index", tmp_path / "corpus.db"]
    problem = f"{path}: field 'documents': the index has no page 'gone' (question 'q1')"
    assert run(*given) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [f"{path}: 1 record read, 1 skipped", problem]
    assert re.search(r"\| first sentence +\| 1 ", printed.out)
    assert run(*given, "--strict") == 1
    assert capsys.readouterr().err == f"eval: {problem}\n"
    records.write(path, found[1:])
    assert run(*given) == 1
    assert [problem, f"eval: {path} has no question that can be asked"] == (
        capsys.readouterr().err.splitlines()[1:]
    )


@pytest.mark.parametrize(
    "setting",
    [
        "--nli=http://localhost",
        "--train=README.md",
        "--samples=2",
        "--few-shot=long",
        "--constrained",
        "--no-claim-in-quote",
        "--gin.Evaluation.seed=1",
    ],
)
def test_what_a_model_would_do_is_not_asked_of_baselines(
    setting: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "questions.jsonl", [question(0)])
    assert run("--questions", tmp_path / "questions.jsonl", setting) == 1
    printed = capsys.readouterr()
    flag = setting.partition("=")[0].replace("--gin.Evaluation.", "--")
    assert f"eval: without --model, only baselines are scored: leave {flag} out" in printed.err
    assert not printed.out


def test_claims_that_contain_an_answer_may_count_without_asking_again(
    model_folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "questions.jsonl", [question(0)])
    files = ["--questions", tmp_path / "questions.jsonl", "--output", tmp_path / "out"]
    flags = [*files, "--model", model_folder, "--max-tokens", 4, "--limit", 1]
    assert run(*flags) == 0
    # What this model writes is no answer: as if it had written one, in a sentence.
    (log,) = logs(tmp_path / "out")
    line = json.loads(log.read_text())
    line["samples"][0]["text"] = (
        " %<It was built in 1874.>%(Ormsby)%[Its lighthouse was built in 1874.]%"
    )
    log.write_text(f"{json.dumps(line)}\n")
    for rule, correct in (("equal", False), ("contain", True)):
        capsys.readouterr()
        assert run(*flags, "--claims", rule) == 0
        printed = capsys.readouterr()
        assert "1 already answered" in printed.err
        (answer,) = (json.loads(line) for line in (tmp_path / "out.jsonl").open())
        assert (answer["claim_correct"], answer["supported"]) == (correct, correct)
        # The sentence that this baseline claims is judged by the same rule.
        (first,) = (row for row in printed.out.splitlines() if row.startswith("| first sentence"))
        assert first.split("|")[5].strip().startswith("100.0" if correct else "0.0")
        assert json.loads((tmp_path / "out.json").read_text())["claims"] == rule
        assert ("if it contains an accepted answer" in (tmp_path / "out.md").read_text()) == correct
    log.write_text(f"{json.dumps(line)}\n" * 2)
    assert run(*flags) == 0  # as good as one
    other = log.with_name("00001-of-00002.jsonl")
    other.write_text(json.dumps(line | {"samples": line["samples"] * 2}) + "\n")
    assert run(*flags) == 1
    said = f"{other}: has another answer to question 'q0' than {log}; remove one of the two lines"
    assert said in capsys.readouterr().err
    other.unlink()
    for damaged in ({}, {"samples": [{}]}, {"samples": [line["samples"][0] | {"tokens": "x"}]}):
        log.write_text(json.dumps({"question_id": "q0", **damaged}) + "\n")
        assert run(*flags) == 1
        assert f"{log}: the line of question 'q0' is not a valid answer" in capsys.readouterr().err


def test_a_run_that_is_killed_ends_with_what_one_that_is_not_has(
    model_folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "questions.jsonl", map(question, range(20)))
    config = tmp_path / "eval.gin"
    config.write_text(
        f"Evaluation.model = '{model_folder}'\n"
        f"Evaluation.questions = '{tmp_path}/questions.jsonl'\n"
        "Evaluation.output = %OUTPUT\n"
        "Evaluation.batch_size = 1  # blocks of eight questions\n"
        "Evaluation.max_tokens = 64\n"
        "Evaluation.temperature = 0.5\n"
    )
    arguments = [f"--gin_file={config}", "--temperature", "1", "--samples", "2", "--examples", "0"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(*arguments, f"--gin.OUTPUT={whole}") == 0

    first = start(tmp_path / "compiled", *arguments, f"--gin.OUTPUT={killed}")
    while not any(log.read_bytes().count(b"\n") >= 3 for log in logs(killed)):
        assert first.poll() is None, first.stderr and first.stderr.read()
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (log,) = logs(killed)
    had = log.read_bytes().count(b"\n")
    assert had < 20
    with log.open("ab") as file:
        file.write(b'{"question_id": "q19", "sam')  # a line that was being written
    capsys.readouterr()

    # Other processes than those that began share what is left.
    two = ["--num_processes=2", f"--gin.OUTPUT={killed}"]
    assert run(*arguments, *two, "--process_id=1") == 0
    assert "questions left to the other processes" in capsys.readouterr().err
    assert not killed.with_suffix(".md").exists()
    assert run(*arguments, *two, "--process_id=0") == 0
    assert len(logs(killed)) == 3
    for suffix in (".jsonl", "_samples.jsonl"):
        assert pathlib.Path(f"{killed}{suffix}").read_bytes() == (
            pathlib.Path(f"{whole}{suffix}").read_bytes()
        )
    asked = [json.loads(line)["question_id"] for log in logs(killed) for line in whole_lines(log)]
    assert sorted(asked) == sorted(f"q{n}" for n in range(20))
    capsys.readouterr()
    assert run(*arguments, f"--gin.OUTPUT={killed}") == 0
    assert "20 questions, 20 already answered" in capsys.readouterr().err


def test_two_processes_with_halves_of_a_model_answer_what_one_does(
    model_folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """And so does one with two devices, which answering/test_loading.py has by default."""
    path, judge = tmp_path / "questions.jsonl", model_folder.with_name("judge")
    records.write(path, list(map(question, range(5))))
    how = ["--model", model_folder, "--questions", path, "--batch-size", 2, "--max-tokens", 24]
    how += ["--reward-model", judge, "--samples", 2, "--temperature", 1, "--constrained"]
    assert run(*how, "--output", tmp_path / "one") == 0
    others = ("cut", "two") if IS_LONG else ("two",)
    if "cut" in others:
        assert run(*how, "--output", tmp_path / "cut", "--model-parallel", 2) == 0
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    place = [f"--coordinator_address=localhost:{port}", "--num_processes=2", "--model-parallel", 2]
    pair = [
        start(
            *(tmp_path, *how, *place, f"--process_id={number}", "--output", tmp_path / "two"),
            stdout=subprocess.PIPE,
        )
        for number in (0, 1)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    assert ["Written: " in printed for printed, _ in said] == [True, False]
    answers = {}
    for name in ("one", *others):
        (log,) = logs(tmp_path / name)
        answers[name] = [json.loads(line) for line in whole_lines(log)]
    assert len(answers["one"]) == 5
    for name in others:
        for ours, theirs in zip(answers[name], answers["one"], strict=True):
            assert ours["question_id"] == theirs["question_id"]
            for sample, other in zip(ours["samples"], theirs["samples"], strict=True):
                for score in ("log_prob", "reward", "supported_and_plausible"):
                    assert sample.pop(score) == pytest.approx(other[score], abs=1e-3), score
                assert sample == {field: other[field] for field in sample}
    assert (tmp_path / "two.md").exists()


def logs(prefix: pathlib.Path) -> list[pathlib.Path]:
    return sorted(pathlib.Path(f"{prefix}.answers").glob("*/*.jsonl"))


def whole_lines(log: pathlib.Path) -> list[bytes]:
    return [line for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--questions", "missing.jsonl"], 1, "eval: missing.jsonl: there is no such file"),
        (["--temperature", "-1"], 1, "temperature = -1.0"),
        (["--batch-size", "0"], 2, "--batch-size is 0: must be at least 1"),
        (
            ["--process_id", "1"],
            2,
            "--process_id is 1: also give the number of processes with --num_processes",
        ),
        (["--omissions", "1"], 1, "omissions need constrained"),
        (["--boundaries", "sentences"], 1, "boundaries need constrained"),
        (["--gin.Evaluation.claims='like'"], 1, "claims is 'like': must be one of"),
        (["--choose", "rouge"], 1, "choose = 'rouge' needs few_shot = 'long'"),
        (["--seed", "9" * 20], 1, f"seed is {'9' * 20}: must be from 0 to 4294967295"),
        (["--batch-size", "9" * 20], 1, f"batch_size is {'9' * 20}: must be from 1 to"),
        (["--max-tokens", "9" * 20], 1, f"max_tokens is {'9' * 20}: must be from 1 to"),
        (["--max-tokens", "0"], 1, "max_tokens is 0: must be from 1 to"),
        (["--examples=-1"], 1, "examples is -1: must be at least 0"),
        (["--seed=-1"], 1, "seed is -1: must be from 0 to 4294967295"),
        (["--few-shot", "long", "--shots", "9"], 1, "eval: shots is 9: must be from 0 to 5"),
        (["--few-shot", "long", "--shots=-1"], 1, "eval: shots is -1: must be from 0 to 5"),
        (["--train", "missing.jsonl"], 1, "eval: missing.jsonl: there is no such file"),
        (
            ["--gin_file=gin_configs/evaluation/paper.gin", "--gin.REWARD_MODEL=nowhere"]
            + [f"--gin.{name}=nothing" for name in ("MODEL", "QUESTIONS", "OUTPUT")],
            *(1, "nowhere: not a model folder"),
        ),
        (["--gin.Evaluation.sample=2"], 1, "did you mean Evaluation.samples?"),
        (["--model", "nowhere"], 1, "eval: nowhere: there is no such folder"),
        (["--nli", "localhost:9"], 1, "eval: localhost:9: is not the address of a server"),
        (
            ["--nli", "http://127.0.0.1:9", "--model", "tests"],  # before the model is read
            *(1, "eval: http://127.0.0.1:9/predict: can't be reached: "),
        ),
        (["--model", "README.md"], 1, "README.md: is a file; expected the folder of a model"),
        (["--questions", "tests"], 1, "tests: is a folder; expected a file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    model_folder: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    path = tmp_path / "questions.jsonl"
    records.write(path, [question(0)])
    main = runpy.run_path(str(SCRIPT))["main"]
    try:
        found = main(["--model", str(model_folder), "--questions", str(path), *arguments])
    except SystemExit as exit:
        found = exit.code
    assert found == status
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval.py", "--questions", "missing.jsonl"],
        ["eval.py", "--questions=x.jsonl", "--gin.Evaluation.sample=2"],
        ["eval.py", "--help"],
        ["infer.py", "--model=nowhere", "--questions=README.md", "--output=answers.jsonl"],
    ],
)
def test_a_typing_mistake_waits_for_no_library(arguments: list[str]) -> None:
    """JAX and TensorFlow take seconds to import."""
    command = f"""
import runpy, sys
sys.argv[1:] = {arguments[1:]}
sys.path.insert(0, {str(SCRIPT.parent)!r})
try:
    runpy.run_path({str(SCRIPT.with_name(arguments[0]))!r}, run_name="__main__")
except SystemExit as exit:
    print(exit.code, sorted({{"jax", "tensorflow", "numpy"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"{int('--help' not in arguments)} []", done.stderr
    assert len(done.stderr.splitlines()) == ("--help" not in arguments)


def test_flags_offer_what_the_library_knows() -> None:
    flags = runpy.run_path(str(SCRIPT))
    assert flags["STYLES"] == tuple(style.value for style in Style)
    assert flags["CHOICES"] == get_args(Choice)

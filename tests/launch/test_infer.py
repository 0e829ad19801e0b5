"""Batches of questions, ended at any moment and gone on with."""

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

import jax
import pytest
from vocabulary_fixtures import trained

from gophercite import records
from gophercite.answering.verification import in_documents, verify
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records import Hit, Question
from gophercite.records.answers import answer_from_json
from gophercite.retrieval.index import DocumentIndex
from tests.drawn_parameters import drawn_parameters
from tests.long_forms import LONG

SCRIPT = pathlib.Path(__file__).parents[2] / "launch" / "infer.py"
PAGES = [
    Document(f"p{n}", f"Mill {n}", f"The mill number {n} burned in 18{n:02}. It had 14 wheels.")
    for n in range(8)
]
QUESTIONS = [
    *(
        Question(f"q{n}", f"When did mill {n} burn?", "test", (page,))
        for n, page in enumerate(PAGES)
    ),
    Question("blank", "When?", "test", (Document("b", "Blank", "  "),)),
    Question("hit", "Where?", "test", (Hit("h", "a snippet"),)),
]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("infer")
    config = TransformerConfig(
        vocab_size=trained().size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
        position="rope", dtype="float32",
    )  # fmt: skip
    transformer = Transformer(config)
    params = drawn_parameters(transformer)
    save_model(folder / "tiny", Model(transformer, params, trained(), {"id": "tiny"}))
    records.write(folder / "questions.jsonl", QUESTIONS)
    flags = {
        "--model": folder / "tiny",
        "--questions": folder / "questions.jsonl",
        "--samples": 2,
        "--max-tokens": 60,
        "--prompt-tokens": 200,
    }
    return [sys.executable, str(SCRIPT), *(str(part) for flag in flags.items() for part in flag)]


def start(command: list[str], output: pathlib.Path, *more: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(pathlib.Path(command[3]).parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [*command, "--output", str(output), *more],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(command: list[str], output: pathlib.Path, *more: str) -> int:
    """The same in this process."""
    status: int = runpy.run_path(command[1])["main"]([*command[2:], "--output", str(output), *more])
    return status


@pytest.mark.usefixtures("cache")
def test_a_run_that_is_killed_ends_with_what_one_that_is_not_has(
    command: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    in_twos = [*command, "--batch-size", "2"]
    assert run(in_twos, whole) == 0
    shown = re.findall(r"question (\d+)/", capsys.readouterr().err)
    assert shown == [str(min(2 * n, len(QUESTIONS))) for n in range(1, len(shown) + 1)]
    assert len(shown) == (len(QUESTIONS) + 1) // 2, "one line for each batch"
    first = start(in_twos, killed)
    while not (killed.exists() and killed.read_bytes().count(b"\n") >= 3):
        assert first.poll() is None, first.stderr and first.stderr.read()
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # As if it had ended between two answers of a batch, while the second's line was being written.
    lines = killed.read_bytes().splitlines(keepends=True)
    had = (killed.read_bytes().count(b"\n") - 1) // 2 * 2 + 1
    killed.write_bytes(b"".join(lines[:had]) + b'{"question_id": "q9", "cla')
    capsys.readouterr()
    assert run(in_twos, killed) == 0
    assert f"{len(QUESTIONS)} questions, {had} already answered" in capsys.readouterr().err
    assert killed.read_bytes() == whole.read_bytes()

    lines = [json.loads(line) for line in whole.read_text(encoding="utf-8").splitlines()]
    assert [line.pop("question_id") for line in lines] == [question.id for question in QUESTIONS]
    answers = [answer_from_json(line) for line in lines]
    for answer in answers[:-2]:
        (check,) = verify(answer, in_documents(PAGES, answer))
        assert check.holds
    assert [answer.reason is None for answer in answers[-2:]] == [False, False]
    assert "snippet" in str(answers[-1].reason)

    # How many questions and answers are taken at a time (here the usual: 128 with two answers each)
    # changes no answer, so a run may go on with another number. All else is refused.
    assert run(command, whole, "--max-num-seqs", "1") == 0
    said = capsys.readouterr().err
    assert "; 128 at the same time" in said
    assert f"{len(QUESTIONS)} already answered" in said
    for flag, value, setting in (
        ("--omissions", "2", "'maximum_omissions': 2"),
        ("--max-tokens", "61", "'max_tokens': 61"),
        ("--temperature", "0.5", "'temperature': 0.5"),
        ("--top-k", "7", "'top_k': 7"),
        ("--top-p", "0.5", "'top_p': 0.5"),
    ):
        assert run(command, whole, flag, value) == 1
        said = capsys.readouterr().err
        assert setting in said
        assert "Traceback" not in said

    # Nor are they the answers to other questions, or from other pages, with the same ids.
    other = tmp_path / "other.jsonl"
    before = whole.read_bytes()
    burned = dataclasses.replace(PAGES[2], text=PAGES[2].text + " It was rebuilt.")
    for changed, problem in (
        ({"question": "Who built mill 2?"}, "'When did mill 2 burn?', not 'Who built mill 2?'"),
        ({"documents": (burned,)}, "quotes a page 'p2' with another text"),
        ({"documents": (PAGES[1],)}, "quotes a page 'p2', which isn't one of its pages"),
    ):
        third = dataclasses.replace(QUESTIONS[2], **changed)
        records.write(other, [*QUESTIONS[:2], third, *QUESTIONS[3:]])
        assert run(command, whole, "--questions", str(other)) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"infer: {whole}: the answer to question 'q2' ")
        assert problem in said
    assert whole.read_bytes() == before
    whole.write_bytes(before + before.splitlines(keepends=True)[3])
    assert run(command, whole) == 1
    said = f"infer: {whole}: has two answers to question 'q3'; remove one of the two lines"
    assert capsys.readouterr().err.splitlines()[-1] == said
    whole.write_bytes(before)
    # A model is asked without the filters of a search.
    third = dataclasses.replace(QUESTIONS[2], question=f"{QUESTIONS[2].question}  -site:a.org")
    records.write(other, [*QUESTIONS[:2], third, *QUESTIONS[3:]])
    assert run(command, whole, "--questions", str(other)) == 0


def test_a_changed_index_or_model_is_noticed(
    command: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    model, index = tmp_path / "tiny", tmp_path / "corpus.db"
    blank = next(each for each in QUESTIONS if each.id == "blank")
    records.write(questions, [blank])  # is declined, so that nothing is compiled
    shutil.copytree(command[3], model)
    with DocumentIndex(index, write=True) as corpus:
        corpus.add(PAGES)
    flags = ["--questions", str(questions), "--model", str(model), "--index", str(index)]
    assert run(command, output, *flags) == 0
    with DocumentIndex(index, write=True) as corpus:
        corpus.add(PAGES)  # which it has
    assert run(command, output, *flags) == 0
    before = index.read_bytes()
    with DocumentIndex(index, write=True) as corpus:
        corpus.add([dataclasses.replace(PAGES[2], text="The mill number 2 burned in 1850.")])
    capsys.readouterr()
    assert run(command, output, *flags) == 1
    assert "was started with index_sha256 = " in capsys.readouterr().err
    index.write_bytes(before)
    loaded = load_model(model)
    others = jax.tree.map(lambda each: each + 1, loaded.params)
    save_model(model, dataclasses.replace(loaded, params=others))
    assert run(command, output, *flags) == 1
    assert "was started with parameters_sha256 = " in capsys.readouterr().err


def test_more_devices_than_there_are_are_refused(
    command: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(SCRIPT))["main"]
    arguments = [*command[2:], "--output", str(tmp_path / "answers.jsonl")]
    for more, said in (
        (["--model-parallel", "2", "--data-parallel", "5"], "needs 10 devices, and there are 8"),
        (["--model-parallel", "4"], "2 attention heads can't be split evenly over 4 devices"),
    ):
        assert main([*arguments, *more]) == 1
        assert said in capsys.readouterr().err


@LONG  # test_eval.py has two processes that write what they sample
def test_two_processes_with_halves_of_a_model_write_what_one_does(
    command: list[str], tmp_path: pathlib.Path
) -> None:
    assert run(command, tmp_path / "one.jsonl") == 0
    output = tmp_path / "two.jsonl"

    def together(*more: str, kill_first: bool = False) -> list[tuple[int, str]]:
        """The exit statuses of two processes, and what they say."""
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        said = [f"--coordinator_address=localhost:{port}", "--num_processes=2", *more]
        said += ["--batch-size=2", "--model-parallel=2"]
        pair = [start(command, output, *said, f"--process_id={number}") for number in (0, 1)]
        if kill_first:
            while "0 already answered" not in pair[0].stderr.readline():  # they begin to compile
                assert pair[0].poll() is None
            pair[0].kill()
        errors = [process.communicate(timeout=300)[1] for process in pair]
        return [(each.returncode, text) for each, text in zip(pair, errors, strict=True)]

    # If one is killed, the other ends with a line.
    (_, shown), (second, silent) = together(kill_first=True)
    assert second == 69, silent
    assert silent.splitlines()[-1].startswith("infer: process 0 of 2 is gone"), silent
    # They go on where they were: what is left is what the first finds in its file.
    begun = b"".join((tmp_path / "one.jsonl").read_bytes().splitlines(keepends=True)[:3])
    output.write_bytes(begun)
    (first, shown), (second, silent) = together()
    assert (first, second) == (0, 0), shown + silent
    assert "10 questions, 3 already answered" in shown
    assert "already answered" not in silent
    assert output.read_bytes().startswith(begun)
    ours, theirs = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (output, tmp_path / "one.jsonl")
    )
    assert len(ours) == len(theirs) == len(QUESTIONS)
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("score", "consensus"):
            assert mine.get(name) == pytest.approx(other.get(name), abs=1e-4)
        for answer in (mine, other):
            for name in ("score", "likelihood", "consensus"):
                answer.pop(name, None)
    assert ours == theirs
    # Both refuse the settings of another run, for the same reason.
    refused = together("--seed=1")
    assert [status for status, _ in refused] == [1, 1]
    assert all("two.jsonl" in text for _, text in refused), refused


def test_a_place_among_others_needs_an_address(
    command: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(command, tmp_path / "answers.jsonl", "--num_processes=2", "--process_id=0")
    assert "also need --coordinator_address" in capsys.readouterr().err

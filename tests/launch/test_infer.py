"""Batches of questions, ended at any moment and gone on with."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest
from vocabulary_fixtures import trained

from gophercite import records
from gophercite.answering.answer_file import AnswerFile, AnswerFileError
from gophercite.answering.verification import in_documents, verify
from gophercite.answers import Answer, answer_from_json
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.folder import Model, save_model
from gophercite.models.transformer import Transformer
from gophercite.records import Hit, Question

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
    params = transformer.init(jax.random.key(0))
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


def test_a_run_that_is_killed_ends_with_what_one_that_is_not_has(
    command: list[str], tmp_path: pathlib.Path
) -> None:
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert start(command, whole).wait() == 0
    first = start(command, killed)
    while not (killed.exists() and killed.read_bytes().count(b"\n") >= 3):
        assert first.poll() is None, first.stderr and first.stderr.read()
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    had = killed.read_bytes()
    with killed.open("ab") as file:
        file.write(b'{"question_id": "q9", "cla')  # a line that was being written
    second = start(command, killed)
    _, said = second.communicate()
    assert second.returncode == 0
    assert f"{len(QUESTIONS)} questions, {had.count(chr(10).encode())} answered already" in said
    assert killed.read_bytes() == whole.read_bytes()

    lines = [json.loads(line) for line in whole.read_text(encoding="utf-8").splitlines()]
    assert [line.pop("question_id") for line in lines] == [question.id for question in QUESTIONS]
    answers = [answer_from_json(line) for line in lines]
    for answer in answers[:-2]:
        (check,) = verify(answer, in_documents(PAGES, answer))
        assert check.holds
    assert [answer.reason is None for answer in answers[-2:]] == [False, False]
    assert "snippet" in str(answers[-1].reason)

    other = start(command, whole, "--temperature", "0.5")
    _, said = other.communicate()
    assert other.returncode == 1
    assert "temperature" in said
    assert "Traceback" not in said


ANSWER = Answer(question="Why?", model="m", reason="nothing was found")


def test_two_processes_never_write_one_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerFile(path, {"seed": 0}) as answers:
        answers.append("q", ANSWER)
        with pytest.raises(AnswerFileError, match="another process"):
            AnswerFile(path, {"seed": 0})
    with AnswerFile(path, {"seed": 0}) as answers:
        assert answers.done == {"q"}


@pytest.mark.parametrize(
    ("content", "run", "said"),
    [
        (b'{"question_id": "q"}\nnonsense\n', None, "answers.jsonl:2"),
        (b"[]\n", None, "answers.jsonl:1"),
        (b'{"question_id": "q"}\n', None, "answers.run.json"),
        (b"", b"{", "no JSON"),
        (b"", b'{"seed": 1}', "seed = 1, not 0"),
    ],
)
def test_a_file_that_can_t_be_gone_on_with_stays_as_it_is(
    tmp_path: pathlib.Path, content: bytes, run: bytes | None, said: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)
    if run is not None:
        (tmp_path / "answers.run.json").write_bytes(run)
    with pytest.raises(AnswerFileError, match=said):
        AnswerFile(path, {"seed": 0})
    assert path.read_bytes() == content

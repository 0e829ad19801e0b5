"""The command that trains a vocabulary, run as its users run it."""

import gzip
import json
import pathlib
import subprocess
import sys

import pytest
from vocabulary_fixtures import TEXTS

from gophercite.vocabularies import load_vocabulary

SCRIPT = pathlib.Path(__file__).parents[2] / "launch" / "train_vocabulary.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(argument) for argument in (sys.executable, SCRIPT, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_text_and_json_lines_are_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), "utf-8")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps({"title": "Zyzzyva", "text": "zyzzyva " * 50, "other": "x"}) + "\n")
    output = tmp_path / "vocabulary"
    done = run(
        "--input", tmp_path / "a.txt", tmp_path / "b.jsonl.gz", "--size", 400, "--output", output
    )
    assert done.returncode == 0, done.stderr
    vocabulary = load_vocabulary(output)
    assert f"{output}: {vocabulary.size} pieces" in done.stdout
    assert len(vocabulary.encode(" zyzzyva")) < 4
    assert len(vocabulary.encode(" %<")) == 1


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ('{"text": NaN}\n', "text", "a.jsonl:1: NaN is not a JSON number"),
        ('{"text": "a"}\n', "body,title", "has text in a field named body or title"),
        ('{"text": ""}\n', "text", "the texts are empty"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: pathlib.Path, content: str, fields: str, message: str
) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    done = run(
        *("--input", tmp_path / "a.jsonl", "--fields", fields),
        *("--size", 400, "--output", tmp_path / "v"),
    )
    assert done.returncode == 1
    assert done.stderr.startswith("train_vocabulary: ")
    assert message in done.stderr
    assert "SentencePiece" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "v").exists()


def test_a_missing_file_is_one_line(tmp_path: pathlib.Path) -> None:
    done = run("--input", tmp_path / "none.txt", "--size", 400, "--output", tmp_path / "v")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "none.txt" in done.stderr

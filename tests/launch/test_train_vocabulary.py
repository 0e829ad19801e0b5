"""The command that trains a vocabulary, run as its users run it."""

import gzip
import json
import pathlib
import subprocess
import sys

import pytest
from google_storage import BUCKET, google_storage
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


def test_texts_are_read_from_a_bucket_and_the_vocabulary_is_written_to_a_disk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with google_storage() as storage:
        storage.write("a.txt", "\n".join(TEXTS).encode())
        line = json.dumps({"title": "Zyzzyva", "text": "zyzzyva " * 50})
        storage.write("b.jsonl.gz", gzip.compress(line.encode()))
        files = ["--input", f"{BUCKET}/a.txt", f"{BUCKET}/b.jsonl.gz", "--size", 400]
        done = run(*files, "--output", "v")
        assert done.returncode == 0, done.stderr
        assert len(load_vocabulary(tmp_path / "v").encode(" zyzzyva")) < 4
        refused = run(*files, "--output", f"{BUCKET}/v")
    assert refused.returncode == 2
    assert f"--output is {BUCKET}/v: must be a folder on a disk" in refused.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_a_seed_that_is_none_is_one_line(tmp_path: pathlib.Path) -> None:
    given = ["--input", tmp_path / "a.txt", "--size", 400, "--output", tmp_path / "v"]
    done = run(*given, "--seed", -1)
    assert done.returncode == 2
    assert "--seed: -1: must be from 0 to 4294967295" in done.stderr.splitlines()[-1]


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

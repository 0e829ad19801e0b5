"""A file of results that grows, and what it refuses to go on with."""

import contextlib
import os
import pathlib

import pytest
from google_storage import BUCKET, google_storage

from gophercite.storage.result_file import ResultFile, ResultFileError, files_in, read_results


def test_two_processes_never_write_one_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "answers.jsonl"
    with ResultFile(path, {"seed": 0}) as answers:
        answers.append({"question_id": "q", "claim": "naïve"}, {"question_id": "r"})
        with pytest.raises(ResultFileError, match="another process"):
            ResultFile(path, {"seed": 0})
    with ResultFile(path, {"seed": 0}) as answers:
        assert answers.done == {"q", "r"}


@pytest.mark.parametrize(
    ("content", "run", "said"),
    [
        (b'{"question_id": "q"}\nnonsense\n', None, "answers.jsonl:2"),
        (b"[]\n", None, "answers.jsonl:1"),
        (b'{"question_id": "q"}\n', None, "answers.run.json"),
        (b'{"one": "line, which a tool wrote without a line feed"}', None, "answers.run.json"),
        (b"", b"{", "is not JSON"),
        (b"", b'{"seed": 1}', "seed = 1, not 0"),
        (b"", b"[0]", r"answers.run.json: expected an object, got the list \[0\]"),
        (b"", b"[" * 200_000, "answers.run.json: is not JSON"),
        (b"[" * 200_000 + b"\n", None, "answers.jsonl:1"),
        (b'{"question_id": "q"}\r{"question_id": "r"}\n', None, "answers.jsonl:1"),
    ],
)
def test_a_file_that_can_t_be_gone_on_with_stays_as_it_is(
    tmp_path: pathlib.Path, content: bytes, run: bytes | None, said: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)
    if run is not None:
        (tmp_path / "answers.run.json").write_bytes(run)
    with pytest.raises(ResultFileError, match=said):
        ResultFile(path, {"seed": 0})
    assert path.read_bytes() == content


def test_files_whose_names_differ_after_the_last_dot_are_of_runs_of_their_own(
    tmp_path: pathlib.Path,
) -> None:
    for temperature in (0.7, 0.9):
        with ResultFile(tmp_path / f"answers-t{temperature}", {"temperature": temperature}):
            pass
    assert (tmp_path / "answers-t0.7.run.json").exists()


def test_what_is_no_ordinary_file_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null", "."):
        with pytest.raises(ResultFileError, match=f"{tmp_path / name}: is not an ordinary file"):
            ResultFile(tmp_path / name, {"seed": 0})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["null", "pipe"]


def test_half_a_line_is_removed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "answers.jsonl"
    with ResultFile(path, {"seed": 0}):
        pass
    path.write_bytes(b'{"question_id": "q", "cla')  # killed while it wrote its first result
    with ResultFile(path, {"seed": 0}) as answers:
        assert answers.done == set()
    assert path.read_bytes() == b""


def test_a_name_that_promises_compression_is_refused(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "answers.jsonl.gz", f"{BUCKET}/runs/answers.jsonl.gz"):
        with pytest.raises(ResultFileError, match=r"jsonl\.gz: .* without \.gz"):
            ResultFile(path, {"seed": 0})
    assert list(tmp_path.iterdir()) == []


def test_in_a_bucket_lines_are_objects_of_their_own() -> None:
    path, name = f"{BUCKET}/runs/answers.jsonl", "runs/answers.jsonl"
    with google_storage() as storage:
        with ResultFile(path, {"seed": 0}) as answers:
            answers.append({"question_id": "p", "claim": "naïve"}, {"question_id": "q"})
            answers.append({"question_id": "r"})
        assert storage.read(name).count(b"\n") == 3
        with contextlib.suppress(KeyboardInterrupt), ResultFile(path, {"seed": 0}) as answers:
            assert answers.done == {"p", "q", "r"}
            answers.append({"question_id": "s"})
            raise KeyboardInterrupt
        assert storage.read(name).count(b"\n") == 3  # of the run that ended well
        assert f"{name}.parts/00000002.jsonl" in storage.names()
        with pytest.raises(ResultFileError, match="seed = 0, not 1"):
            ResultFile(path, {"seed": 1})
        assert [result["question_id"] for result in read_results(path)] == ["p", "q", "r", "s"]
        # Another process writes, of which this one's client knows nothing.
        storage.write(f"{name}.parts/00000004.jsonl", b'{"question_id": "t"}\n')
        assert [result["question_id"] for result in read_results(path)][-1] == "t"
        assert files_in(f"{BUCKET}/nowhere") == []
        storage.write("runs/foreign.jsonl", b"{}")  # it would be overwritten at the end
        with pytest.raises(ResultFileError, match=r"is not empty, but foreign\.run\.json"):
            ResultFile(f"{BUCKET}/runs/foreign.jsonl", {"seed": 0})

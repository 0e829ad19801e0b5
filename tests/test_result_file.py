"""A file of results that grows, and what it refuses to go on with."""

import pathlib

import pytest

from gophercite.result_file import ResultFile, ResultFileError


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
    with pytest.raises(ResultFileError, match=said):
        ResultFile(path, {"seed": 0})
    assert path.read_bytes() == content

"""Inputs of which nothing can be used: a command says so, and what it wrote earlier stays."""

import gzip
import pathlib
from collections.abc import Callable

import pytest

from data_pipelines import convert, question_sets, sample_comparisons, search
from gophercite.retrieval.index import DocumentIndex


@pytest.mark.parametrize(
    ("main", "arguments", "written"),
    [
        (sample_comparisons.main, ["IN", "OUT"], "comparisons_train.jsonl"),
        (search.main, ["questions", "IN", "OUT/q.jsonl", "--index", "CORPUS"], "q.jsonl"),
        (search.main, ["rated-answers", "IN", "OUT/a.jsonl", "--index", "CORPUS"], "a.jsonl"),
        (question_sets.main, ["IN", "OUT", "--share", "a=1"], "questions_a.jsonl"),
        (convert.main, ["eli5", "IN", "OUT"], "questions_train.jsonl"),
        (convert.main, ["squad", "IN", "OUT"], "rated_answers_train.jsonl"),
        (convert.main, ["textbooks", "IN", "OUT"], "documents_train.jsonl"),
        (convert.main, ["qa_feedback", "IN", "OUT"], "comparisons_train.jsonl"),
        (convert.main, ["fool_me_twice_comparisons", "IN", "OUT"], "comparisons_train.jsonl"),
        (convert.main, ["webcpm", "IN", "OUT"], "demonstrations_train.jsonl.gz"),
    ],
)
@pytest.mark.parametrize("content", [b"", b"{}\n", b"[]\n", b'{"data": []}\n'])
def test_what_was_written_earlier_stays(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[list[str]], int],
    arguments: list[str],
    written: str,
    content: bytes,
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    out = tmp_path / "out"
    out.mkdir()
    (out / written).write_text("mine")
    DocumentIndex(tmp_path / "i.db", write=True).close()
    places = {"IN": tmp_path / "in.jsonl", "OUT": out, "CORPUS": tmp_path / "i.db"}
    given = []
    for argument in arguments:
        for name, place in places.items():
            argument = argument.replace(name, str(place))
        given.append(argument)
    assert main(given) == 1
    assert capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [(written, "mine")]


def test_a_damaged_file_of_samples_is_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "samples.jsonl.gz"
    file.write_bytes(gzip.compress(b"{}\n" * 1000)[:-20])
    assert sample_comparisons.main([str(file), str(tmp_path / "out")]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"sample_comparisons: {file}:")
    assert "the compressed file is damaged here" in line

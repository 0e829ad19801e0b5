"""A person's own files: what becomes a document, what is named and skipped, what an index keeps."""

import json
import os
import pathlib
from collections.abc import Iterator

import pytest
from pages import HTML, pdf, words_at

from gophercite import cli
from gophercite.documents import Document
from gophercite.retrieval.extraction import Extractor
from gophercite.retrieval.files import FilesReport, is_below, read_files
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.text import Budget


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor(budget=Budget(content_bytes=100_000)) as extractor:
        yield extractor


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "my files"
    (root / "b").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x.txt").write_text("secret")
    (root / "a.txt").write_bytes(b"caf\xe9\r\nA harbour.")
    (root / "b" / "notes.md").write_text("# Notes\n\nThe lighthouse.")
    (root / "b" / "page.HTML").write_text(HTML)
    (root / "c.pdf").write_bytes(pdf(words_at("Forty workers."), title=""))
    (root / "d.jsonl").write_text('{"id": "1", "title": "T", "text": "A ship."}\n{"id": "2"}\n')
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 no more")
    (root / "empty.txt").write_text(" \n")
    (root / "huge.txt").write_text("x" * 100_001)
    (root / "picture.png").write_bytes(b"\x89PNG")
    (root / "link.txt").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe.txt")
    return root


def test_folder(folder: pathlib.Path, extractor: Extractor) -> None:
    report = FilesReport()
    documents = {d.title: d for d in read_files([folder], extractor, report)}
    assert list(documents) == ["a", "c", "T", "Notes", "Ormsby – a town"]
    first = documents["a"]
    assert first.text == "café\nA harbour."
    assert first.id == first.url == (folder / "a.txt").as_uri()
    assert first.retrieved_at is not None
    assert first.retrieved_at.endswith("Z")
    assert documents["T"] == Document("1", "T", "A ship.")
    assert (report.read, report.skipped, report.ignored, report.partial) == (5, 5, 1, [])
    for name in ("broken.pdf: is no PDF", "empty.txt: has no text", "huge.txt: has 100001 bytes",
                 "pipe.txt: is no ordinary file", "d.jsonl:2: field 'title'"):  # fmt: skip
        assert any(name in problem for problem in report.problems), name
    assert str(report).startswith("5 documents read, 5 skipped, 1 files of other kinds")


def test_named_file_of_another_kind_is_a_problem(
    folder: pathlib.Path, extractor: Extractor
) -> None:
    report = FilesReport()
    assert list(read_files([folder / "picture.png"], extractor, report)) == []
    assert "picture.png: is of no kind that is read (.txt" in report.problems[0]


def test_missing_path_is_refused_first(folder: pathlib.Path, extractor: Extractor) -> None:
    with pytest.raises(FileNotFoundError):
        next(read_files([folder, folder / "nothing"], extractor))


def test_what_is_below() -> None:
    assert is_below("file:///a/b.txt", ["/a"])
    assert is_below("file:///a/b.txt", ["/x", "/a/b.txt"])
    assert not is_below("file:///ab/c.txt", ["/a"])
    assert not is_below("1", ["/"])


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, object]]:
    status = cli.main(["index", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_index_follows_the_files(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "corpus.db"
    for name in ("broken.pdf", "empty.txt", "pipe.txt", "huge.txt", "d.jsonl"):
        (folder / name).unlink()
    status, result = run(capsys, folder, "--out", out)
    assert (status, result["added"], result["documents"]) == (0, 4, 4)
    _, result = run(capsys, folder, "--out", out)
    assert (result["added"], result["unchanged"], result["deleted"]) == (0, 4, 0)

    (folder / "a.txt").write_text("A windmill.")
    (folder / "c.pdf").unlink()
    other = tmp_path / "other.txt"
    other.write_text("Elsewhere.")
    status, result = run(capsys, folder, other, "--out", out)
    assert (result["added"], result["updated"], result["deleted"]) == (1, 1, 1)
    # What lies outside of the paths that are given stays.
    other.unlink()
    _, result = run(capsys, folder, "--out", out)
    assert (result["documents"], result["deleted"]) == (4, 0)
    with DocumentIndex(out) as index:
        (hit,) = index.search("windmill", 5)
        assert hit.url == (folder / "a.txt").as_uri()
        assert (folder / "c.pdf").as_uri() not in index.ids()


def test_index_names_what_it_skips(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["index", str(folder), "--out", str(tmp_path / "corpus.db")]) == 1
    output = capsys.readouterr().out
    assert "broken.pdf: is no PDF that can be read" in output
    assert "6 documents (6 added, 0 updated, 0 unchanged, 0 deleted)" in output


def test_index_refuses_a_foreign_file(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.txt"
    out.write_text("my own words " * 100)
    assert cli.main(["index", str(folder), "--out", str(out)]) == 1
    captured = capsys.readouterr()
    assert captured.err == f"gophercite index: {out}: is no index, and no database at all\n"
    assert out.read_text() == "my own words " * 100

"""A person's own files: what becomes a document, what is named and skipped, what an index keeps."""

import json
import os
import pathlib
import random
import tempfile
from collections.abc import Iterator

import pytest
from pages import HTML, LOCKED, pdf, words_at

import gophercite
from gophercite import cli
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import Budget
from gophercite.retrieval.files import FilesReport, is_below, read_files
from gophercite.retrieval.index import DocumentIndex


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
    for name in ("broken.pdf: can't be read as a PDF",
                 "empty.txt: has no text", "huge.txt: has 100001 bytes",
                 "pipe.txt: is not an ordinary file", "d.jsonl:2: field 'title'"):  # fmt: skip
        assert any(name in str(problem) for problem in report.problems), name
    counts = "5 documents read, 5 skipped, 1 file of other kinds ignored, 1 symbolic link not"
    assert str(report).startswith(counts)


def test_named_file_of_another_kind_is_a_problem(
    folder: pathlib.Path, extractor: Extractor
) -> None:
    report = FilesReport()
    assert list(read_files([folder / "picture.png"], extractor, report)) == []
    assert "picture.png: is not of a kind that can be read (.txt" in str(report.problems[0])


def test_missing_path_is_refused_first(folder: pathlib.Path, extractor: Extractor) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        next(read_files([folder, folder / "nothing"], extractor))
    assert str(caught.value) == f"{folder / 'nothing'}: there is no such file or folder"
    (folder / "dangling.txt").symlink_to("gone.txt")
    with pytest.raises(FileNotFoundError) as caught:
        next(read_files([folder / "dangling.txt"], extractor))
    assert str(caught.value).endswith("dangling.txt: is a link to 'gone.txt', which does not exist")


def problems(extractor: Extractor, *paths: pathlib.Path) -> list[str]:
    report = FilesReport()
    assert list(read_files(paths, extractor, report)) == []
    return [each.reason for each in report.problems]


def test_files_without_a_text_are_told_apart(tmp_path: pathlib.Path, extractor: Extractor) -> None:
    noise = random.Random(0).randbytes(90_000)
    kinds = {
        "empty.txt": b"",
        "empty.pdf": b"",
        "empty.jsonl": b"",
        "noise.txt": noise,
        "noise.md": noise,
        "wide.txt": "A lighthouse".encode("utf-16-le"),
        "noise.pdf": noise,
        "locked.pdf": LOCKED,
        "noise.html": noise,
    }
    for name, content in kinds.items():
        (tmp_path / name).write_bytes(content)
    found = {name: problems(extractor, tmp_path / name) for name in kinds}
    binary = ["is not text: it has too many control characters"]
    assert found["empty.txt"] == found["empty.pdf"] == found["empty.jsonl"] == ["is empty"]
    assert found["noise.txt"] == found["noise.md"] == found["wide.txt"] == binary
    assert found["noise.html"] == ["is not HTML: it has too many control characters"]
    assert found["noise.pdf"] == ["can't be read as a PDF: PDFSyntaxError"]
    assert found["locked.pdf"] == ["is encrypted: it opens only with a password"]


def test_a_pdf_of_any_name_is_read_as_one(tmp_path: pathlib.Path, extractor: Extractor) -> None:
    """Its own text is what a reader sees of it; its bytes were quoted."""
    for name in ("paper.html", "paper.txt", "paper.md"):
        (tmp_path / name).write_bytes(pdf(words_at("A windmill turns."), title="Mills"))
    for document in read_files([tmp_path], extractor):
        assert (document.title, document.text.strip()) == ("Mills", "A windmill turns.")
        assert document.page_starts == (0,)
    (tmp_path / "scanned.html").write_bytes(pdf(b""))
    assert problems(extractor, tmp_path / "scanned.html") == ["has no text (scanned pages?)"]


def test_only_ordinary_files_are_read(tmp_path: pathlib.Path, extractor: Extractor) -> None:
    names = ("pipe.txt", "pipe.jsonl", "pipe.jsonl.gz", "pipe")  # which nobody ever writes to
    for name in names:
        os.mkfifo(tmp_path / name)
        assert problems(extractor, tmp_path / name) == ["is not an ordinary file"]
    assert problems(extractor, tmp_path) == ["is not an ordinary file"] * 3


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a file system in memory")
@pytest.mark.parametrize("changed", [253_402_300_800, 1 << 60, -62_135_596_801])
def test_a_time_that_no_calendar_has_is_left_out(changed: int, extractor: Extractor) -> None:
    """File systems on disks have a smaller range of times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = pathlib.Path(folder, "a.txt")
        path.write_text("A windmill.")
        os.utime(path, (changed, changed))
        (document,) = read_files([path], extractor)
    assert (document.text, document.retrieved_at) == ("A windmill.", None)


def test_links_to_files_and_folders_are_counted(
    tmp_path: pathlib.Path, extractor: Extractor
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("A windmill.")
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("one", "two", ".hidden"):
        (folder / name).symlink_to(tmp_path / "elsewhere")
    (folder / "b.txt").symlink_to(tmp_path / "elsewhere" / "a.txt")
    report = FilesReport()
    assert list(read_files([folder], extractor, report)) == []
    assert report.links == 3


def test_text_with_colours_and_tables_is_text(tmp_path: pathlib.Path, extractor: Extractor) -> None:
    text = "\x1b[1mbold\x1b[0m\tcell\tcell\f\x00 one zero\r\n" + "Ünïcödé " * 20
    (tmp_path / "log.txt").write_bytes(text.encode())
    (document,) = read_files([tmp_path], extractor)
    assert "one zero" in document.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_named(tmp_path: pathlib.Path, extractor: Extractor) -> None:
    (tmp_path / "mine.txt").write_text("Text.")
    (tmp_path / "mine.txt").chmod(0)
    assert problems(extractor, tmp_path / "mine.txt") == ["can't be read: permission denied"]


def test_a_file_that_goes_while_it_is_read_is_named(
    tmp_path: pathlib.Path, extractor: Extractor
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("Text.")
    report = FilesReport()
    documents = read_files([tmp_path / "a.txt", tmp_path / "b.txt"], extractor, report)
    next(documents)
    (tmp_path / "b.txt").unlink()
    assert list(documents) == []
    assert [each.reason for each in report.problems] == ["can't be read: no such file or directory"]


def test_the_library_names_what_it_could_not_use(folder: pathlib.Path) -> None:
    found = gophercite.answer("What is by the harbour?", folder, None)
    assert found.citations[0].quote.endswith("A harbour.")
    named = {pathlib.Path(each.document.partition(":")[0]).name for each in found.left_out}
    assert named == {"broken.pdf", "empty.txt", "pipe.txt", "d.jsonl"}
    declined = gophercite.answer("What is by the harbour?", folder / "broken.pdf", None)
    assert declined.reason == (
        "the only page that was found cannot be read: can't be read as a PDF: PDFSyntaxError"
    )


def test_of_two_documents_with_one_id_the_first_is_kept(tmp_path: pathlib.Path) -> None:
    one, other, same = (tmp_path / f"{name}.jsonl" for name in ("one", "other", "same"))
    one.write_text('{"id": "1", "title": "T", "text": "A lighthouse of 1874."}\n')
    other.write_text('{"id": "1", "title": "T", "text": "A windmill of 1902."}\n')
    same.write_text('{"id": "1", "title": "Title", "text": "A lighthouse of 1874."}\n')
    found = gophercite.answer("When was the lighthouse built?", [one, same, other], None)
    assert found.citations[0].quote == "A lighthouse of 1874."
    (left_out,) = found.left_out
    assert left_out.document == f"{other}:1"
    assert left_out.reason == (
        f"field 'id': '1' is already the id of a document of {one} with another text"
    )


def test_names_that_are_no_text_stay_in_the_index(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes that are no UTF-8: such a file was added and deleted by turns."""
    folder, out = tmp_path / "files", tmp_path / "corpus.db"
    folder.mkdir()
    odd = os.fsencode(folder) + b"/na\xefve #1?%41.txt"
    for path in (odd, os.fsencode(folder) + b"/caf\xe9.pdf"):
        with open(path, "wb") as file:
            file.write(b"A windmill turns.")
    for expected in ((1, 0, 0), (0, 1, 0), (0, 1, 0)):
        _, result = run(capsys, folder, "--out", out)
        assert (result["added"], result["unchanged"], result["deleted"]) == expected
        assert result["problems"] == [
            f"{folder}/caf\ufffd.pdf: can't be read as a PDF: PDFSyntaxError"
        ]
    with DocumentIndex(out) as index:
        (id,) = index.ids()
        assert index.document(id).title == "na\ufffdve #1?%41"
    assert cli.main(["index", str(folder), "--out", str(out)]) == 1
    assert "caf\ufffd.pdf: can't be read as a PDF" in capsys.readouterr().out
    os.unlink(odd)
    _, result = run(capsys, folder, "--out", out)
    assert (result["documents"], result["deleted"]) == (0, 1)


def test_the_largest_file_is_as_large_as_is_said(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "large.txt").write_text("A windmill turns. " * 100_000)
    arguments = (tmp_path / "large.txt", "--out", tmp_path / "corpus.db", "--max-file-size")
    status, result = run(capsys, *arguments, 1)
    assert (status, result["skipped"]) == (1, 1)
    status, result = run(capsys, *arguments, 2)
    assert (status, result["added"]) == (0, 1)


def test_what_is_below() -> None:
    assert is_below("file:///a/b.txt", ["/a"])
    assert is_below("file:///a/b.txt", ["/x", "/a/b.txt"])
    assert not is_below("file:///ab/c.txt", ["/a"])
    assert not is_below("1", ["/"])
    assert is_below("file:///a/b.txt", ["/"])


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
    assert "broken.pdf: can't be read as a PDF" in output
    assert "6 documents (6 added, 0 updated, 0 unchanged, 0 deleted)" in output


def test_index_refuses_a_foreign_file(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.txt"
    out.write_text("my own words " * 100)
    assert cli.main(["index", str(folder), "--out", str(out)]) == 1
    captured = capsys.readouterr()
    assert captured.err == f"gophercite index: {out}: is not an index: it is not even a database\n"
    assert out.read_text() == "my own words " * 100

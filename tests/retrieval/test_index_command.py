"""`gophercite index`: an index follows its sources, and says what it added and deleted."""

import contextlib
import gzip
import json
import pathlib
import sqlite3
from collections.abc import Iterable

import pytest

from gophercite import cli
from gophercite.documents import Document
from gophercite.retrieval.index import Changes, DocumentIndex


def write_lines(path: pathlib.Path, ids: str, text: str = "A windmill.") -> None:
    lines = "".join(f'{{"id": "{id}", "title": "T", "text": "{text}"}}\n' for id in ids)
    content = lines.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def run(
    capsys: pytest.CaptureFixture[str], index: pathlib.Path, *paths: pathlib.Path
) -> tuple[list[int], list[str]]:
    """Updates the index: how many were added, updated, unchanged, deleted; what it has then."""
    cli.main(["index", *map(str, paths), "--out", str(index), "--json"])
    result = json.loads(capsys.readouterr().out)
    with DocumentIndex(index, write=True) as opened:
        opened.check()
        ids = sorted(pathlib.Path(id).name for id in opened.ids())
    assert result["documents"] == len(ids)
    return [result[name] for name in Changes._fields], ids


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_documents_that_left_a_file_of_lines_leave_the_index(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    index, folder = tmp_path / "i.db", tmp_path / "wiki"
    folder.mkdir()
    one, other = folder / f"one{ending}", tmp_path / f"other{ending}"
    write_lines(one, "abc")
    write_lines(other, "xy")
    assert run(capsys, index, folder, other) == ([5, 0, 0, 0], [*"abcxy"])
    write_lines(one, "ac")
    write_lines(other, "x")
    # Sources that are not given in a run are left alone.
    assert run(capsys, index, folder) == ([0, 0, 2, 1], [*"acxy"])
    assert run(capsys, index, other) == ([0, 0, 1, 1], [*"acx"])
    one.unlink()
    assert run(capsys, index, folder) == ([0, 0, 0, 2], ["x"])


def test_a_document_in_two_files_stays_until_it_has_left_both(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, one, other = (tmp_path / name for name in ("i.db", "one.jsonl", "other.jsonl"))
    write_lines(one, "ab")
    write_lines(other, "bc")
    run(capsys, index, one, other)
    write_lines(other, "c")
    assert run(capsys, index, other) == ([0, 0, 1, 0], [*"abc"])
    write_lines(one, "a")
    assert run(capsys, index, one) == ([0, 0, 1, 1], [*"ac"])


def test_two_documents_with_one_id_do_not_replace_each_other(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, one, other = (tmp_path / name for name in ("i.db", "one.jsonl", "other.jsonl"))
    write_lines(one, "12")
    write_lines(other, "23", "A lighthouse.")
    assert run(capsys, index, tmp_path) == ([3, 0, 0, 0], [*"123"])
    assert run(capsys, index, tmp_path) == ([0, 0, 3, 0], [*"123"])
    assert cli.main(["index", str(tmp_path), "--out", str(index)]) == 1
    said = capsys.readouterr().out
    assert f"other.jsonl:1: field 'id': '2' is already the id of a document of {one} with" in said
    # When the first has left, there is room for the other.
    write_lines(one, "1")
    assert run(capsys, index, tmp_path) == ([0, 1, 2, 0], [*"123"])
    with DocumentIndex(index) as opened:
        assert opened.document("2").text == "A lighthouse."


def test_what_cannot_be_read_stays_as_it_was(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, lines, note = tmp_path / "i.db", tmp_path / "a.jsonl.gz", tmp_path / "note.txt"
    write_lines(lines, "ab")
    note.write_text("A lighthouse.")
    run(capsys, index, tmp_path)
    whole = lines.read_bytes()
    lines.write_bytes(whole[:-9])  # damaged
    note.write_bytes(b"\x00" * 100)  # no text
    assert run(capsys, index, tmp_path)[1] == ["a", "b", "note.txt"]
    # An empty file can be read: it has no documents. Nor has a line that is no record.
    note.write_text("\n")
    lines.write_bytes(gzip.compress(b'{"id": "a", "title": "T", "text": "A windmill."}\nb\n'))
    assert run(capsys, index, tmp_path) == ([0, 0, 1, 2], ["a"])
    lines.write_bytes(b"")
    note.write_text("A lighthouse.")
    assert run(capsys, index, tmp_path) == ([1, 0, 0, 1], ["note.txt"])
    note.write_text("")
    assert run(capsys, index, tmp_path) == ([0, 0, 0, 1], [])


def test_a_file_that_is_no_longer_read_leaves_the_index(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, folder = tmp_path / "i.db", tmp_path / "notes"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("A lighthouse.")
    assert run(capsys, index, folder)[1] == ["a.txt", "b.txt"]
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to("b.txt")
    assert run(capsys, index, folder) == ([0, 0, 1, 1], ["b.txt"])


def test_an_index_of_an_earlier_format_follows_what_it_knows(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It knows the files of its documents by their URLs, but no files of lines."""
    index, lines, note = tmp_path / "i.db", tmp_path / "a.jsonl", tmp_path / "note.txt"
    write_lines(lines, "ab")
    note.write_text("A lighthouse.")
    run(capsys, index, lines, note)
    with contextlib.closing(sqlite3.connect(index)) as connection:
        connection.executescript("DROP TABLE sources; PRAGMA user_version = 2;")
    with DocumentIndex(index) as opened:  # it can be read as it is
        assert len(opened.search("lighthouse", 1)) == 1
    write_lines(lines, "a")
    note.unlink()
    assert run(capsys, index, tmp_path) == ([0, 0, 1, 1], ["a", "b"])
    write_lines(lines, "c")
    assert run(capsys, index, tmp_path) == ([1, 0, 0, 1], ["b", "c"])


def test_following_changes_everything_or_nothing(tmp_path: pathlib.Path) -> None:
    def breaking() -> Iterable[tuple[str, Document]]:
        yield "s", Document("2", "T", "Text.")
        raise OSError("the disk is gone")

    with DocumentIndex(tmp_path / "i.db", write=True) as index:
        index.follow([("s", Document("1", "T", "Text."))], lambda source: True)
        with pytest.raises(OSError, match="the disk is gone"):
            index.follow(breaking(), lambda source: True)
        assert index.ids() == ["1"]
        # What was deleted and added by hand is of no source.
        index.delete(["1"])
        index.add([Document("1", "T", "Text.")])
        assert index.follow([], lambda source: True) == Changes(0, 0, 0, 0)
        assert index.ids() == ["1"]

"""What `rate` writes never replaces a study's own files, and leaves no page of an earlier run."""

import contextlib
import pathlib
import resource
import shutil
import sqlite3

import pytest

from gophercite.rating_site.viewer import write_viewer
from gophercite.records import RatedAnswer
from tests.ratings.test_rate_command import comparison, rate, vote, votes_file, write

Says = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("whole")
    file = write(folder / "c.jsonl", comparison("c0"))
    assert rate("new", str(folder / "study"), file, "--experiment", "nq") == 0
    votes = votes_file(folder, [vote("c0", "ada")])
    assert rate("import", str(folder / "study"), "nq", votes) == 0
    return folder / "study"


def rows(study: pathlib.Path) -> list[str]:
    """All of a study's rows; SQLite moves them between its files at times of its own."""
    with contextlib.closing(sqlite3.connect(study / "ratings.db")) as database:
        return list(database.iterdump())


@pytest.mark.parametrize(
    "out", ["ratings.db", "ratings.db-wal", "secret", "study.json", "worlds/1/pages.jsonl"]
)
def test_an_export_replaces_no_file_of_its_study(
    study: pathlib.Path, capsys: Says, out: str
) -> None:
    before = rows(study)
    (study / "link").unlink(missing_ok=True)
    (study / "link").symlink_to(study / out)
    for name in (out, "link", f"../study/{out}"):
        assert rate("export", str(study), "nq", "votes", str(study / name)) == 1
        assert "would overwrite" in capsys.readouterr().err
    assert rows(study) == before
    assert rate("status", str(study)) == 0
    assert not (study / "worlds").exists()


def test_an_export_may_lie_beside_the_files(study: pathlib.Path) -> None:
    assert rate("export", str(study), "nq", "votes", str(study / "votes.jsonl")) == 0


@pytest.mark.parametrize("folder", ["", "pages"])
def test_pages_are_not_written_into_a_study(
    study: pathlib.Path, tmp_path: pathlib.Path, capsys: Says, folder: str
) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    assert rate("view", str(study / folder), file) == 1
    assert f"{study} is a study" in capsys.readouterr().err
    assert not list(study.rglob("*.html"))


def test_a_smaller_run_leaves_no_page_of_a_larger_one(tmp_path: pathlib.Path) -> None:
    others = ("part-of-mine.html", "part-0002.html.bak", "notes.html")
    for name in others:
        (tmp_path / name).write_text("mine")

    def pages(count: int) -> list[str]:
        shown = (RatedAnswer(f"q{n}", "?", (), "c", "t", "q", "d") for n in range(count))
        write_viewer(tmp_path, "All", shown)
        return sorted(path.name for path in tmp_path.glob("part-0*.html"))

    assert pages(201) == ["part-0001.html", "part-0002.html", "part-0003.html"]
    assert pages(3) == ["part-0001.html"]
    assert pages(0) == []
    assert all((tmp_path / name).read_text() == "mine" for name in others)


def test_a_study_that_lost_a_file_is_not_begun_again(
    study: pathlib.Path, tmp_path: pathlib.Path, capsys: Says
) -> None:
    """A new secret would void all links, and give the raters other pseudonyms."""
    copy, file = tmp_path / "copy", write(tmp_path / "c.jsonl", comparison("c0"))
    shutil.copytree(study, copy, ignore=shutil.ignore_patterns("link"))
    secret = (copy / "secret").read_text()
    (copy / "study.json").unlink()
    assert rate("new", str(copy), file, "--experiment", "more") == 1
    assert f"{copy}: study.json is missing, but ratings.db has" in capsys.readouterr().err
    assert (copy / "secret").read_text() == secret
    assert rows(copy) == rows(study)
    (copy / "study.json").write_text('{"database": null}\n')  # as the message says
    assert rate("status", str(copy)) == 0
    assert "1 votes" in capsys.readouterr().out


def test_an_empty_database_is_no_study_without_experiments(
    study: pathlib.Path, tmp_path: pathlib.Path, capsys: Says
) -> None:
    shutil.copytree(study, tmp_path / "copy", ignore=shutil.ignore_patterns("link"))
    for name in ("ratings.db-wal", "ratings.db-shm"):
        (tmp_path / "copy" / name).unlink(missing_ok=True)
    (tmp_path / "copy" / "ratings.db").write_bytes(b"")
    assert rate("status", str(tmp_path / "copy")) == 1
    assert "ratings.db: is empty; restore it from a backup" in capsys.readouterr().err


def test_a_study_whose_making_was_interrupted_is_made(tmp_path: pathlib.Path) -> None:
    file, folder = write(tmp_path / "c.jsonl", comparison("c0")), tmp_path / "study"
    assert rate("new", str(folder), file, "--experiment", "nq") == 0
    half = tmp_path / "half"
    half.mkdir()
    (half / "ratings.db").write_bytes(b"")
    (half / "secret").write_text("")
    assert rate("new", str(half), file, "--experiment", "nq") == 0
    assert rate("status", str(half)) == 0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("ALTER TABLE audit RENAME TO lost", "no such table: audit"),
        ("UPDATE items SET content = '{'", "holds a value that is not JSON"),
    ],
)
def test_a_database_that_fails_is_said_in_one_line(
    study: pathlib.Path, tmp_path: pathlib.Path, capsys: Says, damage: str, said: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(study, copy, ignore=shutil.ignore_patterns("link"))
    with contextlib.closing(sqlite3.connect(copy / "ratings.db")) as database, database:
        database.execute(damage)
    assert rate("import", str(copy), "nq", votes_file(tmp_path, [vote("c0", "bob")])) == 1
    error = capsys.readouterr().err
    assert f"gophercite rate: the database of {copy}: {said}" in error
    assert error.count("\n") == 1


def test_a_full_disk_leaves_the_pages_of_an_earlier_run(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    pages, file = tmp_path / "pages", write(tmp_path / "c.jsonl", comparison("c0"))
    assert rate("view", str(pages), file) == 0
    before = {path.name: path.read_text() for path in pages.iterdir()}
    write(tmp_path / "c.jsonl", *(comparison(f"c{n}") for n in range(100)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        assert rate("view", str(pages), file) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"gophercite rate: {pages}: file too large" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in pages.iterdir()} == before


def test_an_index_of_somebody_else_is_not_replaced(tmp_path: pathlib.Path, capsys: Says) -> None:
    site, file = tmp_path / "site", write(tmp_path / "c.jsonl", comparison("c0"))
    site.mkdir()
    (site / "index.html").write_text("<title>My own site</title>")
    assert rate("view", str(site), file) == 1
    said = f"{site / 'index.html'}: is not a page of `gophercite rate view`: choose another folder"
    assert said in capsys.readouterr().err
    assert [path.name for path in site.iterdir()] == ["index.html"]
    assert "My own site" in (site / "index.html").read_text()

"""What `rate` writes never replaces a study's own files, and leaves no page of an earlier run."""

import contextlib
import pathlib
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

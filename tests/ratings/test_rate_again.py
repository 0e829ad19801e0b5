"""Commands of `gophercite rate` that are repeated, interrupted or undone."""

import contextlib
import json
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite import cli
from gophercite.ratings import assignment
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.items import StoredItem, items_of
from gophercite.ratings.schema import raters
from gophercite.ratings.study import Study

Says = pytest.CaptureFixture[str]
PAGE = {"id": "o", "title": "Ormsby", "text": "A town. Built in 1874."}
TRIPLE = {"claim": "In 1874.", "title": "Ormsby", "quote": "Built in 1874."}


def write(path: pathlib.Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def comparison(name: str, **more: Any) -> dict[str, Any]:
    base = {"id": name, "question": f"When ({name})?", "source": "mine"}
    return {**base, "responses": ["Then.", "Never."], **more}


def rated(model: str, claim: str, **more: Any) -> dict[str, Any]:
    base = {"question_id": "q", "question": "When?", "documents": [PAGE], "document": "o"}
    return {**base, **TRIPLE, "claim": claim, "model": model, **more}


def rate(*arguments: str) -> int:
    return cli.main(["rate", *arguments])


@pytest.fixture
def study(tmp_path: pathlib.Path) -> str:
    file = write(tmp_path / "c.jsonl", *(comparison(f"c{n}") for n in range(2)))
    folder = str(tmp_path / "study")
    assert rate("new", folder, file, "--experiment", "nq", "--set", "comment_words=0") == 0
    return folder


def stored(study: str, experiment: str = "nq", *roles: Role) -> list[StoredItem]:
    with contextlib.closing(Study(study).store) as store, store.reading() as connection:
        found = experiment_named(connection, experiment)
        return items_of(connection, found, *(roles or (Role.ITEM,)))


# --- Items that are added later ---


def test_answers_of_other_models_are_added_to_the_same_question(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    """They are items of their own, and adding them twice adds them once."""
    first = write(tmp_path / "a.jsonl", rated("m1", "A."), rated("m2", "B."))
    other = write(tmp_path / "b.jsonl", rated("m3", "C."), rated("m4", "D."))
    same = write(tmp_path / "c.jsonl", rated("m5", "A."), rated("m6", "B."))
    for file, added in ((first, 1), (other, 1), (same, 1), (first, 0), (other, 0), (same, 0)):
        capsys.readouterr()
        assert rate("add", study, "nq", file) == 0
        said = f"{added} items added to 'nq'; {1 - added} were already there"
        assert said in capsys.readouterr().out
    found = {each.name: each.item for each in stored(study) if each.item.question_id == "q"}
    pairs = [[answer.model for answer in item.answers] for item in found.values()]
    assert pairs == [["m1", "m2"], ["m3", "m4"], ["m5", "m6"]]
    plain, *numbered = found
    assert plain == "q"
    assert all(name.startswith("q ") for name in numbered)
    for files in ((first, other), (other, same, first)):  # their order makes no difference
        assert rate("add", study, "nq", *files) == 0
        assert "0 items added" in capsys.readouterr().out
    assert rate("new", study, first, other, first, "--experiment", "twice") == 0
    assert len(stored(study, "twice")) == 3, "equal answers of one file are items of their own"
    assert rate("add", study, "twice", other) == 0
    assert "0 items added to 'twice'; 1 were already there" in capsys.readouterr().out


def test_an_id_that_is_taken_is_named(study: str, tmp_path: pathlib.Path, capsys: Says) -> None:
    """Pages that come later make no other item of one."""
    pages = write(tmp_path / "pages.jsonl", PAGE)
    lines = [
        comparison("c0"),
        comparison("c1", responses=["Then.", "Now."]),
        comparison("c9", responses=[[TRIPLE], [TRIPLE]]),
    ]
    file = write(tmp_path / "more.jsonl", *lines)
    assert rate("add", study, "nq", file) == 1
    said = capsys.readouterr()
    assert "1 items added to 'nq'; 1 were already there" in said.out
    assert f"{file}:2: field 'id': an item named 'c1' with other content already exists" in said.err
    assert [a.as_text for a in stored(study)[1].item.answers] == ["Then.", "Never."]
    assert rate("add", study, "nq", file, "--documents", pages, "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["added"], result["there"], len(result["errors"])) == (0, 2, 1)


def test_gold_that_would_never_be_dealt_is_refused(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    file = write(tmp_path / "gold.jsonl", comparison("g", preferred=1))
    assert rate("add", study, "nq", file, "--gold", file) == 1
    assert "--gold: the setting gold_every of 'nq' is 0" in capsys.readouterr().err
    assert len(stored(study, "nq", *Role)) == len(stored(study, "nq", Role.CHECK, Role.EXAMPLE)) + 2
    for flag in (("--gold", file), ("--screening",)):
        new = ("new", study, file, *flag, "--experiment", "x", "--set", "gold_every=0")
        assert rate(*new) == 1
        assert f"{flag[0]}: needs gold_every to be 1 or more" in capsys.readouterr().err
    assert rate("new", study, file, "--gold", file, "--experiment", "with gold") == 0
    more = write(tmp_path / "more.jsonl", comparison("h", preferred=0))
    assert rate("add", study, "with gold", file, "--gold", more) == 0
    assert [each.name for each in stored(study, "with gold", Role.GOLD)] == ["g", "h"]


# --- Interrupted ---


@contextlib.contextmanager
def interrupted(statement: str) -> Iterator[None]:
    """Ctrl-C when a statement of this beginning is about to be executed."""

    def interrupt(_1: Any, _2: Any, executed: str, _3: Any, _4: Any, _5: Any) -> None:
        if executed.startswith(statement):
            raise KeyboardInterrupt

    sa.event.listen(sa.Engine, "before_cursor_execute", interrupt)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", interrupt)


def names_of_experiments(study: str, capsys: Says) -> list[str]:
    capsys.readouterr()
    assert rate("status", study, "--json") == 0
    return [each["experiment"] for each in json.loads(capsys.readouterr().out)]


def test_an_experiment_is_made_whole_or_not_at_all(tmp_path: pathlib.Path, capsys: Says) -> None:
    """Otherwise raters would rate without checks, and the command could not be repeated."""
    study, file = str(tmp_path / "study"), write(tmp_path / "c.jsonl", comparison("c0"))
    making = ("new", study, file, "--experiment", "nq")
    with interrupted("INSERT INTO items"):
        assert rate(*making) == 130
    assert names_of_experiments(study, capsys) == []
    assert rate(*making) == 0
    assert len(stored(study, "nq", Role.CHECK)) == 4


def test_an_adjudication_is_made_whole_or_not_at_all(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    votes = tmp_path / "votes.csv"
    votes.write_text("item,rater,preferred\nc0,ada,0\nc0,bob,1\n")
    assert rate("import", study, "nq", str(votes)) == 0
    with interrupted("INSERT INTO items"):
        assert rate("adjudicate", study, "nq", "decided") == 130
    assert names_of_experiments(study, capsys) == ["nq"]
    assert rate("adjudicate", study, "nq", "decided") == 0
    assert [each.name for each in stored(study, "decided")] == ["c0"]


def test_links_are_made_for_all_or_for_none(study: str, capsys: Says) -> None:
    """A link that becomes void is followed by a new one."""
    assert rate("invite", study, "ada") == 0
    assert rate("invite", study, "bob", "--pool", "wide") == 0
    assert rate("invite", study, "ada", "eve", "bob", "--new-link") == 1
    said = capsys.readouterr()
    assert "rater 'bob' belongs to the pool 'wide', not to 'super'" in said.err
    with contextlib.closing(Study(study).store) as store, store.reading() as connection:
        found = connection.execute(sa.select(raters.c.name, raters.c.link_version)).all()
    assert [tuple(row) for row in found] == [("ada", 0), ("bob", 0)]


def test_an_export_of_nothing_leaves_the_one_before(
    study: str, tmp_path: pathlib.Path, capsys: Says
) -> None:
    votes, out = tmp_path / "votes.csv", tmp_path / "out"
    votes.write_text("item,rater,preferred\nc0,ada,0\n")
    assert rate("import", study, "nq", str(votes)) == 0
    out.mkdir()
    kinds = ("comparisons", "dpo", "webgpt", "votes")
    for kind in kinds:
        assert rate("export", study, "nq", kind, str(out / kind)) == 0
    before = {path.name: path.read_text() for path in out.iterdir()}
    assert len(before) == 2 * len(kinds)
    assert rate("undo", study, "ada") == 0
    for kind in (*kinds, "rated-answers"):
        assert rate("export", study, "nq", kind, str(out / kind)) == 1
        assert f"nothing to export as {kind}: 2 without a vote" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in out.iterdir()} == before


# --- Undone ---


def test_what_still_excludes_a_rater_is_said(study: str, capsys: Says) -> None:
    def counts() -> bool:
        with contextlib.closing(Study(study).store) as store, store.reading() as connection:
            experiment = experiment_named(connection, "nq")
            return not assignment.is_excluded(connection, 1, experiment.id)

    def undo(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status = rate("undo", study, "bob", *arguments)
        said = capsys.readouterr()
        return status, said.out + said.err

    assert rate("invite", study, "bob") == 0
    undo("--experiment", "nq")
    undo()
    status, said = undo("--redo")
    assert status == 0
    assert "count again, but not everywhere: the rater is excluded from 'nq'; to lift that" in said
    assert "add --experiment" in said
    assert not counts()
    status, said = undo("--redo")
    assert status == 1
    assert "bob: the rater is excluded from 'nq'" in said
    assert undo("--redo", "--experiment", "nq") == (0, "bob's votes count again in 'nq'\n")
    assert counts()
    status, said = undo("--redo", "--experiment", "nq")
    assert (status, "bob: the votes already count" in said) == (1, True)

    undo()
    status, said = undo("--redo", "--experiment", "nq")
    assert status == 1
    assert "bob: the rater is excluded from all experiments; to lift that, omit --exp" in said
    undo("--experiment", "nq")
    status, said = undo("--redo", "--experiment", "nq")
    assert status == 0
    assert "bob's votes still don't count in 'nq': the rater is excluded from all" in said
    assert not counts()
    assert undo("--redo") == (0, "bob's votes count again in all experiments\n")
    assert counts()


# --- Copies ---


def test_a_copy_can_go_into_a_new_folder(study: str, tmp_path: pathlib.Path, capsys: Says) -> None:
    copy = tmp_path / "backups" / "here" / "monday.db"
    assert rate("backup", study, str(copy)) == 0
    assert copy.is_file()
    with contextlib.closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("SELECT count(*) FROM experiments").fetchone() == (1,)
    assert rate("backup", study, str(copy / "monday.db")) == 1
    assert f"{copy / 'monday.db'}: " in capsys.readouterr().err


def test_what_a_lost_database_leaves_is_named(study: str, capsys: Says) -> None:
    """SQLite would replay it into the copy that is put there."""
    database = pathlib.Path(study, "ratings.db")
    database.unlink()
    for name in ("ratings.db-wal", "ratings.db-shm"):
        pathlib.Path(study, name).unlink(missing_ok=True)
    assert rate("status", study) == 1
    assert "restore it from a backup\n" in capsys.readouterr().err
    pathlib.Path(study, "ratings.db-wal").write_bytes(b"left by a kill")
    assert rate("status", study) == 1
    said = capsys.readouterr().err
    assert f"{database}: is missing; first remove ratings.db-wal of the lost database, " in said
    assert "then restore it from a backup" in said

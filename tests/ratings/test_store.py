"""The data base: tables of every version, one writer, backups, what is refused."""

import os
import pathlib
import sqlite3
import stat
import threading
import time

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from gophercite.ratings import schema
from gophercite.ratings.experiments import Settings, add_rater, create_experiment, move_rater
from gophercite.ratings.store import Store, StudyError, note
from gophercite.ratings.study import Study
from tests.ratings.databases import postgresql


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/ratings.db", clock=lambda: 1000.0)


def differences(store: Store) -> list[object]:
    with store.writing() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), schema.METADATA))


def test_migrations_make_the_tables_of_the_schema(store: Store) -> None:
    assert differences(store) == []
    with store.reading() as connection:
        made = MigrationContext.configure(connection).get_current_revision()
    assert made == schema.VERSION
    with store.writing() as connection:
        connection.execute(sa.text("DROP TABLE drafts"))
    assert differences(store) != []  # the comparison can tell


def test_a_data_base_of_the_first_version_is_brought_up_and_keeps_what_it_has(
    store: Store,
) -> None:
    add_rater(store, "Ada", "super")
    with store.writing() as connection:
        for table in ("episode_steps", "environments"):
            connection.execute(sa.text(f"DROP TABLE {table}"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    again = Store(store.url.render_as_string())
    assert differences(again) == []
    with again.reading() as connection:
        assert connection.execute(sa.select(schema.raters.c.name)).scalars().all() == ["Ada"]


def test_opened_again_it_keeps_what_is_there(store: Store) -> None:
    add_rater(store, "Ada", "super")
    again = Store(store.url.render_as_string())
    with again.reading() as connection:
        assert connection.execute(sa.select(schema.raters.c.name)).scalars().all() == ["Ada"]
        actions = connection.execute(sa.select(schema.audit.c.action)).scalars().all()
        assert actions == ["rater-added"]


def test_a_later_version_is_refused(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StudyError, match="9999, made by a later version"):
        Store(store.url.render_as_string())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
        ("no url", "URL"),
        ("postgresql+pg8000://me:secret@127.0.0.1:1/x", r"\*\*\*"),
        ("oracle+nothing://x", "oracle"),
    ],
)
def test_bad_urls_are_refused_without_the_password(url: str, said: str) -> None:
    with pytest.raises(StudyError, match=said) as error:
        Store(url)
    assert "secret" not in str(error.value)


def test_an_error_undoes_the_whole_transaction(store: Store) -> None:
    def fail() -> None:
        with store.writing() as connection:
            note(connection, 1.0, "command", "tried", {})
            raise KeyError("midway")

    with pytest.raises(KeyError):
        fail()
    with store.reading() as connection:
        assert connection.execute(sa.select(schema.audit)).all() == []


def test_a_transaction_within_another_is_part_of_it(store: Store) -> None:
    def fail() -> None:
        with store.writing():
            add_rater(store, "Ada", "super")
            add_rater(store, "Ada", "wide")

    with pytest.raises(StudyError, match="to the pool 'super'"):
        fail()
    add_rater(store, "Ada", "wide")
    with store.reading() as connection:
        assert connection.execute(sa.select(schema.pools.c.name)).scalars().all() == ["wide"]


def test_a_writer_of_another_process_is_waited_for(store: Store) -> None:
    """As when a command undoes a rater's data while the server runs."""
    other = sqlite3.connect(str(store.url.database), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.2, lambda: other.execute("COMMIT"))
    timer.start()
    begun = time.monotonic()
    added = add_rater(store, "Ada", "super")
    assert time.monotonic() - begun > 0.1
    timer.join()
    other.close()
    with store.reading() as connection:
        assert connection.execute(sa.select(schema.raters.c.id)).scalars().all() == [added.id]


def test_readers_are_not_kept_waiting(store: Store) -> None:
    with store.writing() as writing:
        note(writing, 1.0, "command", "begun", {})
        with store.reading() as reading:
            assert reading.execute(sa.select(schema.audit)).all() == []


def test_a_backup_is_whole_while_others_write(store: Store, tmp_path: pathlib.Path) -> None:
    add_rater(store, "Ada", "super")
    copy = tmp_path / "copy.db"
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with store.writing() as connection:
                note(connection, 1.0, "command", "more", {})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        store.backup(copy)
    finally:
        stop.set()
        writer.join()
    assert sqlite3.connect(copy).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Store(f"sqlite:///{copy}").reading() as connection:
        assert connection.execute(sa.select(schema.raters.c.name)).scalars().all() == ["Ada"]
    with pytest.raises(StudyError, match="already exists"):
        store.backup(copy)


@pytest.mark.parametrize("others", ["", "notes.txt"])
def test_a_study_and_its_backup_are_for_their_owner_alone(
    tmp_path: pathlib.Path, others: str
) -> None:
    """Also in a folder that was there before, which is left as it is if others use it."""
    before = os.umask(0o022)
    try:
        folder = tmp_path / "study"
        folder.mkdir()
        if others:
            (folder / others).touch()
        study = Study.create(folder)
        add_rater(study.store, "Ada", "super")
        study.store.backup(tmp_path / "copy.db")
        names = {path.name for path in folder.iterdir()} - {others}
    finally:
        os.umask(before)
    assert {"secret", "study.json", "ratings.db", "ratings.db-wal"} <= names
    for path in (tmp_path / "copy.db", *(folder / name for name in names)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(folder.stat().st_mode) == (0o755 if others else 0o700)
    study.store.close()


def test_names_and_pools(store: Store) -> None:
    ada = add_rater(store, "Ada", "super")
    assert add_rater(store, "Ada", "super") == ada
    assert add_rater(store, "Ada", "super", new_link=True).link_version == 1
    with pytest.raises(StudyError, match="belongs to the pool 'super', not to 'wide'"):
        add_rater(store, "Ada", "wide")
    for bad in ("", "two\nlines", "x" * 101):
        with pytest.raises(StudyError, match="can't be the name of a rater"):
            add_rater(store, bad, "wide")
    with store.writing() as connection:
        move_rater(connection, 1.0, ada.id, "wide")
    assert add_rater(store, "Ada", "wide").id == ada.id
    create_experiment(store, "nq", "comparison", "super", Settings())
    with pytest.raises(StudyError, match="already"):
        create_experiment(store, "nq", "comparison", "super", Settings())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"raters": 0}, "raters = 0: must be at least 1"),
        ({"raters": "3"}, "must be a whole number"),
        ({"raters": True}, "must be a whole number"),
        ({"later_variant": 1}, "must be true or false"),
        ({"checks_right": 1.5}, "from 0 to 1"),
        ({"comment_words": -1}, "0 or more"),
        ({"rater": 3}, "did you mean 'raters'"),
    ],
)
def test_settings_that_can_not_be(values: dict[str, object], said: str) -> None:
    with pytest.raises(StudyError, match=said):
        Settings.of(values)


def test_on_postgresql() -> None:
    """The same tables, and writers one after the other also across servers."""
    with postgresql() as url:
        store, other = Store(url), Store(url)
        assert differences(store) == []
        add_rater(store, "Ada", "super")
        order = []
        with store.writing():
            thread = threading.Thread(
                target=lambda: (add_rater(other, "Bob", "super"), order.append("other"))
            )
            thread.start()
            thread.join(0.3)
            order.append("first")
        thread.join()
        assert order == ["first", "other"]
        with pytest.raises(StudyError, match="pg_dump"):
            store.backup("copy.db")
        store.close()
        other.close()

"""The database of a study: SQLite in a file, or PostgreSQL by URL; one writer at a time.

All writes go through `Store.writing`, one transaction after the other. So 50 raters at once never
meet a locked SQLite database, and whatever a transaction has counted is still true when it ends,
even with several servers on one PostgreSQL database.
"""

import contextlib
import logging
import os
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from gophercite.ratings import schema
from gophercite.storage.json_fields import in_one_line

_MIGRATIONS = pathlib.Path(__file__).parent / "migrations"
_WRITERS_LOCK = 0x676F70  # any number, the same for all who write to one PostgreSQL database
_PATIENCE = 30  # seconds to wait while another process holds the database


class StudyError(ValueError):
    """The requested operation on a study is not possible; the message is for users."""


class Store:
    """A study's database.

    Args:
      url: SQLAlchemy URL, such as `sqlite:////data/study/ratings.db` or
        `postgresql+pg8000://user@host/study`.
      clock: seconds since 1970.

    Raises:
      StudyError: there is no such database, or a later version of this program has written it.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self._lock = threading.RLock()
        self._open: sa.Connection | None = None  # the transaction of `writing`, under the lock
        try:
            self.url = sa.make_url(url)
            # Neither `StaticPool` nor one per thread: readers come and go and never wait.
            self._engine = sa.create_engine(self.url, pool_size=20, max_overflow=40)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
            raise StudyError(f"{_without_password(url)}: {error}") from None
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        if self.is_sqlite:
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        try:
            with self.writing() as connection:
                _migrate(connection)
        except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.DatabaseError) as error:
            self.close()
            said = str(error.orig).strip().partition("\n")[0]
            raise StudyError(f"{_without_password(url)}: {said}") from None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that may write; no other one writes at that time. An error rolls it back.

        Within another writing transaction of the same thread, it is part of that one: either all
        is written or nothing.
        """
        with self._lock:
            if self._open is not None:
                yield self._open
                return
            with self._engine.connect() as connection:
                connection.info["writes"] = True  # read by `_begin_sqlite`
                try:
                    with connection.begin():
                        if not self.is_sqlite:
                            lock = sa.func.pg_advisory_xact_lock(_WRITERS_LOCK)
                            connection.execute(sa.select(lock))
                        self._open = connection
                        yield connection
                finally:
                    self._open = None
                    connection.info["writes"] = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that reads; writers don't wait for it."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    def backup(self, path: str | pathlib.Path) -> None:
        """Copies an SQLite database while raters go on; the copy is complete or absent.

        Args:
          path: a new file; the folders above it are created.

        Raises:
          StudyError: the database is not SQLite, the file already exists, or it can't be written.
        """
        if not self.is_sqlite:
            raise StudyError("this copies only SQLite databases; back up PostgreSQL with pg_dump")
        path = pathlib.Path(path)
        if path.exists():
            raise StudyError(f"{path}: already exists; name a new file")
        partial = path.with_name(path.name + ".partial")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            make_private(partial)
            with (
                contextlib.closing(sqlite3.connect(str(self.url.database))) as source,
                contextlib.closing(sqlite3.connect(partial)) as copy,
            ):
                source.backup(copy)
            partial.replace(path)
        except (OSError, sqlite3.Error) as error:
            raise StudyError(f"{path}: can't be written: {in_one_line(error)}") from None
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()


def make_private(path: pathlib.Path) -> None:
    """Creates an empty file that only its owner may read, or restricts an existing one to that."""
    # SQLite opens an empty file as a new database, and gives the files beside it the same mode.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    path.chmod(0o600)


def note(
    connection: sa.Connection, now: float, actor: str, action: str, details: Mapping[str, Any]
) -> None:
    """Adds a line to the audit log, in the same transaction as the action.

    Args:
      connection: the transaction.
      now: the current time, in seconds since 1970.
      actor: who did it: `rater 3`, `admin NAME`, `command`, or `visitor`.
      action: what was done, in a word or two with hyphens.
      details: JSON.
    """
    row = {"created_at": now, "actor": actor, "action": action, "details": dict(details)}
    connection.execute(schema.audit.insert(), row)


def _set_up_sqlite(connection: Any, _record: object) -> None:
    """Enforces foreign keys, lets readers run beside the writer, and keeps commits on disk."""
    connection.isolation_level = None  # transactions begin where we say so
    for pragma in (
        f"busy_timeout = {1000 * _PATIENCE}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.info.get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _migrate(connection: sa.Connection) -> None:
    """Upgrades the tables to this program's version.

    Raises:
      StudyError: they are of a later version.
    """
    there = _version(connection)
    if there == schema.VERSION:
        return
    # Imported here because nearly all databases are up to date, and it takes a tenth of a second.
    import alembic.command
    import alembic.config
    from alembic.script import ScriptDirectory

    config = alembic.config.Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if there is not None and there not in known:
        raise StudyError(
            f"the database has version {there}, made by a later version of this program"
        )
    logger = logging.getLogger("alembic")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        alembic.command.upgrade(config, "head")
    finally:
        logger.setLevel(level)


def _version(connection: sa.Connection) -> str | None:
    """The version of a database's tables, as Alembic noted it; None for an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    noted: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return noted


def _without_password(url: str) -> str:
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return "the database's URL"

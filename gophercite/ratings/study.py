"""A study's folder: where its database is, and the secret that signs links and sessions."""

import json
import os
import pathlib
import re
import secrets
import time
from collections.abc import Callable

import sqlalchemy as sa

from gophercite.ratings.schema import experiments
from gophercite.ratings.store import Store, StudyError, make_private
from gophercite.storage.json_fields import RecordError
from gophercite.storage.json_lines import read_json

_SETTINGS, _SECRET, _DATABASE = "study.json", "secret", "ratings.db"
_LEAST_SECRET = 32  # characters
_POSTGRESQL = re.compile(r"postgresql(\+\w+)?://")


class Study:
    """A study, with its `store`, `secret` and `folder`.

    Args:
      folder: created by `create`.
      clock: seconds since 1970.

    Raises:
      StudyError: there is no study in the folder, or its database can't be opened.
    """

    def __init__(
        self, folder: str | os.PathLike[str], clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = pathlib.Path(folder)
        try:
            settings = read_json(self.folder / _SETTINGS)
            self.secret = (self.folder / _SECRET).read_text("utf-8").strip()
        except FileNotFoundError as error:
            raise StudyError(
                f"{self.folder}: is not a study ({pathlib.Path(error.filename).name} is missing)"
            ) from None
        except RecordError as error:
            raise StudyError(f"{self.folder}: {error}") from None
        except UnicodeDecodeError:
            self.secret = ""
        url = settings.get("database") if isinstance(settings, dict) else None
        if not isinstance(url, str | None):
            raise StudyError(f"{self.folder / _SETTINGS}: is damaged")
        if len(self.secret) < _LEAST_SECRET or not self.secret.isascii():
            raise StudyError(f"{self.folder / _SECRET}: is damaged; restore it from a copy")
        if url is None and not (self.folder / _DATABASE).is_file():
            how = _how_to_restore(self.folder)
            raise StudyError(f"{self.folder / _DATABASE}: is missing; {how}")
        if url is None and not (self.folder / _DATABASE).stat().st_size:
            how = _how_to_restore(self.folder)  # it would become a new one, without any ratings
            raise StudyError(f"{self.folder / _DATABASE}: is empty; {how}")
        self.store = Store(url or _sqlite_url(self.folder), clock)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        database: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> "Study":
        """Creates a study in a new or empty folder.

        Args:
          folder: the folder. Only its owner can read the files that are written to it; the same
            holds for the folder itself, unless it already holds other files.
          database: URL of an empty PostgreSQL database; None for SQLite in the folder.
          clock: seconds since 1970.

        Raises:
          StudyError: there already is a study in the folder, or one that lost a file; or `database`
            can't be opened, is not PostgreSQL, or already has a study.
        """
        folder = pathlib.Path(folder)
        if (folder / _SETTINGS).exists():
            raise StudyError(f"{folder}: already contains a study")
        if database is not None and not _POSTGRESQL.match(database):
            raise StudyError(
                "--database: must be a PostgreSQL database, such as postgresql+pg8000://me@host/ratings"
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            folder.chmod(0o700)  # `mkdir` does not change an existing folder
        if database is None:
            url = _sqlite_url(folder)
            make_private(folder / _DATABASE)
        else:
            url = database
        store = Store(url, clock)  # before the files that make the folder a study
        try:
            with store.reading() as connection:
                is_new = connection.execute(sa.select(experiments.c.id).limit(1)).first() is None
        finally:
            store.close()
        if not is_new:  # a new secret would void all links, and change the raters' pseudonyms
            if database is not None:
                raise StudyError(
                    "--database: it already has a study; copy that study's folder to use it here"
                )
            raise StudyError(
                f"{folder}: {_SETTINGS} is missing, but {_DATABASE} has experiments; restore "
                f'{_SETTINGS} from a copy, or write {{"database": null}} into it'
            )
        _write_private(folder / _SECRET, secrets.token_hex(32) + "\n")
        _write_private(folder / _SETTINGS, json.dumps({"database": database}) + "\n")
        return cls(folder, clock)

    @property
    def files(self) -> list[pathlib.Path]:
        """The study's own files and folders; some may not exist (yet)."""
        names = (_SETTINGS, _SECRET, _DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm", "worlds")
        return [self.folder / name for name in names]


def study_around(folder: str | os.PathLike[str]) -> pathlib.Path | None:
    """Returns the study's folder if `folder` is one or lies in one; otherwise None."""
    folder = pathlib.Path(folder).resolve()
    for each in (folder, *folder.parents):
        if (each / _SETTINGS).exists() and (each / _SECRET).exists():
            return each
    return None


def _how_to_restore(folder: pathlib.Path) -> str:
    # SQLite would apply the leftover journal of a killed process to the backup.
    left = [n for n in (f"{_DATABASE}-wal", f"{_DATABASE}-shm") if (folder / n).exists()]
    if not left:
        return "restore it from a backup"
    return f"first remove {' and '.join(left)} of the lost database, then restore it from a backup"


def _sqlite_url(folder: pathlib.Path) -> str:
    # SQLAlchemy takes the path literally, except for what looks like options.
    path = str((folder / _DATABASE).resolve())
    if "?" in path:
        raise StudyError(f"{folder}: the name of a study's folder can't contain a question mark")
    return f"sqlite:///{path}"


def _write_private(path: pathlib.Path, text: str) -> None:
    make_private(path)
    path.write_text(text, "ascii")

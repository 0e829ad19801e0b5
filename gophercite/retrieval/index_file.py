"""The file of the embedded search engine: its tables, its format marks, and its errors.

It is an ordinary SQLite database. Any number of processes may read it at once, even while one
writes.
"""

import contextlib
import functools
import operator
import os
import pathlib
import sqlite3
import threading
from collections.abc import Iterator

from gophercite.retrieval.engine import SearchError
from gophercite.storage import is_remote, local_copy
from gophercite.storage.json_fields import printable

# The file's `user_version`. Formats 1 and 2 had fewer tables (`_ADDED`): they are read as they are,
# and become the newest format when they are opened for writing.
FORMAT = 3
APPLICATION_ID = 0x47435445  # "GCTE": identifies the format to `file` and other programs
LOCK_SECONDS = 60  # how long to wait while another process writes

# A word in a title says more about a page than a word in its text: raising the weight from 1 to 4
# raises recall@1 by 0.04 on Natural Questions, and by 0.002 on SQuAD.
TITLE_WEIGHT, TEXT_WEIGHT = 4.0, 1.0

# How texts and queries become words, in the index and among passages: stems, without accents.
TOKENIZER = "porter unicode61 remove_diacritics 2"

_SCHEMA = {
    "documents": """CREATE TABLE documents (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  title TEXT NOT NULL,
  text TEXT NOT NULL,
  url TEXT,
  retrieved_at TEXT,
  sha256 TEXT NOT NULL
)""",
    "documents_by_url": "CREATE INDEX documents_by_url ON documents (url)",
    "words": f"""CREATE VIRTUAL TABLE words USING fts5 (
  title, text,
  content = 'documents', content_rowid = 'number',
  tokenize = '{TOKENIZER}'
)""",
}
# The table that each later format added.
_ADDED = {
    # Where the pages of a document's text begin, as JSON; only if it has pages.
    2: {
        "pages": """CREATE TABLE pages (
  number INTEGER PRIMARY KEY,
  starts TEXT NOT NULL
)"""
    },
    # The sources, such as the URLs of files, that had a document when they were last read.
    3: {
        "sources": """CREATE TABLE sources (
  source TEXT NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (source, id)
) WITHOUT ROWID""",
        "sources_by_id": "CREATE INDEX sources_by_id ON sources (id)",
    },
}
# Before format 3, only files of one document were followed; their documents have the file's URL.
_SOURCES_OF_FILES = """
INSERT INTO sources SELECT url, id FROM documents WHERE id = url AND url LIKE 'file:///%'
"""
# What SQLite itself creates for these.
_TABLES_OF_SQLITE = {"sqlite_autoindex_documents_1"} | {
    f"words_{part}" for part in ("config", "data", "docsize", "idx")
}


class IndexFileError(SearchError):
    """The file is not an index, is damaged, or is in use; one line says which, and what to do."""


class IndexFile:
    """An open index file.

    Args:
      path: the file; None for one in memory. For a file in a bucket a temporary copy is read.
      write: whether it may be changed; a file in a bucket can't be. If so, a missing file is
        created.

    Attributes:
      connection: what `locked` and `transaction` yield.
      writable: whether it may be changed.
      has_pages: whether it records where the pages of documents begin.

    Raises:
      IndexFileError: when it does not exist, is not an index, is damaged, or is of another version.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, write: bool) -> None:
        self._name = "the index in memory" if path is None else str(path)
        self._copied = contextlib.ExitStack()
        if path is not None and is_remote(path):
            if write:
                raise IndexFileError(
                    f"{path}: indexes can't be written to a bucket; write to a disk, then copy it"
                )
            try:
                path = self._copied.enter_context(local_copy(path))
            except FileNotFoundError:
                raise IndexFileError(
                    f"{path}: there is no such index; make it with `gophercite index`"
                ) from None
        self._lock = threading.RLock()
        self.writable = write or path is None
        if path is not None and not self.writable and not pathlib.Path(path).is_file():
            raise IndexFileError(f"{path}: there is no such index; make it with `gophercite index`")
        with self.naming():
            self.connection = _connect(path, self.writable)
            try:
                self._prepare()
                if self.writable:
                    self._switch_journal("WAL")
            except BaseException:
                self.connection.close()
                self._copied.close()
                raise

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self.writable:
                self._switch_journal("DELETE")
            self.connection.close()
            self._copied.close()

    def _prepare(self) -> None:
        """Creates the tables of a new file; refuses a file of another kind or version."""
        connection = self.connection
        if self.writable and self._marks() == (0, 0, 0):
            with self.transaction():
                if self._marks() == (0, 0, 0):  # still new: no other process was faster
                    _make_tables(connection)
        application, version, _ = self._marks()
        if application != APPLICATION_ID:
            raise IndexFileError(
                f"{self._name}: is not an index of gophercite, but another database"
            )
        if not 1 <= version <= FORMAT:
            raise IndexFileError(
                f"{self._name}: has format {version}, but this version reads formats up to "
                f"{FORMAT}; build the index again"
            )
        self._check_tables(_schema(version))
        if version < FORMAT and self.writable:
            with self.transaction():
                # The number is read again: another process may have been faster.
                _add_tables(connection, self._marks()[1])
            version = FORMAT
        self.has_pages = version > 1

    def _check_tables(self, schema: dict[str, str]) -> None:
        # An untrusted file must not bring triggers or views: only what we would create ourselves.
        found = dict(self.connection.execute("SELECT name, sql FROM sqlite_schema").fetchall())
        as_made = all(found.get(name) == statement for name, statement in schema.items())
        if not as_made or found.keys() != schema.keys() | _TABLES_OF_SQLITE:
            raise IndexFileError(f"{self._name}: its tables are not those of an index")

    def _switch_journal(self, mode: str) -> None:
        """Changes SQLite's journal mode, unless others have the file open; then it stays as it is.

        While it is being written, the file has a log next to it (WAL), so that readers can go on
        during changes of any size. Afterwards it is one file again (DELETE).
        """
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("PRAGMA busy_timeout = 0")
            self.connection.execute(f"PRAGMA journal_mode = {mode}")
        self.connection.execute(f"PRAGMA busy_timeout = {1000 * LOCK_SECONDS}")

    def _marks(self) -> tuple[int, int, int]:
        """The file's application id and version, and its number of tables."""
        statements = (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
        application, version, tables = (
            self.connection.execute(statement).fetchone()[0] for statement in statements
        )
        return application, version, tables

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """For changes: everything done inside happens, or nothing does if anything raises.

        SQLite's own errors must be caught by `naming`; others pass through unchanged.
        """
        if not self.writable:
            raise IndexFileError(f"{self._name}: was opened for reading; open it with write=True")
        with self._lock:
            with self.naming():
                self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                with self.naming():
                    self.connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has rolled back by itself.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def locked(self) -> Iterator[sqlite3.Connection]:
        """For reading: one thread at a time, with errors that name the file."""
        with self._lock, self.naming():
            yield self.connection

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Turns SQLite's errors into one line that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            message = f"{self._name}: {printable(str(error)[:200])}"  # it may quote raw bytes
            if "locked" in str(error):
                message = f"{self._name}: another process keeps it locked; try again later"
            elif "fts5" in str(error):
                message = (
                    "SQLite's full-text search (FTS5) is missing: TensorFlow brings an SQLite "
                    "without it, so import sqlite3 or gophercite.retrieval before TensorFlow; or "
                    "this Python's SQLite was built without it"
                )
            raise IndexFileError(message) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if "not a database" in str(error):
                raise IndexFileError(
                    f"{self._name}: is not an index: it is not even a database"
                ) from None
            raise self.damaged(printable(str(error)[:200])) from None

    def damaged(self, problem: str) -> IndexFileError:
        """Returns the error for a damaged file."""
        return IndexFileError(f"{self._name}: is damaged ({problem}); build the index again")


def _connect(path: str | os.PathLike[str] | None, writable: bool) -> sqlite3.Connection:
    if path is None:
        address = ":memory:"
    else:
        # Readers too may have to clean up after a killed writer. SQLite does so by itself; it opens
        # a write-protected file for reading.
        mode = "rwc" if writable else "rw"
        address = f"{pathlib.Path(path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        address,
        uri=path is not None,
        timeout=LOCK_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA query_only = {'OFF' if writable else 'ON'}")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA.values():
        connection.execute(statement)
    connection.execute(
        "INSERT INTO words(words, rank) VALUES ('rank', ?)",
        (f"bm25({TITLE_WEIGHT}, {TEXT_WEIGHT})",),
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _add_tables(connection, 1)


def _schema(version: int) -> dict[str, str]:
    added = (tables for since, tables in _ADDED.items() if since <= version)
    return functools.reduce(operator.or_, added, _SCHEMA)


def _add_tables(connection: sqlite3.Connection, version: int) -> None:
    """Turns a file of this format into one of the newest."""
    new = _schema(FORMAT)
    for name, statement in new.items():
        if name not in _schema(version):
            connection.execute(statement)
    if version < 3:
        connection.execute(_SOURCES_OF_FILES)
    connection.execute(f"PRAGMA user_version = {FORMAT}")

"""The embedded search engine: documents and their BM25 index in one SQLite file.

The file holds the documents themselves, so that a hit leads to the very text that a quote is
checked against, and a full-text index (FTS5) over title and text that refers to them. It is an
ordinary SQLite database that any number of processes may read at once, also while one writes.
"""

import contextlib
import os
import pathlib
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gophercite.documents import Document
from gophercite.json_fields import printable
from gophercite.retrieval.engine import Hit, SearchError, check_number_of_hits, parse_query

FORMAT = 1  # stands in the file as its `user_version`
APPLICATION_ID = 0x47435445  # "GCTE": what `file` and other programs know the format by

MAXIMUM_TERMS = 64  # of a query; the words after these are not looked for
SNIPPET_WORDS = 40  # about what a results page shows; FTS5 allows 64
SNIPPET_CHARACTERS = 1000  # a "word" may be a megabyte of base64
LOCK_SECONDS = 60  # how long to wait while another process writes

# A word in a title says more of what a page is about than a word in its text: from 1 to 4 recall@1
# rises by 0.04 on Natural Questions, and by 0.002 on SQuAD.
TITLE_WEIGHT, TEXT_WEIGHT = 4.0, 1.0

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
    "words": """CREATE VIRTUAL TABLE words USING fts5 (
  title, text,
  content = 'documents', content_rowid = 'number',
  tokenize = 'porter unicode61 remove_diacritics 2'
)""",
}
# What SQLite makes for these by itself.
_TABLES_OF_SQLITE = {"sqlite_autoindex_documents_1"} | {
    f"words_{part}" for part in ("config", "data", "docsize", "idx")
}
_FIELDS = "id, title, text, url, retrieved_at"
_WORD = re.compile(r"\w+")

# FTS5 walks the pages in the order of their rank and stops after enough of them.
_SEARCH = f"""
SELECT documents.url, documents.title, snippet(words, 1, '', '', '…', {SNIPPET_WORDS}), documents.id
FROM words JOIN documents ON documents.number = words.rowid
WHERE words MATCH ? AND is_admitted(documents.url)
ORDER BY words.rank LIMIT ?
"""

# Words that most English questions hold: they find every page, and draw snippets to no answer.
_STOP_WORDS = frozenset(
    _WORD.findall("""
    a about an and are as at be been but by can could did do does for from get had has have he her
    his how i if in is it its me my of on or our she so than that the their them there these they
    this those to was we were what when where which who whom whose why will with would you your
    """)
)


class IndexFileError(SearchError):
    """The file is no index, is damaged, or is in use; one line says which, and what to do."""


class Changes(NamedTuple):
    """What became of the documents that were given to `DocumentIndex.add`."""

    added: int
    updated: int
    unchanged: int


class DocumentIndex:
    """A search engine over documents of one's own.

    An object may be shared by threads, which then take turns; for reading in parallel open the file
    once a thread. Close it, or use it in a `with`.

    Args:
      path: the file; None for an index in memory, which is gone when closed.
      write: whether documents may be added and deleted. A file that does not exist is made then.

    Raises:
      IndexFileError: when the file does not exist, is no index, is damaged, or is of a newer
        version. All methods raise it when damage shows only later, or when another process keeps
        the file locked.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, write: bool = False) -> None:
        self._name = "the index in memory" if path is None else str(path)
        self._lock = threading.RLock()
        self.writable = write or path is None
        if path is not None and not self.writable and not pathlib.Path(path).is_file():
            raise IndexFileError(f"{path}: there is no such index; make one first")
        with self._naming_the_file():
            self._connection = _connect(path, self.writable)
            try:
                self._prepare()
                if self.writable:
                    # A log beside the file: readers go on however large a change is.
                    self._connection.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> "DocumentIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the object is of no use afterwards."""
        with self._lock:
            if self.writable:
                # One file again, unless others have it open.
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    self._connection.execute("PRAGMA journal_mode = DELETE")
            self._connection.close()

    def __len__(self) -> int:
        """The number of documents."""
        with self._locked():
            return int(self._connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def search(self, query: str, k: int) -> list[Hit]:
        """Returns the `k` best documents by BM25, each with the part that matches the query best.

        Pages that hold any of the query's words are found; words such as "the" count only when
        there are no others. A snippet is a run of the document's text, with `…` where text is left
        out.

        Args:
          query: any string; `site:` and `-site:` filter by the documents' URLs.
          k: how many hits are wanted, at least 1.
        """
        check_number_of_hits(k)
        parsed = parse_query(query)
        expression = _match_expression(parsed.text)
        if not expression:
            return []
        with self._locked():
            # The function belongs to the connection: each search brings its own filter.
            self._connection.create_function("is_admitted", 1, lambda url: parsed.admits(url or ""))
            rows = self._connection.execute(_SEARCH, (expression, k)).fetchall()
        return [
            Hit(url or "", title, snippet[:SNIPPET_CHARACTERS], id)
            for url, title, snippet, id in rows
        ]

    def document(self, id: str) -> Document:
        """Returns a document by its id, which hits carry.

        Raises:
          KeyError: when there is none.
        """
        with self._locked():
            row = self._connection.execute(
                f"SELECT {_FIELDS}, sha256 FROM documents WHERE id = ?", (id,)
            ).fetchone()
        if row is None:
            raise KeyError(id)
        return self._checked(row)

    def documents(self) -> Iterator[Document]:
        """Yields all documents, in the order of their addition."""
        return self._documents_of("SELECT id FROM documents ORDER BY number")

    def ids(self) -> list[str]:
        """Returns the ids of all documents, in the order of their addition."""
        with self._locked():
            rows = self._connection.execute("SELECT id FROM documents ORDER BY number").fetchall()
        return [id for (id,) in rows]

    def documents_at(self, url: str) -> list[Document]:
        """Returns the documents that are from this URL; usually one, or none."""
        return list(self._documents_of("SELECT id FROM documents WHERE url = ?", url))

    def add(self, documents: Iterable[Document]) -> Changes:
        """Adds documents; one whose id is there already takes the place of the old one.

        All of them are added, or none when anything fails on the way: readers see the index as it
        was until the end.
        """
        added = updated = unchanged = 0
        with self._transaction() as connection:
            for document in documents:
                with self._naming_the_file():
                    row = _row(document)
                    old = connection.execute(
                        f"SELECT {_FIELDS}, sha256, number FROM documents WHERE id = ?",
                        (document.id,),
                    ).fetchone()
                    if old is not None and old[:-1] == row:
                        unchanged += 1
                        continue
                    if old is None:
                        added += 1
                    else:
                        updated += 1
                        _delete(connection, old[-1])
                    _insert(connection, row)
        return Changes(added, updated, unchanged)

    def delete(self, ids: Iterable[str]) -> int:
        """Deletes documents by their ids and returns how many there were."""
        deleted = 0
        with self._transaction() as connection:
            for id in ids:
                with self._naming_the_file():
                    row = connection.execute(
                        "SELECT number FROM documents WHERE id = ?", (id,)
                    ).fetchone()
                    if row is not None:
                        _delete(connection, row[0])
                        deleted += 1
        return deleted

    def check(self) -> None:
        """Reads the whole file and compares every document with its hash.

        Whether FTS5's words are those of the texts is looked at only when open for writing.

        Raises:
          IndexFileError: when anything is damaged.
        """
        with self._locked():
            problem = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise IndexFileError(self._damaged(problem))
            if self.writable:  # FTS5 checks itself by a command that is written as an insertion
                self._connection.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        for _ in self.documents():
            pass

    def _prepare(self) -> None:
        """Makes the tables of a new file; refuses a file of another kind or version."""
        connection = self._connection
        if self.writable and self._marks() == (0, 0, 0):
            with self._transaction():
                if self._marks() == (0, 0, 0):  # still: nobody was quicker
                    _make_tables(connection)
        application, version, _ = self._marks()
        if application != APPLICATION_ID:
            raise IndexFileError(
                f"{self._name}: is no index of gophercite, but some other database"
            )
        if version != FORMAT:
            raise IndexFileError(
                f"{self._name}: has format {version}, this version reads format {FORMAT}; "
                "build the index anew"
            )
        # A stranger's file must not bring triggers or views: only what we would make ourselves.
        found = dict(connection.execute("SELECT name, sql FROM sqlite_schema").fetchall())
        as_made = all(found.get(name) == statement for name, statement in _SCHEMA.items())
        if not as_made or found.keys() != _SCHEMA.keys() | _TABLES_OF_SQLITE:
            raise IndexFileError(f"{self._name}: its tables are not those of an index")

    def _marks(self) -> tuple[int, int, int]:
        """The application and version that the file is marked with, and how many tables it has."""
        statements = (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_schema",
        )
        application, version, tables = (
            self._connection.execute(statement).fetchone()[0] for statement in statements
        )
        return application, version, tables

    def _documents_of(self, statement: str, *values: str) -> Iterator[Document]:
        with self._locked():
            ids = self._connection.execute(statement, values).fetchall()
        for (id,) in ids:
            with contextlib.suppress(KeyError):  # deleted meanwhile
                yield self.document(id)

    def _checked(self, row: tuple[str, str, str, str | None, str | None, str]) -> Document:
        id, title, text, url, retrieved_at, sha256 = row
        if not all(isinstance(field, str) for field in (title, text, url or "")):
            raise IndexFileError(self._damaged("a document's field is no text"))
        document = Document(id, title, text, url, retrieved_at)
        if document.sha256 != sha256:
            problem = f"the text of document {document.id!r} is not what was stored"
            raise IndexFileError(self._damaged(problem))
        return document

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if not self.writable:
            raise IndexFileError(f"{self._name}: was opened for reading; open it with write=True")
        with self._lock:
            with self._naming_the_file():
                self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                with self._naming_the_file():
                    self._connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has rolled back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock, self._naming_the_file():
            yield

    @contextlib.contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                message = f"{self._name}: another process has kept it locked; try again later"
                raise IndexFileError(message) from None
            # The message may quote a whole text that is not UTF-8.
            raise IndexFileError(f"{self._name}: {printable(str(error)[:200])}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if "not a database" in str(error):
                raise IndexFileError(f"{self._name}: is no index, and no database at all") from None
            raise IndexFileError(self._damaged(printable(str(error)[:200]))) from None

    def _damaged(self, problem: str) -> str:
        return f"{self._name}: is damaged ({problem}); build the index anew"


def _connect(path: str | os.PathLike[str] | None, writable: bool) -> sqlite3.Connection:
    if path is None:
        address = ":memory:"
    else:
        # Readers too may have to clean up what a killed writer left: SQLite does it by itself, and
        # opens a file that may not be written for reading.
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
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _match_expression(text: str) -> str:
    """The words of a query in FTS5's language: quoted, so that none of them is an operator."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
    telling = [word for word in words if word not in _STOP_WORDS]
    return " OR ".join(f'"{word}"' for word in (telling or words)[:MAXIMUM_TERMS])


def _row(document: Document) -> tuple[str, str, str, str | None, str | None, str]:
    return (
        document.id,
        document.title,
        document.text,
        document.url,
        document.retrieved_at,
        document.sha256,
    )


def _insert(connection: sqlite3.Connection, row: tuple[str | None, ...]) -> None:
    number = connection.execute(
        f"INSERT INTO documents ({_FIELDS}, sha256) VALUES (?, ?, ?, ?, ?, ?)", row
    ).lastrowid
    connection.execute(
        "INSERT INTO words (rowid, title, text) "
        "SELECT number, title, text FROM documents WHERE number = ?",
        (number,),
    )


def _delete(connection: sqlite3.Connection, number: int) -> None:
    # FTS5 keeps no texts of its own: it must be told the words that go.
    connection.execute(
        "INSERT INTO words (words, rowid, title, text) "
        "SELECT 'delete', number, title, text FROM documents WHERE number = ?",
        (number,),
    )
    connection.execute("DELETE FROM documents WHERE number = ?", (number,))

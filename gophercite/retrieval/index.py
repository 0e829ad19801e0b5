"""The embedded search engine: documents and their BM25 index in one SQLite file.

The file holds the documents themselves, so that a hit leads to the very text that a quote is
checked against, and a full-text index (FTS5) over title and text that refers to them.
`gophercite.retrieval.index_file` opens and guards the file.
"""

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gophercite.documents import Document
from gophercite.retrieval.engine import Hit, check_number_of_hits, parse_query
from gophercite.retrieval.index_file import IndexFile

MAXIMUM_TERMS = 64  # of a query; later words are ignored
SNIPPET_WORDS = 40  # about what a results page shows; FTS5 allows 64
SNIPPET_CHARACTERS = 1000  # a "word" may be a megabyte of base64

_FIELDS = "id, title, text, url, retrieved_at"
_FIELDS_TO_DIGEST = "id, title, url, retrieved_at, sha256"  # the last one stands for the text
_Row = tuple[str, str, str, str | None, str | None, str]  # these, and the SHA-256
_WORD = re.compile(r"\w+")

# FTS5 walks the pages in rank order and stops once it has enough.
_SEARCH = f"""
SELECT documents.url, documents.title, snippet(words, 1, '', '', '…', {SNIPPET_WORDS}),
  documents.id, words.rank
FROM words JOIN documents ON documents.number = words.rowid
WHERE words MATCH ? AND is_admitted(documents.url)
ORDER BY words.rank LIMIT ?
"""

# For `follow`. Temporary tables are private to the connection, and not part of the file.
_CREATE_FOUND = """
CREATE TEMP TABLE found (source TEXT, id TEXT, PRIMARY KEY (source, id)) WITHOUT ROWID
"""
_INSERT_FOUND = "INSERT OR IGNORE INTO found VALUES (?, ?)"
_MISSING = """
SELECT id FROM sources WHERE source = ? AND id NOT IN (SELECT id FROM found WHERE source = ?)
"""
_DELETE_MISSING = "DELETE FROM sources WHERE source = ? AND id = ?"
_SOURCE_OF = "SELECT 1 FROM sources WHERE id = ? LIMIT 1"

# Words of most English questions: they match every page, and attract snippets without the answer.
STOP_WORDS = frozenset(
    _WORD.findall("""
    a about an and are as at be been but by can could did do does for from get had has have he her
    his how i if in is it its me my of on or our she so than that the their them there these they
    this those to was we were what when where which who whom whose why will with would you your
    """)
)


class Changes(NamedTuple):
    """What became of the documents passed to `DocumentIndex.add` or `follow`."""

    added: int
    updated: int
    unchanged: int
    deleted: int = 0


class DocumentIndex:
    """A search engine over the user's own documents.

    Threads may share an object and then take turns; for parallel reading open the file once per
    thread. Close it, or use it in a `with`.

    Args:
      path: the file; None for an index in memory, which is lost when closed.
      write: whether documents may be added and deleted. If so, a missing file is created.

    Raises:
      IndexFileError: when the file does not exist, is not an index, is damaged, or is of a newer
        version. All methods raise it when damage shows only later, or when another process keeps
        the file locked.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, write: bool = False) -> None:
        self._file = IndexFile(path, write=write)

    def __enter__(self) -> "DocumentIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the object can't be used afterwards."""
        self._file.close()

    def __len__(self) -> int:
        """The number of documents."""
        with self._file.locked() as connection:
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def search(self, query: str, k: int) -> list[Hit]:
        """Returns the `k` best documents by BM25, each with the part that matches the query best.

        Pages with any of the query's words are found; words such as "the" count only when there
        are no others. A snippet is a run of the document's text, with `…` where text is left out.

        Args:
          query: any string; `site:` and `-site:` filter by the documents' URLs.
          k: number of hits wanted, at least 1.
        """
        check_number_of_hits(k)
        parsed = parse_query(query)
        expression = match_expression(parsed.text)
        if not expression:
            return []
        with self._file.locked() as connection:
            # The function belongs to the connection: each search installs its own filter.
            connection.create_function("is_admitted", 1, lambda url: parsed.admits(url or ""))
            rows = connection.execute(_SEARCH, (expression, k)).fetchall()
        return [
            Hit(url or "", title, snippet[:SNIPPET_CHARACTERS], id, -rank)
            for url, title, snippet, id, rank in rows  # SQLite's rank is lower for better matches
        ]

    def document(self, id: str) -> Document:
        """Returns a document by its id, which each hit has.

        Raises:
          KeyError: when there is no such document.
        """
        with self._file.locked() as connection:
            row = self._row_at(connection, id)
        if row is None:
            raise KeyError(id)
        return self._checked(*row)

    def documents(self) -> Iterator[Document]:
        """Yields all documents, in the order in which they were added."""
        return self._documents_of("SELECT id FROM documents ORDER BY number")

    def ids(self) -> list[str]:
        """Returns the ids of all documents, in the order in which they were added."""
        with self._file.locked() as connection:
            rows = connection.execute("SELECT id FROM documents ORDER BY number").fetchall()
        return [id for (id,) in rows]

    def documents_at(self, url: str) -> list[Document]:
        """Returns the documents from this URL; usually one, or none."""
        return list(self._documents_of("SELECT id FROM documents WHERE url = ?", url))

    def documents_with(self, sha256: str) -> list[Document]:
        """Returns the documents whose text has this SHA-256; reads the whole table."""
        return list(self._documents_of("SELECT id FROM documents WHERE sha256 = ?", sha256))

    def add(self, documents: Iterable[Document]) -> Changes:
        """Adds documents; each replaces the document with the same id, if there is one.

        Adds all of them, or none if anything fails: until the end, readers see the index as it
        was.
        """
        with self._file.transaction() as connection:
            return self._add(connection, documents)

    def follow(
        self, found: Iterable[tuple[str, Document]], was_read: Callable[[str], bool]
    ) -> Changes:
        """Makes the index follow sources: adds what they have, deletes what they no longer have.

        A document is deleted when no source has it any more. Like `add`, makes all changes or none.

        Args:
          found: the documents of the sources that were read, each with its source's name.
          was_read: whether a source was read, given its name; asked when `found` is exhausted. A
            source that was read and is not in `found` is one without documents. What is known
            about sources that were not read stays.
        """
        with self._file.transaction() as connection:
            with self._file.naming():
                # In a table: the ids of millions of documents would fill the memory.
                connection.execute(_CREATE_FOUND)

            def noted() -> Iterator[Document]:
                for source, document in found:
                    with self._file.naming():
                        connection.execute(_INSERT_FOUND, (source, document.id))
                    yield document

            changes = self._add(connection, noted())
            with self._file.naming():
                known = connection.execute("SELECT DISTINCT source FROM sources").fetchall()
                gone: set[str] = set()
                for (source,) in known:
                    if was_read(source):
                        rows = connection.execute(_MISSING, (source, source)).fetchall()
                        gone.update(id for (id,) in rows)
                        connection.executemany(_DELETE_MISSING, ((source, *row) for row in rows))
                connection.execute("INSERT OR IGNORE INTO sources SELECT * FROM found")
                connection.execute("DROP TABLE found")
                deleted = 0
                for id in gone:
                    if not connection.execute(_SOURCE_OF, (id,)).fetchone():
                        deleted += _delete_id(connection, id)
        return changes._replace(deleted=deleted)

    def delete(self, ids: Iterable[str]) -> int:
        """Deletes documents by their ids and returns how many existed."""
        deleted = 0
        with self._file.transaction() as connection:
            for id in ids:
                with self._file.naming():
                    connection.execute("DELETE FROM sources WHERE id = ?", (id,))
                    deleted += _delete_id(connection, id)
        return deleted

    def digest(self) -> str:
        """A SHA-256 of all documents and their order; reads the whole table.

        Searches of indexes with equal digests find the same.
        """
        starts, join = ("starts", "LEFT JOIN pages USING (number)")
        if not self._file.has_pages:
            starts, join = "NULL", ""
        statement = f"SELECT {_FIELDS_TO_DIGEST}, {starts} FROM documents {join} ORDER BY number"
        found = hashlib.sha256()
        with self._file.locked() as connection:
            for row in connection.execute(statement):
                found.update(f"{row!r}\n".encode())
        return found.hexdigest()

    def check(self) -> None:
        """Reads the whole file and compares every document with its hash.

        FTS5's words are compared with the texts only when the index is open for writing.

        Raises:
          IndexFileError: when anything is damaged.
        """
        with self._file.locked() as connection:
            problem = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise self._file.damaged(problem)
            if self._file.writable:  # FTS5's self-check is written as an insertion
                connection.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        for _ in self.documents():
            pass

    def _add(self, connection: sqlite3.Connection, documents: Iterable[Document]) -> Changes:
        added = updated = unchanged = 0
        for document in documents:
            with self._file.naming():
                row = _row(document)
                old = self._row_at(connection, document.id)
                if old is not None and old[:-1] == row:
                    unchanged += 1
                    continue
                if old is None:
                    added += 1
                else:
                    updated += 1
                    _delete(connection, old[-1])
                _insert(connection, *row)
        return Changes(added, updated, unchanged)

    def _documents_of(self, statement: str, *values: str) -> Iterator[Document]:
        with self._file.locked() as connection:
            ids = connection.execute(statement, values).fetchall()
        for (id,) in ids:
            with contextlib.suppress(KeyError):  # deleted in the meantime
                yield self.document(id)

    def _row_at(
        self, connection: sqlite3.Connection, id: str
    ) -> tuple[_Row, str | None, int] | None:
        """A document's fields, its page starts as JSON, and its number."""
        found = connection.execute(
            f"SELECT {_FIELDS}, sha256, number FROM documents WHERE id = ?", (id,)
        ).fetchone()
        if found is None:
            return None
        *fields, number = found
        pages = None
        if self._file.has_pages:
            pages = connection.execute(
                "SELECT starts FROM pages WHERE number = ?", (number,)
            ).fetchone()
        return tuple(fields), pages[0] if pages else None, number

    def _checked(self, fields: _Row, starts: str | None, number: int) -> Document:
        id, title, text, url, retrieved_at, sha256 = fields
        if not all(isinstance(field, str) for field in (title, text, url or "")):
            raise self._file.damaged("a document's field is not text")
        try:
            pages = _page_starts(starts)
            document = Document(id, title, text, url, retrieved_at, page_starts=pages)
        except (ValueError, TypeError, RecursionError):
            problem = f"the pages of document {number} don't lie in its text"
            raise self._file.damaged(problem) from None
        # Earlier versions kept null characters, and hashed them.
        as_stored = "\0" in text and hashlib.sha256(text.encode("utf-8")).hexdigest() == sha256
        if document.sha256 != sha256 and not as_stored:
            problem = f"the text of document {document.id!r} was changed after it was stored"
            raise self._file.damaged(problem)
        return document


def match_expression(text: str) -> str:
    """Returns the words of a query in FTS5's syntax: quoted, so that none of them is an operator.

    Words such as "the" are left out unless there are no others; without any word it is empty.
    """
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
    telling = [word for word in words if word not in STOP_WORDS]
    return " OR ".join(f'"{word}"' for word in (telling or words)[:MAXIMUM_TERMS])


def _page_starts(written: str | None) -> tuple[int, ...]:
    if written is None:
        return ()
    found = json.loads(written)
    if not isinstance(found, list) or not all(type(start) is int for start in found):
        raise ValueError("not a list of whole numbers")
    return tuple(found)


def _row(document: Document) -> tuple[_Row, str | None]:
    fields = (
        document.id,
        document.title,
        document.text,
        document.url,
        document.retrieved_at,
        document.sha256,
    )
    return fields, json.dumps(document.page_starts) if document.page_starts else None


def _insert(connection: sqlite3.Connection, fields: _Row, starts: str | None) -> None:
    number = connection.execute(
        f"INSERT INTO documents ({_FIELDS}, sha256) VALUES (?, ?, ?, ?, ?, ?)", fields
    ).lastrowid
    if starts is not None:
        connection.execute("INSERT INTO pages VALUES (?, ?)", (number, starts))
    connection.execute(
        "INSERT INTO words (rowid, title, text) "
        "SELECT number, title, text FROM documents WHERE number = ?",
        (number,),
    )


def _delete_id(connection: sqlite3.Connection, id: str) -> bool:
    """Deletes the document with this id; returns whether there was one."""
    row = connection.execute("SELECT number FROM documents WHERE id = ?", (id,)).fetchone()
    if row is not None:
        _delete(connection, row[0])
    return row is not None


def _delete(connection: sqlite3.Connection, number: int) -> None:
    # FTS5 keeps no copy of the texts: it must be given the words to remove.
    connection.execute(
        "INSERT INTO words (words, rowid, title, text) "
        "SELECT 'delete', number, title, text FROM documents WHERE number = ?",
        (number,),
    )
    connection.execute("DELETE FROM documents WHERE number = ?", (number,))
    connection.execute("DELETE FROM pages WHERE number = ?", (number,))

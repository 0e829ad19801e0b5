"""Finds the text that answers a query's words best by BM25, with SQLite's full-text search."""

import contextlib
import sqlite3
from collections.abc import Sequence

from gophercite.text import tfidf


def best(query: str, texts: Sequence[str]) -> int | None:
    """Returns the index of the best text by BM25 (k1 1.2, b 0.75), for any of the query's words.

    Words are compared by their stems, without accents, as in the search index
    (`gophercite.retrieval.index`). Document frequencies are counted over `texts`; a word that is in
    most of them hardly counts. On a tie, and if no text has any of the words, the first text is
    returned; None if there are no texts.
    """
    if not texts:
        return None
    wanted = " OR ".join(f'"{word}"' for word in sorted(tfidf.words(query)))
    if not wanted:
        return 0
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE texts USING "
            "fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(texts))
        found = connection.execute(
            "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank, rowid LIMIT 1", (wanted,)
        ).fetchone()
    return 0 if found is None else int(found[0])

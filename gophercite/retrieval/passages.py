"""Finds the passages of long pages that fit a question best.

A search finds a page by all of its text, but a prompt shows only a part of it. The one around the
search engine's snippet is often not the one with the answer, and of a page that answers in several
places, or of one that is the only page, several parts may be worth showing. So passages of the
pages that were found compete with one another, as pages do in an index: by BM25.
"""

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gophercite.documents import Document
from gophercite.retrieval.index import match_expression
from gophercite.retrieval.index_file import TOKENIZER
from gophercite.retrieval.snippets import Span
from gophercite.text.sentences import sentence_spans

# Each passage overlaps the one before by half, so that sentences that belong together are together
# in one of them.
_OVERLAP = 2
_LONGEST_WORD = 100  # characters; longer ones are cut
_WORD = re.compile(rf"\S{{1,{_LONGEST_WORD}}}")


# A passage's length, as a share of what fits; and the shortest, because a large page has many.
_SHARE, _SHORTEST = 0.7, 100


class Passage(NamedTuple):
    """A part of a page.

    Attributes:
      document: the page.
      span: `(start, end)` in its text, of whole sentences; of very long ones, of whole words.
    """

    document: Document
    span: Span


def passage_length(characters: float) -> int:
    """Returns how long passages should be, in characters, if so many are shown of each.

    They are shorter, so that they fit if they have more tokens than others.
    """
    return max(_SHORTEST, int(_SHARE * characters))


def find_passages(question: str, pages: Sequence[Document], characters: int) -> list[Passage]:
    """Returns the passages whose text shares a word with the question, the best first.

    Args:
      question: words such as "the" count only if there are no others.
      pages: a page that is there twice counts once.
      characters: about how long a passage is; a shorter page is a passage.

    Returns:
      Passages, of which those next to each other in a page overlap.

    Raises:
      ValueError: `characters` is below 2.
    """
    if characters < _OVERLAP:
        raise ValueError(f"characters is {characters}: must be at least {_OVERLAP}")
    expression = match_expression(question)
    if not expression:
        return []
    different = {page.id: page for page in pages}.values()
    passages = [Passage(page, span) for page in different for span in _cut(page.text, characters)]
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            f"CREATE VIRTUAL TABLE passages USING fts5 (title, text, tokenize = '{TOKENIZER}')"
        )
        connection.executemany(
            "INSERT INTO passages (rowid, title, text) VALUES (?, ?, ?)",
            (
                (number, document.title, document.text[start:end])
                for number, (document, (start, end)) in enumerate(passages)
            ),
        )
        # The title may say which page is best, but not which of its passages. Of equal ones the
        # first page's comes first.
        found = connection.execute(
            "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank, rowid",
            (f"({{text}} : ({expression})) AND ({expression})",),
        )
        return [passages[number] for (number,) in found]


def best_apart(passages: Sequence[Passage], k: int) -> list[Passage]:
    """Returns the first `k` passages of which none overlaps an earlier one."""
    chosen: list[Passage] = []
    for document, (start, end) in passages:
        if len(chosen) == k:
            break
        if not any(
            each.document.id == document.id and start < each.span[1] and each.span[0] < end
            for each in chosen
        ):
            chosen.append(Passage(document, (start, end)))
    return chosen


def _cut(text: str, characters: int) -> Iterator[Span]:
    """Yields passages of `text` of about `characters`, each of which begins midway in the last.

    They begin with a paragraph rather than with another sentence.
    """
    step = characters // _OVERLAP
    starts: list[int] = []
    end = 0
    for start, following in _sentences(text, step):
        new_line = start == 0 or text[start - 1] == "\n"
        if not starts or start >= starts[-1] + (step // 2 if new_line else step):
            starts.append(start)
            if len(starts) > _OVERLAP:
                yield starts.pop(0), end
        end = following
    if starts:
        yield starts[0], end


def _sentences(text: str, longest: int) -> Iterator[Span]:
    """Yields the sentences of `text`, and of longer ones runs of words."""
    for start, end in sentence_spans(text):
        first, last = start, start
        if end - start > longest:
            for word in _WORD.finditer(text, start, end):
                if word.end() > first + longest and last > first:
                    yield first, last
                    first = word.start()
                last = word.end()
        yield first, end

"""Where a quote, or a run of one, may begin and end in a page.

The boundaries are those of the entire page, even if a prompt shows only a window of it: an end of
the window is a boundary only if the page has one there.
"""

import re
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

from gophercite.documents import Document, Window
from gophercite.text.sentences import sentence_spans
from gophercite.text.word_boundaries import word_boundaries

Boundaries = Literal["words", "sentences", "characters"]

# Positions where the boundaries on one side do not depend on the text on the other side: a letter
# or digit after a space or a line end begins a word (UAX #29); an empty line ends a sentence.
_WORDS_PART = re.compile(r"(?<=[ \n])[A-Za-z0-9]")
_SENTENCES_PART = re.compile(r"\n[ \t]{0,16}\n")
_NEAR = 256  # characters searched first for such a position


class RunBoundaries(NamedTuple):
    """The boundaries of a text, for each position from before its first character to its end.

    Attributes:
      begins: whether a run may begin there; meaningless at the text's end.
      ends: whether a run may end there; meaningless at the text's beginning.
    """

    begins: Bool[np.ndarray, " characters_and_one"]
    ends: Bool[np.ndarray, " characters_and_one"]


def run_boundaries(source: Document | Window, boundaries: Boundaries) -> RunBoundaries:
    """Finds where runs may begin and end in a source that a prompt shows.

    Args:
      source: the document or window shown.
      boundaries: with `"words"`, a run begins and ends where Unicode has a word boundary, and
        neither begins nor ends with white space; with `"sentences"`, it begins where a sentence
        begins and ends where one ends; with `"characters"`, anywhere.
    """
    page, first, last = source.text, 0, len(source.text)
    if isinstance(source, Window):
        page, first, last = source.document.text, source.start, source.end
    if boundaries == "characters":
        everywhere = np.ones(last - first + 1, bool)
        return RunBoundaries(everywhere, everywhere)
    parts = _WORDS_PART if boundaries == "words" else _SENTENCES_PART
    before, after = _parted_before(parts, page, first), _parted_after(parts, page, last)
    region = page[before:after]
    if boundaries == "words":
        found = word_boundaries(region)
        blank = np.fromiter(map(str.isspace, region), bool, len(region))
        begins = found & ~np.append(blank, True)
        ends = found & ~np.append(True, blank)
    else:
        spans = np.array(sentence_spans(region), np.int64).reshape(-1, 2)
        begins, ends = np.zeros((2, len(region) + 1), bool)
        begins[spans[:, 0]] = True
        ends[spans[:, 1]] = True
    shown = slice(first - before, last - before + 1)
    return RunBoundaries(begins[shown], ends[shown])


def _parted_before(parts: re.Pattern[str], text: str, place: int) -> int:
    """The last match of `parts` at or before a position; the text's beginning if there is none."""
    reach = _NEAR
    while True:
        low = max(0, place - reach)
        found = [match.start() for match in parts.finditer(text, low, place + 1)]
        if found or low == 0:
            return found[-1] if found else 0
        reach *= 4


def _parted_after(parts: re.Pattern[str], text: str, place: int) -> int:
    """The first match of `parts` at or after a position; the text's end if there is none."""
    match = parts.search(text, max(0, place - 1))
    while match is not None and match.start() < place:
        match = parts.search(text, match.start() + 1)
    return len(text) if match is None else match.start()

"""Chooses which part of a page a prompt shows (GopherCite, appendices A and D.2).

A window has a maximum number of tokens of the model's own vocabulary and contains a given span (the
place of a snippet, or a quote). It starts where a sentence or paragraph does: in training at a
random one of those starts, at inference at most 500 characters before the span. A page that fits is
shown in full.

Only the neighbourhood of the span is split and tokenised: the cost of a window depends on the
budget, not on the page.
"""

import random
import re
from collections.abc import Iterator

from gophercite.documents import Document, Window
from gophercite.text.sentences import LOOK_AHEAD, sentence_spans
from gophercite.vocabularies import Vocabulary

Span = tuple[int, int]

CHARACTERS_BEFORE = 500  # appendix A, at inference

_CHARACTERS_PER_TOKEN = 6  # a first guess, generous for prose; a wrong guess only costs time
_MARGIN = 16  # maximum difference in tokens between a text and its parts
LONGEST_WORD = 40  # characters; in text without spaces, words are cut
_LINE = re.compile(r"^[^\S\n]*+(?=\S)", re.MULTILINE)  # up to where the line's text starts
_RESYNCHRONISE = 200  # characters before the region that the sentence splitter also sees


def training_window(
    document: Document, span: Span, budget: int, vocabulary: Vocabulary, draw: random.Random
) -> Window | None:
    """Returns a window with a random start; every legal start is equally likely.

    A start is legal when a sentence or paragraph starts there, at or before the span, and the text
    from there to the end of the span (or of the word that the span ends in) fits the budget. If
    there is none, line starts are legal. If there is none of these either, it is the start of the
    word in which the span begins, or the start of the span.

    Args:
      document: the page.
      span: `(start, end)` of what the window must contain.
      budget: maximum number of tokens.
      vocabulary: the model's.
      draw: random numbers for this example: equal ones give equal windows.

    Returns:
      The window; the whole page when that fits; None when the span alone exceeds the budget, or
      the budget is 0.

    Raises:
      ValueError: when the span is not within the page.
    """
    return _window(document, span, budget, vocabulary, before=None, draw=draw)


def inference_window(
    document: Document,
    span: Span,
    budget: int,
    vocabulary: Vocabulary,
    *,
    before: int = CHARACTERS_BEFORE,
) -> Window | None:
    """Returns the window with the earliest legal start at most `before` characters before the span.

    Legal starts, arguments, return value and errors are those of `training_window`.
    """
    return _window(document, span, budget, vocabulary, before=before, draw=None)


def _window(
    document: Document,
    span: Span,
    budget: int,
    vocabulary: Vocabulary,
    *,
    before: int | None,
    draw: random.Random | None,
) -> Window | None:
    text = document.text
    start, end = span
    if not 0 <= start <= end <= len(text):
        raise ValueError(
            f"the span {start}:{end} lies outside document {document.id!r}, whose text has "
            f"{len(text)} characters"
        )
    if budget < 1:
        return None
    if _fits(text, budget, vocabulary):
        return Window(document, 0, len(text))
    first = 0 if before is None else max(0, start - before)
    if before is None or not _fits(text[first:end], budget, vocabulary):
        first = max(first, _reach(text, span, budget, vocabulary))
    for starts in _starts(text, first, start):
        if draw is not None:
            draw.shuffle(starts)  # so the first start that fits is a uniform draw from all that do
        for candidate in starts:
            window_end = longest_end(text, candidate, end, budget, vocabulary)
            if window_end is not None:
                return Window(document, candidate, window_end)
    return None


# --- Starts ---


def _starts(text: str, first: int, last: int) -> Iterator[list[int]]:
    """Yields the starts in `[first, last]`, in order: sentence starts, else lines, else the span's.

    Paragraphs of one line are hard to tell from wrapped lines, so line starts count only where no
    sentence start works.
    """
    yield _sentence_starts(text, first, last)
    yield [line.end() for line in _LINE.finditer(text, first, last + 1) if line.end() <= last]
    space = max(text.rfind(space, max(first, last - LONGEST_WORD), last) for space in " \n\t")
    yield [space + 1] if 0 <= space < last - 1 else []
    yield [last]


def _sentence_starts(text: str, first: int, last: int) -> list[int]:
    """Returns the sentence starts of `text` in `[first, last]`, splitting little else."""
    before = max(0, first - _RESYNCHRONISE)
    region = text[before : last + LOOK_AHEAD]  # a sentence's end depends on how the next begins
    starts = [before + start for start, _ in sentence_spans(region)]
    if before > 0:
        del starts[:1]  # the region's start is not the start of a sentence
    return [start for start in starts if first <= start <= last]


# --- Budget ---


def _fits(text: str, budget: int, vocabulary: Vocabulary) -> bool:
    """Whether `text` has at most `budget` tokens; very long texts are not tokenised."""
    return len(text) <= _CHARACTERS_PER_TOKEN * budget and len(vocabulary.encode(text)) <= budget


def _reach(text: str, span: Span, budget: int, vocabulary: Vocabulary) -> int:
    """Returns a place such that from any earlier start, the span certainly exceeds the budget."""
    start, end = span
    size = end - start + _CHARACTERS_PER_TOKEN * budget
    while True:
        region = text[max(0, end - size) : end]
        ids = vocabulary.encode(region)
        if len(ids) > budget + _MARGIN:
            return end - _characters(ids[-budget - _MARGIN :], vocabulary)
        if size >= end:
            return 0
        size *= 2


def longest_end(
    text: str, start: int, least: int, budget: int, vocabulary: Vocabulary
) -> int | None:
    """Returns the end of the longest window from `start`, or None when `least` is beyond it.

    A word that does not fit completely is left out, unless the span ends inside it.
    """
    size = least - start + _CHARACTERS_PER_TOKEN * budget
    ids = vocabulary.encode(text[start : start + size])
    while len(ids) <= budget and start + size < len(text):
        size *= 2
        ids = vocabulary.encode(text[start : start + size])
    if len(ids) <= budget:
        return len(text)
    kept = budget
    while kept > 0:
        end = start + _characters(ids[:kept], vocabulary)
        end = max(_word_end(text, end), min(end, least))
        if end < least:
            break
        excess = len(vocabulary.encode(text[start:end])) - budget
        if excess <= 0:
            return end
        kept -= excess
    # By itself, the span's last word may have fewer tokens than as part of a longer one.
    nearly = least - start <= _characters(ids[: budget + _MARGIN], vocabulary)
    return least if nearly and len(vocabulary.encode(text[start:least])) <= budget else None


def _characters(ids: list[int], vocabulary: Vocabulary) -> int:
    """Returns how many complete characters the tokens spell."""
    spelled = map(vocabulary.token_bytes, ids)  # never None: text encodes to no special token
    return len(b"".join(spelled).decode("utf-8", errors="ignore"))  # type: ignore[arg-type]


def _word_end(text: str, end: int) -> int:
    """Returns `end`, or the end of the last complete word before it if it cuts a word."""
    if end >= len(text) or text[end].isspace():
        return end
    for place in range(end, max(0, end - LONGEST_WORD), -1):
        if text[place - 1].isspace():
            return place - 1
    return end

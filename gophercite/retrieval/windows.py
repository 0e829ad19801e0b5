"""Which part of a page a prompt shows (GopherCite, appendices A and D.2).

A window has at most so many tokens of the model's own vocabulary, contains a given span (the place
of a snippet, or a quote) and starts where a sentence or paragraph does: in training at one of those
starts, drawn at random, at inference at most 500 characters before the span. A page that fits is
shown whole.

Only the neighbourhood of the span is split and tokenised: what a window costs depends on the
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

_CHARACTERS_PER_TOKEN = 6  # a first guess, generous for prose; wrong ones cost time alone
_MARGIN = 16  # tokens by which the parts of a text may differ from its whole
LONGEST_WORD = 40  # characters; in text without spaces, words are cut
_LINE = re.compile(r"^[^\S\n]*+(?=\S)", re.MULTILINE)  # up to where its text starts
_RESYNCHRONISE = 200  # characters of text that the sentence splitter sees before what it splits


def training_window(
    document: Document, span: Span, budget: int, vocabulary: Vocabulary, draw: random.Random
) -> Window | None:
    """Returns a window that starts at random, with equal chances for every legal start.

    A start is legal when a sentence or paragraph starts there, at or before the span, and the text
    from there to the end of the span, or of the word that the span ends in, fits the budget. Where
    there is none, line starts are legal, and where there is none either, the start of the word at
    which the span begins or the span's.

    Args:
      document: the page.
      span: `(start, end)` of what the window must contain.
      budget: how many tokens it may have.
      vocabulary: of the model.
      draw: the random numbers of this example: equal ones give equal windows.

    Returns:
      The window, the whole page when that fits, or None when the span alone exceeds the budget,
      or that is 0.

    Raises:
      ValueError: when the span is not a span of the page.
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

    Which starts are legal, arguments, return and errors are as for `training_window`.
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
            draw.shuffle(starts)  # the first that fits is drawn evenly from those that fit
        for candidate in starts:
            window_end = longest_end(text, candidate, end, budget, vocabulary)
            if window_end is not None:
                return Window(document, candidate, window_end)
    return None


# --- Starts ---


def _starts(text: str, first: int, last: int) -> Iterator[list[int]]:
    """Yields the starts in `[first, last]`, in order: of sentences, else of lines, else the span's.

    Paragraphs that are single lines are hard to tell from wrapped lines; so line starts count only
    where no sentence start will do.
    """
    yield _sentence_starts(text, first, last)
    yield [line.end() for line in _LINE.finditer(text, first, last + 1) if line.end() <= last]
    space = max(text.rfind(space, max(first, last - LONGEST_WORD), last) for space in " \n\t")
    yield [space + 1] if 0 <= space < last - 1 else []
    yield [last]


def _sentence_starts(text: str, first: int, last: int) -> list[int]:
    """Returns where sentences of `text` start in `[first, last]`, looking at little else."""
    before = max(0, first - _RESYNCHRONISE)
    region = text[before : last + LOOK_AHEAD]  # a sentence's end shows in how the next begins
    starts = [before + start for start, _ in sentence_spans(region)]
    if before > 0:
        del starts[:1]  # where the region starts is no start of a sentence
    return [start for start in starts if first <= start <= last]


# --- Budget ---


def _fits(text: str, budget: int, vocabulary: Vocabulary) -> bool:
    """Whether `text` has at most `budget` tokens; long texts are not looked at."""
    return len(text) <= _CHARACTERS_PER_TOKEN * budget and len(vocabulary.encode(text)) <= budget


def _reach(text: str, span: Span, budget: int, vocabulary: Vocabulary) -> int:
    """Returns a start before which the budget certainly ends before the span does."""
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

    A word that does not fit whole is left out, unless the span ends inside it.
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
    # Alone, the last word of the span may have fewer tokens than as a part of a longer one.
    nearly = least - start <= _characters(ids[: budget + _MARGIN], vocabulary)
    return least if nearly and len(vocabulary.encode(text[start:least])) <= budget else None


def _characters(ids: list[int], vocabulary: Vocabulary) -> int:
    """Returns how many whole characters tokens spell."""
    spelled = map(vocabulary.token_bytes, ids)  # never None: text encodes to no special token
    return len(b"".join(spelled).decode("utf-8", errors="ignore"))  # type: ignore[arg-type]


def _word_end(text: str, end: int) -> int:
    """Returns `end`, or the end of the last whole word before it where it cuts one."""
    if end >= len(text) or text[end].isspace():
        return end
    for place in range(end, max(0, end - LONGEST_WORD), -1):
        if text[place - 1].isspace():
            return place - 1
    return end

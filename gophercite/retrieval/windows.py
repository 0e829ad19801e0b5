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
from gophercite.retrieval.token_budgets import LONGEST_WORD, Span, TokenBudget
from gophercite.retrieval.word_tables import WordTable
from gophercite.text.sentences import LOOK_AHEAD, sentence_spans
from gophercite.vocabularies import Vocabulary

CHARACTERS_BEFORE = 500  # appendix A, at inference

_LINE = re.compile(r"^[^\S\n]*+(?=\S)", re.MULTILINE)  # up to where the line's text starts
_RESYNCHRONISE = 200  # characters before the region that the sentence splitter also sees


def training_window(
    document: Document,
    span: Span,
    budget: int,
    tokens: Vocabulary | TokenBudget,
    draw: random.Random,
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
      tokens: what counts them: the model's vocabulary, or `token_budget` of this page.
      draw: random numbers for this example: equal ones give equal windows.

    Returns:
      The window; the whole page when that fits; None when the span alone exceeds the budget, or
      the budget is 0.

    Raises:
      ValueError: when the span is not within the page.
    """
    return _window(document, span, budget, tokens, before=None, draw=draw)


def inference_window(
    document: Document,
    span: Span,
    budget: int,
    tokens: Vocabulary | TokenBudget,
    *,
    before: int = CHARACTERS_BEFORE,
) -> Window | None:
    """Returns the window with the earliest legal start at most `before` characters before the span.

    Legal starts, arguments, return value and errors are those of `training_window`.
    """
    return _window(document, span, budget, tokens, before=before, draw=None)


def token_budget(document: Document, vocabulary: Vocabulary) -> TokenBudget:
    """Returns what counts the tokens of a page, to cut several windows from it."""
    kind = WordTable if vocabulary.splits_words else TokenBudget
    return kind(document.text, vocabulary)


def _window(
    document: Document,
    span: Span,
    budget: int,
    tokens: Vocabulary | TokenBudget,
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
    if isinstance(tokens, Vocabulary):
        tokens = token_budget(document, tokens)
    if tokens.fits(0, len(text), budget):
        return Window(document, 0, len(text))
    first = 0 if before is None else max(0, start - before)
    if before is None or not tokens.fits(first, end, budget):
        first = max(first, tokens.reach(span, budget))
    for starts in _starts(text, first, start):
        if draw is not None:
            draw.shuffle(starts)  # so the first start that fits is a uniform draw from all that do
        for candidate in starts:
            window_end = tokens.longest_end(candidate, end, budget)
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

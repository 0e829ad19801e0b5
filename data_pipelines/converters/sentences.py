"""Finds the sentences of a text that contain an answer."""

import re
from collections.abc import Sequence

from gophercite.documents import normalise_text
from gophercite.text.sentences import sentence_spans

Span = tuple[int, int]

# Minimum share of an answer's words that a sentence must contain if it isn't there verbatim.
_MINIMUM_RECALL = 0.75


def covering(text: str, span: Span) -> Span:
    """Returns the span of the sentence, or of the few sentences, that contain `text[span]`."""
    touched = [s for s in sentence_spans(text) if s[0] < span[1] and span[0] < s[1]]
    return min(first for first, _ in touched), max(last for _, last in touched)


def find_verbatim(text: str, answer: str) -> Span | None:
    """Returns where a text first contains the words of an answer, ignoring case, or None."""
    words = re.escape(normalise_text(answer).strip())
    if not words:
        return None
    found = re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
    return found.span() if found else None


def find_answer(text: str, answers: Sequence[str]) -> tuple[str, Span] | None:
    """Returns the first of some answers that a text contains, and where.

    Args:
      text: a passage.
      answers: as people wrote them, the best first.

    Returns:
      The first answer that occurs in the text, and its span. If none does, the first answer of
      which one sentence has at least three quarters of the words (articles ignored), and that
      sentence's span. Otherwise None.
    """
    for answer in answers:
        span = find_verbatim(text, answer)
        if span is not None:
            return answer, span
    for answer in answers:
        words = _words(answer)
        for first, last in sentence_spans(text):
            found = words & _words(text[first:last])
            if words and len(found) >= _MINIMUM_RECALL * len(words):
                return answer, (first, last)
    return None


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower())) - {"a", "an", "the"}

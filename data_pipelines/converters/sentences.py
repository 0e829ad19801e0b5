"""Which sentences of a text hold an answer."""

from gophercite.documents import normalise_text
from gophercite.evaluation.metrics import normalize_answer
from gophercite.sentences import sentence_spans

Span = tuple[int, int]

# An answer in other words than the passage's: the share of its words that a sentence must have.
_MINIMUM_RECALL = 0.75


def covering(text: str, span: Span) -> Span:
    """Returns the span of the sentence, or of the few sentences, that hold `text[span]`."""
    touched = [s for s in sentence_spans(text) if s[0] < span[1] and span[0] < s[1]]
    return min(first for first, _ in touched), max(last for _, last in touched)


def find_answer(text: str, answer: str) -> Span | None:
    """Returns where a text says an answer: the words themselves, or else a sentence that says them.

    Args:
      text: a passage.
      answer: as people wrote it; case and its surrounding space don't matter.

    Returns:
      The first place with the words; else the sentence that has at least three quarters of them,
      articles apart; None when there is none.
    """
    wanted = normalise_text(answer).strip()
    start = text.lower().find(wanted.lower())
    if start >= 0 and len(text.lower()) == len(text):
        return start, start + len(wanted)
    words = set(normalize_answer(answer).split())
    best, recall = None, 0.0
    for first, last in sentence_spans(text):
        found = words & set(normalize_answer(text[first:last]).split())
        if words and len(found) / len(words) > recall:
            best, recall = (first, last), len(found) / len(words)
    return best if recall >= _MINIMUM_RECALL else None

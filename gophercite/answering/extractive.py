"""Answers without a model: a baseline that quotes the sentence nearest to the question."""

import re

from gophercite import evidence
from gophercite.answering.pages import FoundPages, asked
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records.answers import Answer, LeftOut, cite
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.index import STOP_WORDS
from gophercite.retrieval.snippets import find_snippet
from gophercite.text import tfidf
from gophercite.text.sentences import sentence_spans

BASELINE = "best page, TF-IDF sentence"

# An answer is quoted only if more than this share of the question's words is around it. Chosen with
# `benchmarks/relevance.py`; the figures are in docs/ask.md.
LEAST_RELEVANCE = 1 / 3

_NEAR = 500  # characters before and after a quote that are searched for the question's words
_STEM = 5  # words are compared by this many first letters: lead, leads, leading
_WORD = re.compile(r"\w+")
_REACH = 100_000  # characters before and after the snippet that are searched
_LONGEST = 1000  # characters of a sentence; anything longer is a table, or worse


def extractive_answer(
    question: str, found: FoundPages, *, least_relevance: float = LEAST_RELEVANCE
) -> Answer:
    """Takes the sentence nearest to the question, from the best page, as both claim and quote.

    The best page is the first with a sentence that shares a word with the question, adds a word of
    its own, and has enough of the question's words around it (`relevance`). Nothing is understood
    here: the baseline shows what retrieval alone can do (compare GopherCite, section 3.2).

    Args:
      question: as the user typed it; filters in it are taken out.
      found: its pages.
      least_relevance: the quote's relevance must be above this; 0 quotes the nearest sentence
        whatever the pages are about.

    Raises:
      ValueError: when the question is blank or has only filters, or `least_relevance` is not in
        0 … 1.
    """
    if not 0 <= least_relevance < 1:
        raise ValueError(f"least_relevance = {least_relevance}: must be at least 0 and below 1")
    question = asked(question)
    left_out = list(found.left_out)
    for result in found.results:
        best = _nearest(question, result)
        if best is None:
            mark = evidence.named_mark(result.document.title)
            reason = "no sentence in it shares a word with the question and adds another"
            reason = reason if mark is None else f"its title {mark}"
            left_out.append(LeftOut(result.document.id, reason))
            continue
        start, end, cosine = best
        page = result.document
        share = relevance(question, page, start, end)
        if least_relevance and share <= least_relevance:
            reason = (
                f"it says too little about the question: {share:.0%} of the question's words "
                f"occur near its most similar sentence, but more than {least_relevance:.0%} must"
            )
            left_out.append(LeftOut(page.id, reason))
            continue
        quote = page.text[start:end]
        triple = Evidence(" ".join(quote.split()), page.title, quote)
        return Answer(
            question=question,
            model=BASELINE,
            is_baseline=True,
            citations=(cite(triple, page, start),),
            text=evidence.format(triple),
            score=cosine,
            scored_by="cosine of TF-IDF vectors",
            left_out=tuple(left_out),
        )
    return Answer(
        question=question,
        model=BASELINE,
        is_baseline=True,
        reason=why_nothing(found, left_out),
        left_out=tuple(left_out),
    )


def relevance(question: str, page: Document, start: int, end: int) -> float:
    """Returns the share of a question's words that are in a page's title or around a quote.

    Words such as "the" count only when there are no others. Words that start with the same five
    letters count as the same.
    """
    around = f"{page.title} {page.text[max(0, start - _NEAR) : end + _NEAR]}"
    asked_for = _stems(question, without=STOP_WORDS) or _stems(question)
    return len(asked_for & _stems(around)) / len(asked_for) if asked_for else 0.0


def _stems(text: str, without: frozenset[str] = frozenset()) -> set[str]:
    folded = text.replace("İ", "i").lower()  # as `tfidf.words` does
    return {word[:_STEM] for word in _WORD.findall(folded) if word not in without}


def why_nothing(found: FoundPages, left_out: list[LeftOut]) -> str:
    """Returns why a question gets no answer: no page was found, or none could be used."""
    if not left_out:
        return "no page was found for the question"
    kind = "quoted" if found.results else "read"
    if len(left_out) == 1:
        return f"the only page that was found cannot be {kind}: {left_out[0].reason}"
    return (
        f"none of the {len(left_out)} pages that were found can be {kind}; "
        f"the first: {left_out[0].reason}"
    )


def _nearest(question: str, result: SearchResult) -> tuple[int, int, float] | None:
    """Returns the span of the nearest sentence near the snippet, and its cosine."""
    page = result.document
    if evidence.holds_mark(page.title):
        return None
    words = tfidf.words(question)
    spans = [
        (start, end)
        for start, end in _sentences(page, _place(result))
        # A heading that repeats the question would be nearest, but is no answer.
        if _is_quotable(page.text[start:end]) and not tfidf.words(page.text[start:end]) <= words
    ]
    found = tfidf.nearest(question, [page.text[start:end] for start, end in spans])
    if found is None or found[1] <= 0:
        return None
    index, cosine = found
    return *spans[index], cosine


def _place(result: SearchResult) -> int:
    """Where the snippet begins in its page; 0 where that is not known."""
    if len(result.document.text) <= _REACH or result.snippet is None:
        return 0
    match = find_snippet(result.snippet, result.document.text)
    return 0 if match is None else match.spans[0][0]


def _sentences(page: Document, place: int) -> list[tuple[int, int]]:
    first = max(0, place - _REACH)
    region = page.text[first : place + _REACH]
    return [(first + start, first + end) for start, end in sentence_spans(region)]


def _is_quotable(sentence: str) -> bool:
    fits = evidence.MINIMUM_QUOTE_LENGTH <= len(sentence) <= _LONGEST
    return fits and not evidence.holds_mark(sentence)

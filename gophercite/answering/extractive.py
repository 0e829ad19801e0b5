"""Answers without a model: a baseline that quotes the sentence nearest to the question."""

from gophercite import evidence, tfidf
from gophercite.answering.pages import FoundPages, asked
from gophercite.answers import Answer, LeftOut, cite
from gophercite.contexts import SearchResult
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.retrieval.snippets import find_snippet
from gophercite.sentences import sentence_spans

BASELINE = "best page, TF-IDF sentence"

_REACH = 100_000  # characters before and after the snippet that are looked at
_LONGEST = 1000  # characters of a sentence; what is longer is a table, or worse


def extractive_answer(question: str, found: FoundPages) -> Answer:
    """Quotes, and claims, the sentence of the best page that is nearest to the question.

    The best page is the first that has a sentence which shares a word with the question and adds
    one to it. Nothing is understood here: it shows what retrieval alone can do (compare GopherCite,
    section 3.2).

    Raises:
      ValueError: when there is no question.
    """
    question = asked(question)
    left_out = list(found.left_out)
    for result in found.results:
        best = _nearest(question, result)
        if best is None:
            reason = "no sentence of it shares a word with the question and adds one"
            left_out.append(LeftOut(result.document.id, reason))
            continue
        start, end, cosine = best
        page = result.document
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


def why_nothing(found: FoundPages, left_out: list[LeftOut]) -> str:
    """Returns why a question gets no answer: nothing found, or nothing of it of use."""
    if not left_out:
        return "no page was found for the question"
    kind = "quoted" if found.results else "read"
    if len(left_out) == 1:
        return f"the one page that was found cannot be {kind}: {left_out[0].reason}"
    return (
        f"none of the {len(left_out)} pages that were found can be {kind}; "
        f"the first: {left_out[0].reason}"
    )


def _nearest(question: str, result: SearchResult) -> tuple[int, int, float] | None:
    """Returns the place of the nearest sentence near the snippet, and how near it is."""
    page = result.document
    if evidence.holds_mark(page.title):
        return None
    words = tfidf.words(question)
    spans = [
        (start, end)
        for start, end in _sentences(page, _place(result))
        # A heading that repeats the question would be the nearest, and no answer.
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

"""An answer next to the pages that prove it, with its quotes marked in them.

The answer is not trusted: each quote is searched for in the page as it is now
(`gophercite.answering.verification`), and the result is shown.
"""

import difflib
import re
from collections.abc import Sequence

from gophercite.answering.pages import OwnDocuments, read_documents
from gophercite.answering.verification import (
    Check,
    Match,
    Verdict,
    in_documents,
    in_index,
    verify,
)
from gophercite.documents import Document
from gophercite.html.escaping import escape_html
from gophercite.html.marked_pages import CONTEXT, Mark, MarkedPages, about, address, source
from gophercite.records.answers import Answer, page_numbers
from gophercite.retrieval.index import DocumentIndex
from gophercite.text.counting import counted

_MATCHES = {
    Match.CONTENT: "the page is another one with the same text",
    Match.ADDRESS: "the page has the same address",
    Match.QUOTE: "neither its text nor its address matches the answer's",
    None: "it is another page",
}


def highlight(
    answer: Answer, documents: OwnDocuments | DocumentIndex, *, context: int = CONTEXT
) -> MarkedPages:
    """Shows an answer with its quotes marked in their pages; notebooks display the return value.

        gophercite.highlight(answer, "notes/")  # the last line of a notebook's cell shows it
        file.write_text(gophercite.highlight(answer, "notes/").page(), "utf-8")

    Args:
      answer: given or declined.
      documents: those that hold the answer's pages: documents, files and folders, or an index.
      context: characters of a page that are shown before and after a quote.

    Raises:
      FileNotFoundError: when there is no such file or folder of documents.
      ValueError: `context` is negative.
    """
    if isinstance(documents, DocumentIndex):
        find = in_index(documents)
    else:
        find = in_documents(read_documents(documents), answer)
    return highlight_checks(answer, verify(answer, find), context=context)


def highlight_checks(
    answer: Answer, checks: Sequence[Check], *, context: int = CONTEXT
) -> MarkedPages:
    """Shows an answer with what `verify` found for its quotes.

    Args:
      answer: given or declined.
      checks: one or more for each of the answer's quotes.
      context: characters of a page that are shown before and after a quote.

    Raises:
      ValueError: `context` is negative.
    """
    parts = [f'<p dir="auto">{escape_html(answer.question)}</p>\n']
    if answer.declined:
        parts.append(f'<p class="claim">No answer: {escape_html(answer.reason or "")}.</p>\n')
    several = len(answer.citations) > 1
    for number, citation in enumerate(answer.citations, start=1):
        label = f"{number}. " if several else ""
        parts.append(f'<p class="claim" dir="auto">{label}{escape_html(citation.claim)}</p>\n')
    parts.append(_origin(answer))
    placed: dict[Document, list[tuple[int, Check]]] = {}
    missing = []
    for check in checks:
        if check.page is None or check.start is None:
            missing.append(_missing(check))
        else:
            number = answer.citations.index(check.citation) + 1
            placed.setdefault(check.page, []).append((number, check))
    parts += [_page(page, found, several, context) for page, found in placed.items()]
    return MarkedPages(answer.question, "".join([*parts, *missing]))


def _page(page: Document, checks: Sequence[tuple[int, Check]], several: bool, context: int) -> str:
    marks = []
    for number, check in checks:
        assert check.start is not None
        assert check.end is not None
        label = str(number) if several else ""
        if check.holds:
            marks.append(Mark(check.start, check.end, label))
            continue
        places = _other_words(check.quote, page.text[check.start : check.end])
        for start, end in places:
            marks.append(Mark(check.start + start, check.start + end, label, False))
            label = ""  # only the first place is labelled
    said = "; ".join(dict.fromkeys(_said(check) for _, check in checks))
    return source(page, marks, said, context)


def _other_words(quote: str, found: str) -> list[tuple[int, int]]:
    """Where `found` has words that the quote does not; all of it where it only lacks some."""
    words = list(re.finditer(r"\S+", found))
    matcher = difflib.SequenceMatcher(None, quote.split(), [m[0] for m in words], autojunk=False)
    places = [
        (words[first].start(), words[last - 1].end())
        for kind, _, _, first, last in matcher.get_opcodes()
        if kind != "equal" and last > first
    ]
    return places or [(0, len(found))]


def _said(check: Check) -> str:
    """The verdict and the place, for the user."""
    place = f"characters {check.start}–{check.end}"
    if check.pages:
        place = f"{page_numbers(check.pages)}, {place}"
    if check.verdict is Verdict.CHANGED:
        return f"changed: the page has similar words, but not {check.quote!r}, at {place}"
    details = [check.detail] if check.detail else []
    if check.page is not None and check.page.id != check.citation.document:
        details.append(_MATCHES[check.matched_by])
    detail = f" ({'; '.join(details)})" if details else ""
    return f"{check.verdict.value}: {place}{detail}"


def _missing(check: Check) -> str:
    """A quote that was not found in any page."""
    citation = check.citation
    return (
        '<section class="source">\n'
        f'<p class="title" dir="auto">{escape_html(citation.title)}</p>\n'
        f"<blockquote>{escape_html(check.quote)}</blockquote>\n"
        + about(
            f'<span class="no">missing: {escape_html(check.detail)}</span>',
            address(citation.url or citation.document),
        )
        + "</section>\n"
    )


def _origin(answer: Answer) -> str:
    parts = [escape_html(answer.model) + (" (a baseline, no model)" if answer.is_baseline else "")]
    if answer.score is not None and answer.scored_by is not None:
        parts.append(f"{escape_html(answer.scored_by)} {answer.score:.3g}")
    if answer.supported_and_plausible is not None:
        parts.append(f"supported and plausible: {answer.supported_and_plausible:.0%}")
    if answer.samples:
        parts.append(f"best of {counted(len(answer.samples), 'sample')}")
    return about(*parts)

"""Answers that name their source in plain words, like the texts base models were trained on."""

import re
from collections.abc import Sequence

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.text.sentences import sentence_spans

# What stands between a claim and the title of its page: `claim (Title`, `"claim" (see Title`,
# `claim. Page: Title`.
_BRACKETS = "(", "(see "
_WORDS = "Page:", "Source:", "From:"
_QUOTATION_MARKS = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"))


def find_citation(answer: str, pages: Sequence[Document]) -> Evidence | None:
    """Reads a claim with its citation, such as `1904 (Eldade: "It was bridged in 1904.")`.

    Args:
      answer: what a model wrote, without anything after the answer (`first_answer`).
      pages: the pages that it was shown.

    Returns:
      The claim, the title of the first page that is named after it, and the sentences of that page
      that follow the title, verbatim; None if any of these is missing.
    """
    named = [(at, page) for page in pages if (at := _cited_at(answer, page.title)) is not None]
    if not named:
        return None
    at, page = min(named, key=lambda each: each[0])
    claim = _unquoted((_before_source(answer[:at]) or "").strip())
    quote = _quoted(answer[at + len(page.title) :], page.text)
    if not claim or quote is None or any(map(evidence.holds_mark, (claim, page.title, quote))):
        return None
    return Evidence(claim, page.title, quote)


def as_citation(triple: Evidence) -> str:
    """Writes an answer in the form that `find_citation` reads."""
    return f'{triple.claim.rstrip(".")} ({triple.title}: "{triple.quote}")'


def _cited_at(answer: str, title: str) -> int | None:
    """Where the title stands as that of a source; the claim itself may name the page, too."""
    for found in re.finditer(re.escape(title), answer):
        if _before_source(answer[: found.start()]) is not None:
            return found.start()
    return None


def _before_source(text: str) -> str | None:
    """What precedes a bracket or word that names a source at the end of a text; None without it."""
    text = text.removesuffix("\n")
    for bracket in _BRACKETS:
        if text.endswith(bracket):
            return text.removesuffix(bracket).rstrip()
    text = text.rstrip()
    for word in _WORDS:
        before = text.removesuffix(word)
        if before[-1:].isspace():  # so the word was there
            return before.rstrip().removesuffix(".").rstrip()
    return None


def _unquoted(claim: str) -> str:
    """Removes the quotation marks around a claim, but not those of its first and last words."""
    for opening, closing in _QUOTATION_MARKS:
        within = claim[1:-1]
        marks = f"[{opening}{closing}]"
        if (
            claim == f"{opening}{within}{closing}"
            and not re.search(rf"(?<!\w){marks}|{marks}(?!\w)", within)  # apostrophes may
        ):
            return within.strip()
    return claim


def _quoted(rest: str, page: str) -> str | None:
    """The longest run of complete sentences of a page in the text after the title."""
    spans = sentence_spans(page)
    best = ""
    for first, (start, _) in enumerate(spans):
        for _, end in spans[first:]:
            if page[start:end] not in rest:
                break
            best = max(best, page[start:end], key=len)
    return best or None

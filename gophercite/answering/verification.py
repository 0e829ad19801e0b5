"""Whether the quotes of an answer still stand where it says: for whoever does not trust it.

An answer's own word counts for nothing here: the page is had again, from one's own store or from
the web, normalised as every page is, and the quote is sought in its text. Which page is meant says
its content (the SHA-256), wherever it lies now; where no page has that content, its id or address;
and where there is no such page either, a page that holds the quote will do. It is said which.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gophercite.documents import Document
from gophercite.records.answers import Answer, Citation
from gophercite.retrieval.extraction import Extractor
from gophercite.retrieval.fetch import FetchError, FetchSettings, fetch_documents
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.snippets import find_snippet

_COMPARED = 300  # characters of a quote for which something like it is sought
_SEARCHED = 20  # pages of an index that are searched for a quote


class Verdict(enum.Enum):
    """What became of a quote; from the best to the worst."""

    EXACT = "exact"
    MOVED = "moved"
    CHANGED = "changed"
    MISSING = "missing"


class Match(enum.Enum):
    """By what a page was taken for the one that is cited; from the best to the worst."""

    CONTENT = "sha256"
    ID = "id"
    ADDRESS = "url"
    QUOTE = "quote"


@dataclasses.dataclass(frozen=True)
class Check:
    """What was found for one run of a citation's quote: all of it where no words are left out.

    Attributes:
      citation: what was checked.
      quote: the run.
      verdict: `EXACT`: the quote is where the citation says. `MOVED`: it is elsewhere in the page,
        or in another page, where the one that is cited is not there. `CHANGED`: only something like
        it is in the page. `MISSING`: not even that, or no page.
      detail: what a person would want to know besides; may be empty.
      page: where it was looked for; None where there is none.
      start, end: where the quote, or what is like it, stands now; None where it is missing.
    """

    citation: Citation
    quote: str
    verdict: Verdict
    detail: str
    page: Document | None = None
    start: int | None = None
    end: int | None = None

    @property
    def found(self) -> str | None:
        """What stands in the page where the quote, or what is like it, is now."""
        if self.page is None or self.start is None:
            return None
        return self.page.text[self.start : self.end]

    @property
    def matched_by(self) -> Match | None:
        """By what the page was taken for the one that is cited; None without a page."""
        return None if self.page is None else match(self.citation, self.page)

    @property
    def pages(self) -> tuple[int, ...]:
        """The numbers of the PDF pages where the quote, or what is like it, stands now."""
        if self.page is None or self.start is None or self.end is None:
            return ()
        return self.page.pages_of(self.start, self.end)

    @property
    def page_changed(self) -> bool | None:
        """Whether the page's text has another SHA-256; None without a page."""
        return None if self.page is None else self.page.sha256 != self.citation.sha256

    @property
    def holds(self) -> bool:
        """Whether the page says, word for word, what is quoted."""
        return self.verdict in (Verdict.EXACT, Verdict.MOVED)


class Pages(NamedTuple):
    """The pages that a citation may mean, and why there are none where there are none."""

    documents: Sequence[Document]
    problem: str = "there is no such page"


Finder = Callable[[Citation], Pages]


def verify(answer: Answer, find: Finder) -> list[Check]:
    """Checks each run of each quote of an answer, in order; a declined answer has none."""
    return [one for citation in answer.citations for one in check(citation, find(citation))]


def check(citation: Citation, pages: Pages) -> list[Check]:
    """Compares a citation with the pages that it may mean; returns a check for each run.

    Only the pages of the best kind of match count (`Match`; id and address are one kind). All runs
    are sought in one page: in that of which the worst verdict is best, then the next.
    """
    order = list(Verdict)

    def worst_first(checks: list[Check]) -> list[int]:
        return sorted((order.index(each.verdict) for each in checks), reverse=True)

    of_pages = [_compare(citation, page) for page in _meant(citation, pages.documents)]
    missing = [Check(citation, run, Verdict.MISSING, pages.problem) for run in citation.runs]
    return min(of_pages, key=worst_first, default=missing)


def match(citation: Citation, page: Document) -> Match | None:
    """By what a page may be the one that is cited; None where nothing says so."""
    if page.sha256 == citation.sha256:
        return Match.CONTENT
    if page.id == citation.document:
        return Match.ID
    if citation.url and page.url == citation.url:
        return Match.ADDRESS
    return Match.QUOTE if all(run in page.text for run in citation.runs) else None


def _meant(citation: Citation, pages: Iterable[Document]) -> list[Document]:
    """Of pages those that are meant: the ones that match best."""
    matches = [(match(citation, page), page) for page in pages]
    for kinds in ((Match.CONTENT,), (Match.ID, Match.ADDRESS), (Match.QUOTE,)):
        if found := [page for kind, page in matches if kind in kinds]:
            return found
    return []


# --- Where pages come from ---


def in_documents(documents: Iterable[Document], answer: Answer) -> Finder:
    """Finds an answer's pages among documents, read once.

    Few are kept: those with the content, id or address that a citation gives, and for each citation
    the first one that holds its quote.
    """
    kept: list[Document] = []
    quoted: dict[Citation, Document] = {}
    citations = set(answer.citations)
    for page in documents:
        kinds = {citation: match(citation, page) for citation in citations}
        if any(kind not in (None, Match.QUOTE) for kind in kinds.values()):
            kept.append(page)
        for citation, kind in kinds.items():
            if kind is Match.QUOTE:
                quoted.setdefault(citation, page)
    return lambda citation: Pages([*kept, *([quoted[citation]] if citation in quoted else [])])


def in_index(index: DocumentIndex) -> Finder:
    """Finds pages in an index, which is searched for the quote where nothing else leads to one."""

    def find(citation: Citation) -> Pages:
        pages = index.documents_at(citation.url) if citation.url else []
        with contextlib.suppress(KeyError):
            pages = [index.document(citation.document), *pages]
        if all(page.sha256 != citation.sha256 for page in pages):
            pages += index.documents_with(citation.sha256)
        if not pages:
            hits = index.search(max(citation.runs, key=len), _SEARCHED)
            pages = [index.document(hit.id) for hit in hits if hit.id is not None]
        return Pages(pages, "there is no such page in the index")

    return find


def on_the_web(
    answer: Answer, extractor: Extractor, settings: FetchSettings | None = None
) -> Finder:
    """Fetches an answer's pages again, each once.

    Only addresses of the web are asked: an answer that names a file of this machine does not get it
    read; who has the file gives it (`in_documents`).
    """
    urls = sorted({c.url for c in answer.citations if c.url and _is_of_the_web(c.url)})
    pages = dict(zip(urls, fetch_documents(urls, extractor, settings), strict=True))

    def find(citation: Citation) -> Pages:
        page = pages.get(citation.url or "")
        if page is None:
            problem = "it is no page of the web: give the documents, or an index of them"
            return Pages([], problem)
        return Pages([], page.problem) if isinstance(page, FetchError) else Pages([page])

    return find


def _is_of_the_web(url: str) -> bool:
    return url.lower().startswith(("http://", "https://"))


# --- Comparing ---


def _compare(citation: Citation, page: Document) -> list[Check]:
    runs = zip(citation.runs, citation.spans, strict=True)
    return [_compare_run(citation, run, start, page) for run, (start, _) in runs]


def _compare_run(citation: Citation, run: str, start: int, page: Document) -> Check:
    text = page.text
    if match(citation, page) is Match.QUOTE:
        place = _nearest(run, text, start)
        assert place is not None  # else it would be no match
        detail = "it is in another page"
        return Check(citation, run, Verdict.MOVED, detail, page, place, place + len(run))
    if text.startswith(run, start):
        changed = page.sha256 != citation.sha256
        detail = "other parts of the page have changed" if changed else ""
        return Check(citation, run, Verdict.EXACT, detail, page, start, start + len(run))
    place = _nearest(run, text, start)
    if place is not None:
        detail = "it is elsewhere in the page"
        return Check(citation, run, Verdict.MOVED, detail, page, place, place + len(run))
    near = find_snippet(run[:_COMPARED], text)
    if near is None:
        return Check(citation, run, Verdict.MISSING, "the page holds nothing like it", page)
    return Check(citation, run, Verdict.CHANGED, "the page has other words", page, *near.spans[0])


def _nearest(quote: str, text: str, start: int) -> int | None:
    """Where `quote` stands in `text`, as near to `start` as it does."""
    places = (text.rfind(quote, 0, start + len(quote) - 1), text.find(quote, start))
    found = [place for place in places if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)

"""Checks that an answer's quotes still stand where it says, for users who do not trust it.

The answer's own word counts for nothing here: each page is read again, from the user's documents or
from the web, normalised as every page is, and searched for the quote. The page meant is the one
with the cited content (SHA-256), wherever it is now; failing that, the one with the cited id or
address; failing that, any page that holds the quote. The result says which of these it was.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gophercite.documents import Document
from gophercite.records.answers import Answer, Citation
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.snippets import find_snippet

if TYPE_CHECKING:
    from gophercite.extraction.extractor import Extractor
    from gophercite.retrieval.fetch import FetchSettings

_COMPARED = 300  # characters of a quote that are compared to find similar text
_SEARCHED = 20  # maximum number of search hits in which a quote is looked for


class Verdict(enum.Enum):
    """What became of a quote, from best to worst."""

    EXACT = "exact"
    MOVED = "moved"
    CHANGED = "changed"
    MISSING = "missing"


class Match(enum.Enum):
    """Why a page was taken for the one that is cited, from best to worst."""

    CONTENT = "sha256"
    ID = "id"
    ADDRESS = "url"
    QUOTE = "quote"


@dataclasses.dataclass(frozen=True)
class Check:
    """What was found for one run of a citation's quote; a quote without omissions is one run.

    Attributes:
      citation: what was checked.
      quote: the run.
      verdict: `EXACT`: the quote is where the citation says. `MOVED`: it is elsewhere in the page,
        or in another page if the cited one is not there. `CHANGED`: the page only has something
        similar. `MISSING`: not even that, or there is no page.
      detail: what else a user would want to know; may be empty.
      page: the page that was searched; None if there is none.
      start, end: where the quote, or the similar text, stands now; None if it is missing.
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
        """The page's text where the quote, or the similar text, stands now."""
        if self.page is None or self.start is None:
            return None
        return self.page.text[self.start : self.end]

    @property
    def matched_by(self) -> Match | None:
        """Why the page was taken for the one that is cited; None without a page."""
        return None if self.page is None else match(self.citation, self.page)

    @property
    def pages(self) -> tuple[int, ...]:
        """The numbers of the PDF pages where the quote, or the similar text, stands now."""
        if self.page is None or self.start is None or self.end is None:
            return ()
        return self.page.pages_of(self.start, self.end)

    @property
    def page_changed(self) -> bool | None:
        """Whether the page's text has a different SHA-256; None without a page."""
        return None if self.page is None else self.page.sha256 != self.citation.sha256

    @property
    def holds(self) -> bool:
        """Whether the page says what is quoted, word for word."""
        return self.verdict in (Verdict.EXACT, Verdict.MOVED)


class Pages(NamedTuple):
    """The pages that a citation may mean; if there are none, why."""

    documents: Sequence[Document]
    problem: str = "there is no such page"


Finder = Callable[[Citation], Pages]


def verify(answer: Answer, find: Finder) -> list[Check]:
    """Checks each run of each quote of an answer, in order; a declined answer has none."""
    return [one for citation in answer.citations for one in check(citation, find(citation))]


def check(citation: Citation, pages: Pages) -> list[Check]:
    """Compares a citation with the pages that it may mean; returns a check for each run.

    Only the pages with the best kind of match count (`Match`; id and address are one kind). All
    runs are searched for in one page: the one whose worst verdict is best, then whose second-worst
    is, and so on.
    """
    order = list(Verdict)

    def worst_first(checks: list[Check]) -> list[int]:
        return sorted((order.index(each.verdict) for each in checks), reverse=True)

    of_pages = [_compare(citation, page) for page in _meant(citation, pages.documents)]
    missing = [Check(citation, run, Verdict.MISSING, pages.problem) for run in citation.runs]
    return min(of_pages, key=worst_first, default=missing)


def match(citation: Citation, page: Document) -> Match | None:
    """Why a page may be the one that is cited; None if nothing says so."""
    if page.sha256 == citation.sha256:
        return Match.CONTENT
    if page.id == citation.document:
        return Match.ID
    if citation.url and page.url == citation.url:
        return Match.ADDRESS
    return Match.QUOTE if all(run in page.text for run in citation.runs) else None


def _meant(citation: Citation, pages: Iterable[Document]) -> list[Document]:
    """The pages that match best."""
    matches = [(match(citation, page), page) for page in pages]
    for kinds in ((Match.CONTENT,), (Match.ID, Match.ADDRESS), (Match.QUOTE,)):
        if found := [page for kind, page in matches if kind in kinds]:
            return found
    return []


# --- Where pages come from ---


def in_documents(documents: Iterable[Document], answer: Answer) -> Finder:
    """Finds an answer's pages among documents, which are read once.

    Few are kept: those with the content, id or address of a citation, and for each citation the
    first one that holds its quote.
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
    """Finds pages in an index, which is searched for the quote if nothing else leads to a page."""

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
    answer: Answer, extractor: "Extractor", settings: "FetchSettings | None" = None
) -> Finder:
    """Fetches each of an answer's pages again, once.

    Only web addresses are fetched: an answer that names a file of this machine does not get it
    read. Users who have the file pass it to `in_documents`.
    """
    from gophercite.retrieval.fetch import FetchError, fetch_documents  # an HTTP client

    urls = sorted({c.url for c in answer.citations if c.url and _is_of_the_web(c.url)})
    pages = dict(zip(urls, fetch_documents(urls, extractor, settings), strict=True))

    def find(citation: Citation) -> Pages:
        page = pages.get(citation.url or "")
        if page is None:
            problem = "it is not a page on the web: give the documents, or an index of them"
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
        assert place is not None  # otherwise it would not match
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
        return Check(citation, run, Verdict.MISSING, "the page contains nothing similar", page)
    return Check(
        citation, run, Verdict.CHANGED, "the page has different words", page, *near.spans[0]
    )


def _nearest(quote: str, text: str, start: int) -> int | None:
    """Where `quote` stands in `text`, as close to `start` as possible."""
    places = (text.rfind(quote, 0, start + len(quote) - 1), text.find(quote, start))
    found = [place for place in places if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)

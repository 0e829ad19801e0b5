"""Pages as worlds return them, before an episode's rules are applied."""

import dataclasses
from collections.abc import Mapping, Sequence

from gophercite.browser.hosts import host_of, is_blocked, without_fragment
from gophercite.browser.marks import one_line
from gophercite.browser.settings import Settings
from gophercite.browser.shown import Link, ShownPage
from gophercite.documents import Document, normalise_text
from gophercite.retrieval.engine import Hit


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its text, where its links lead, and its anchors.

    Attributes:
      document: the stored page, which quotes point into. Its text has no link marks.
      links: in the order of the text; links that overlap an earlier one are ignored.
      anchors: the offset in the text that `#name` leads to, by name.
      problem: why there is no page; the document's text tells the model. None for a page.
      is_results: whether these are search results.
    """

    document: Document
    links: tuple[Link, ...] = ()
    anchors: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    is_results: bool = False
    _shown: dict[object, ShownPage] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def host(self) -> str:
        """The page's domain, as shown in titles and links; empty for results."""
        return host_of(self.document.url or "")

    @property
    def title(self) -> str:
        """The title shown to the model: `<page title> (<page domain>)`; results have their own."""
        title, host = one_line(self.document.title), one_line(self.host)
        return f"{title} ({host})" if host else title

    @property
    def source_problem(self) -> str | None:
        """Why nothing can be quoted from here; None if it can."""
        if self.problem is not None:
            return "an error is no source that could be quoted"
        if self.is_results:
            return "search results are no source that could be quoted: open the page first"
        return None

    def shown(self, settings: Settings) -> ShownPage:
        """Returns the text shown under an episode's rules; it is cached."""
        key = settings.blocked, settings.columns
        if key not in self._shown:
            if len(self._shown) > 3:
                self._shown.clear()
            links = [link for link in self.links if not is_blocked(link.url, settings.blocked)]
            self._shown[key] = ShownPage(self.document.text, links, self.host, settings.columns)
        return self._shown[key]


NO_PAGE = Page(Document("", "", ""), problem="no page is open")


def error_page(url: str, problem: str) -> Page:
    """Returns the page that is shown instead of one that can't be opened."""
    address, _ = without_fragment(url)
    text = f"This page can't be shown: {problem}."
    return Page(Document(address, "Error", text, address), problem=problem)


def results_page(query: str, hits: Sequence[Hit]) -> Page:
    """Returns the page of a search's results: for each a link with the title, and its snippet."""
    parts: list[str] = []
    links = []
    place = 0
    for hit in hits:
        # As the document will have them, so that links stay where their titles are.
        texts = [normalise_text(text) for text in (hit.title, hit.url, hit.snippet)]
        title, url, snippet = (" ".join(text.split()) for text in texts)
        title = title or url
        links.append(Link(place, place + len(title), hit.url))
        text = f"{title}\n{snippet}\n" if snippet else f"{title}\n"
        parts.append(text)
        place += len(text)
    text = "".join(parts).rstrip("\n") if hits else "There are no results."
    return Page(Document("", results_title(query), text), tuple(links), is_results=True)


def failed_search(query: str, problem: str) -> Page:
    """Returns the results page of a search that failed."""
    text = f"The search failed: {problem}."
    return Page(Document("", results_title(query), text), problem=problem, is_results=True)


def results_title(query: str) -> str:
    """The title of a results page."""
    return f"Search results for: {query}"

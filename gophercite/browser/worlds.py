"""What can be browsed: a search engine, and the pages that it and links lead to."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gophercite.browser.hosts import without_fragment
from gophercite.browser.pages import Page, error_page
from gophercite.retrieval.engine import Hit, SearchEngine


class World(Protocol):
    """A search engine and pages. Equal requests must get equal results, so that steps are pure.

    Attributes:
      name: its name in records of episodes.
    """

    name: str

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Returns at most `k` hits, the best first, each with an address that `open` accepts.

        Raises:
          SearchError: when the engine can't answer.
        """
        ...

    def open(self, url: str) -> Page:
        """Returns the page at an address without a fragment, or an error page in its place."""
        ...


class SiteWorld:
    """A world of given pages, by their addresses.

    Args:
      name: the world's name.
      pages: each document must have its address.
      engine: finds the pages.
    """

    def __init__(self, name: str, pages: Iterable[Page], engine: SearchEngine) -> None:
        self.name = name
        self._engine = engine
        self._pages = {page.document.url: page for page in pages}

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        return self._engine.search(query, k)

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        page = self._pages.get(address)
        return error_page(address, "there is no such page") if page is None else page

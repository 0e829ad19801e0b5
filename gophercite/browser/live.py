"""The live web as a world: any search engine, and pages fetched when they are opened."""

import asyncio
import concurrent.futures
from collections.abc import Sequence

from gophercite.browser.hosts import without_fragment
from gophercite.browser.kept_pages import KeptPages
from gophercite.browser.pages import Page, error_page
from gophercite.browser.read_pages import page_of_text
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import TextError
from gophercite.retrieval.engine import Hit, SearchEngine, SearchError
from gophercite.retrieval.fetch import FetchedPage, Fetcher, FetchError, FetchSettings
from gophercite.retrieval.kept import Kept

KEPT_SEARCHES = 1 << 26  # characters of all search results together

_Search = tuple[str, int]  # the query, and the number of hits wanted
_Found = Sequence[Hit] | str  # the hits, or why there are none


class LiveWorld:
    """A search engine and the web. Close it, or use it in a `with`.

    Searches and pages are cached, so that the same step gives the same result. Of more than fit
    in memory, the least recently used are dropped; one episode needs a small part of it.

    Args:
      engine: finds addresses.
      extractor: converts pages to text, in one of the browser's modes; the caller closes it.
      settings: how pages are fetched.
      name: the world's name.
      kept_searches: maximum size of all cached search results together, in characters.
    """

    def __init__(
        self,
        engine: SearchEngine,
        extractor: Extractor,
        settings: FetchSettings | None = None,
        *,
        name: str = "web",
        kept_searches: int = KEPT_SEARCHES,
    ) -> None:
        self.name = name
        self._engine = engine
        self._extractor = extractor
        self._searches: Kept[_Search, _Found] = Kept(kept_searches, _size)
        self._pages = KeptPages()
        self._fetcher = Fetcher(settings)
        # The fetcher's connections belong to one event loop; a notebook already runs another one.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._loop = asyncio.Runner()

    def __enter__(self) -> "LiveWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""

        def close() -> None:
            self._loop.run(self._fetcher.__aexit__())
            self._loop.close()

        self._thread.submit(close).result()
        self._thread.shutdown()

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        found = self._searches.get((query, k), self._searched)
        if isinstance(found, str):
            raise SearchError(found)
        return found

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        return self._pages.get(address, self._fetched)

    def _searched(self, search: _Search) -> _Found:
        try:
            return self._engine.search(*search)
        except SearchError as error:
            return str(error)

    def _fetched(self, address: str) -> Page:
        try:
            fetched = self._thread.submit(self._fetch, address).result()
            text = self._extractor.page_text(fetched.content, fetched.content_type)
        except FetchError as error:
            return error_page(address, error.problem)
        except TextError as error:
            return error_page(address, str(error))
        if not text.text.strip():
            return error_page(address, "has no text")
        found_at, _ = without_fragment(fetched.url)
        page = page_of_text(found_at, text, fetched.retrieved_at)
        if found_at == address:
            return page
        # Links within the page lead to its final address. What was seen there stays as it was,
        # though it may have changed on the web.
        seen = self._pages.find(found_at)
        if seen is None:
            self._pages.keep(found_at, page)
        return page if seen is None or seen.problem is not None else seen

    def _fetch(self, address: str) -> FetchedPage:
        return self._loop.run(self._fetcher.fetch(address))


def _size(found: _Found) -> int:
    if isinstance(found, str):
        return len(found) + 1000
    return sum(len(hit.url) + len(hit.title) + len(hit.snippet) + 1000 for hit in found) + 1000

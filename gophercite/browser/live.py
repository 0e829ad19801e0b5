"""The live web as a world: any search engine, and pages fetched when they are opened."""

import asyncio
import concurrent.futures
from collections.abc import Sequence

from gophercite.browser.hosts import without_fragment
from gophercite.browser.kept_pages import KeptPages
from gophercite.browser.pages import Page, error_page
from gophercite.browser.read_pages import page_of_text
from gophercite.retrieval.engine import Hit, SearchEngine, SearchError
from gophercite.retrieval.extraction import Extractor
from gophercite.retrieval.fetch import FetchedPage, Fetcher, FetchError, FetchSettings
from gophercite.retrieval.text import TextError


class LiveWorld:
    """A search engine and the web. Close it, or use it in a `with`.

    Searches and pages are cached, so that the same step gives the same result; the least recently
    used pages are dropped first.

    Args:
      engine: finds addresses.
      extractor: converts pages to text, in one of the browser's modes; the caller closes it.
      settings: how pages are fetched.
      name: the world's name.
    """

    def __init__(
        self,
        engine: SearchEngine,
        extractor: Extractor,
        settings: FetchSettings | None = None,
        *,
        name: str = "web",
    ) -> None:
        self.name = name
        self._engine = engine
        self._extractor = extractor
        self._searches: dict[tuple[str, int], Sequence[Hit] | str] = {}
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
        key = query, k
        if key not in self._searches:
            try:
                self._searches[key] = self._engine.search(query, k)
            except SearchError as error:
                self._searches[key] = str(error)
        found = self._searches[key]
        if isinstance(found, str):
            raise SearchError(found)
        return found

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        return self._pages.get(address, self._fetched)

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
        if found_at != address:  # links within the page lead to its final address
            self._pages.keep(found_at, page)
        return page

    def _fetch(self, address: str) -> FetchedPage:
        return self._loop.run(self._fetcher.fetch(address))

"""Web search whose pages are kept in the user's own index.

Training data are made once from pages that change every day (GopherCite, sections 2.3 and 2.4).
Prompts show the page as it was fetched, and quotes are checked against the same text.
"""

import dataclasses

from gophercite.extraction.extractor import Extractor
from gophercite.retrieval.engine import Hit, Query, SearchEngine, parse_query
from gophercite.retrieval.fetch import FetchError, FetchSettings, fetch_documents
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.web import NothingSearchedError


class StoredWeb:
    """A search engine whose hits are pages of an index, fetched when they are first found.

    A page's id there is the address that the engine gave, even if it was redirected.

    Args:
      engine: finds addresses.
      index: open for writing; the caller closes it, and the extractor.
      extractor: converts pages to text.
      settings: how pages are fetched.

    Attributes:
      fetched: number of pages fetched.
      failed: addresses whose page can't be fetched, each with the reason; they are not retried.
        And queries for which nothing was found because engines did not answer.
    """

    def __init__(
        self,
        engine: SearchEngine,
        index: DocumentIndex,
        extractor: Extractor,
        settings: FetchSettings | None = None,
    ) -> None:
        self.fetched = 0
        self.failed: dict[str, str] = {}
        self._engine = engine
        self._index = index
        self._extractor = extractor
        self._settings = settings
        self._known = set(index.ids())

    def search(self, query: str, k: int) -> list[Hit]:
        """As `SearchEngine.search`; there may be fewer hits.

        Pages that can't be fetched are left out, as are those that were redirected to an address
        which the filters in the query exclude.
        """
        try:
            hits = self._engine.search(query, k)
        except NothingSearchedError as error:
            self.failed[query] = str(error)
            return []
        missing = [
            hit.url for hit in hits if hit.url not in self._known and hit.url not in self.failed
        ]
        pages = fetch_documents(missing, self._extractor, self._settings) if missing else []
        found = []
        for url, page in zip(missing, pages, strict=True):
            if isinstance(page, FetchError):
                self.failed[url] = page.problem
            else:
                found.append(dataclasses.replace(page, id=url))
        self._index.add(found)
        self.fetched += len(found)
        self._known.update(page.id for page in found)
        filters = parse_query(query)
        return [
            dataclasses.replace(hit, id=hit.url)
            for hit in hits
            if hit.url in self._known and self._admits(filters, hit.url)
        ]

    def _admits(self, filters: Query, id: str) -> bool:
        """Whether the filters let through the address at which a page of the index was found."""
        if not filters.sites and not filters.excluded_sites:
            return True
        return filters.admits(self._index.document(id).url or id)

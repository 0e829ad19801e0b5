"""The user's own documents, found by the embedded search engine, as a world without links."""

import functools
import urllib.parse
from collections.abc import Sequence

from gophercite.browser.hosts import without_fragment
from gophercite.browser.kept_pages import KeptPages
from gophercite.browser.pages import Page, error_page
from gophercite.documents import Document
from gophercite.retrieval.engine import Hit
from gophercite.retrieval.index import DocumentIndex

KEPT_SEARCHES = 1000

_BY_ID = "document:"  # precedes the id of a document without an address that is only its own


class IndexWorld:
    """The documents of an index.

    Args:
      index: the index; the caller closes it.
      name: the world's name.
    """

    def __init__(self, index: DocumentIndex, name: str = "documents") -> None:
        self.name = name
        self._index = index
        self._pages = KeptPages()
        self._found = functools.lru_cache(KEPT_SEARCHES)(self._search)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """As `World.search`."""
        # A step on a results page runs the same search again.
        return self._found(query, k)

    def open(self, url: str) -> Page:
        """As `World.open`."""
        address, _ = without_fragment(url)
        return self._pages.get(address, self._read)

    def _search(self, query: str, k: int) -> Sequence[Hit]:
        hits = self._index.search(query, k)
        return [Hit(self._address(hit), hit.title, hit.snippet) for hit in hits]

    def _address(self, hit: Hit) -> str:
        """The hit's own address if it leads to no other document, as parts of a page may."""
        address, _ = without_fragment(hit.url)
        if hit.url and [each.id for each in self._index.documents_at(address)] == [hit.id]:
            return hit.url
        return address_of(hit.id or "")

    def _read(self, address: str) -> Page:
        document = self._document(address)
        if document is None:
            return error_page(address, "there is no such page")
        return Page(document)

    def _document(self, address: str) -> Document | None:
        if address.startswith(_BY_ID):
            try:
                return self._index.document(urllib.parse.unquote(address[len(_BY_ID) :]))
            except KeyError:
                return None
        return next(iter(self._index.documents_at(address)), None)


def address_of(id: str) -> str:
    """The address of a document by its id."""
    return _BY_ID + urllib.parse.quote(id, safe="/")

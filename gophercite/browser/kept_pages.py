"""A cache of pages in memory, with a size limit."""

import collections
from collections.abc import Callable

from gophercite.browser.pages import Page

KEPT_CHARACTERS = 1 << 27  # of all pages together


class KeptPages:
    """Pages by their addresses; the least recently used are dropped first.

    Args:
      characters: maximum length of all texts together; one page is kept in any case.
    """

    def __init__(self, characters: int = KEPT_CHARACTERS) -> None:
        self._limit = characters
        self._pages: collections.OrderedDict[str, Page] = collections.OrderedDict()
        self._characters = 0

    def get(self, address: str, read: Callable[[str], Page]) -> Page:
        """Returns the page at an address; `read` supplies it if it is not cached."""
        page = self._pages.get(address)
        if page is None:
            page = read(address)
            self.keep(address, page)
        else:
            self._pages.move_to_end(address)
        return page

    def keep(self, address: str, page: Page) -> None:
        """Adds a page to the cache."""
        before = self._pages.pop(address, None)
        self._characters += _size(page) - (0 if before is None else _size(before))
        self._pages[address] = page
        while self._characters > self._limit and len(self._pages) > 1:
            _, dropped = self._pages.popitem(last=False)
            self._characters -= _size(dropped)


def _size(page: Page) -> int:
    return len(page.document.text) + 1000

"""A cache of pages in memory, with a size limit."""

from gophercite.browser.pages import Page
from gophercite.retrieval.kept import Kept

KEPT_CHARACTERS = 1 << 27  # of all pages together


class KeptPages(Kept[str, Page]):
    """Pages by their addresses; the least recently used are dropped first."""

    def __init__(self) -> None:
        super().__init__(KEPT_CHARACTERS, _size)


def _size(page: Page) -> int:
    return len(page.document.text) + sum(len(link.url) for link in page.links) + 1000

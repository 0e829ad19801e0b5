"""Converts an extracted page to a page of a world: links become absolute web addresses."""

import urllib.parse
from collections.abc import Iterator

from gophercite.browser.hosts import host_of
from gophercite.browser.pages import Page
from gophercite.browser.shown import Link
from gophercite.documents import Document, normalise_text
from gophercite.extraction.text import PageText
from gophercite.retrieval.fetch import LONGEST_URL

_SCHEMES = ("http", "https")
# One base address, which may be long, is part of every link's.
_CHARACTERS_OF_ADDRESSES = 1 << 23  # of all links of a page; those after them become plain text


def page_of_text(url: str, text: PageText, retrieved_at: str | None) -> Page:
    """Builds a page from a text that was extracted in one of the browser's modes.

    Links to anything but the web, such as `mailto:` and scripts, become plain text. So do those
    with an address that is too long to be fetched.

    Args:
      url: the page's address, without a fragment.
      text: its extracted text.
      retrieved_at: when it was fetched.
    """
    title = normalise_text(text.title).strip() or url
    document = Document(url, title, text.text, url, retrieved_at, page_starts=text.page_starts)
    # If normalising changed the text, as it may for plain text, offsets and links are dropped.
    links = tuple(_links(url, text)) if document.text == text.text else ()
    anchors: dict[str, int] = {}
    for name, place in text.anchors:
        anchors.setdefault(name, min(place, len(document.text)))
    return Page(document, links, anchors)


def _links(url: str, text: PageText) -> Iterator[Link]:
    base = _joined(url, text.base) or url
    left = _CHARACTERS_OF_ADDRESSES
    for start, end, address in text.links:
        target = _joined(base, address)
        if target is None:
            continue
        left -= len(target)
        if left < 0:
            return
        yield Link(start, end, target)


def _joined(base: str, address: str) -> str | None:
    """The target of a relative address; None if that is not a web page that can be fetched."""
    try:
        target = urllib.parse.urljoin(base, address)
        scheme = urllib.parse.urlsplit(target).scheme
    except ValueError:  # such as half an IPv6 address
        return None
    is_web = len(target) <= LONGEST_URL and scheme in _SCHEMES and host_of(target)
    return target if is_web else None

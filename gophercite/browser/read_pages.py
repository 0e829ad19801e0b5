"""From what was read of a page to a page of a world: links become addresses of the web."""

import urllib.parse
from collections.abc import Iterator

from gophercite.browser.hosts import host_of
from gophercite.browser.pages import Page
from gophercite.browser.shown import Link
from gophercite.documents import Document, normalise_text
from gophercite.retrieval.text import PageText

_SCHEMES = ("http", "https")


def page_of_text(url: str, text: PageText, retrieved_at: str | None) -> Page:
    """Makes a page of the text that was read in one of the browser's modes.

    Links to anything but the web, such as `mailto:` and scripts, are text and nothing else.

    Args:
      url: where the page was found, without a fragment.
      text: what it says.
      retrieved_at: when it was fetched.
    """
    title = normalise_text(text.title).strip() or url
    document = Document(url, title, text.text, url, retrieved_at, page_starts=text.page_starts)
    # Were the text not what was read, as of plain text that is normalised now, it has no links.
    links = tuple(_links(url, text)) if document.text == text.text else ()
    anchors: dict[str, int] = {}
    for name, place in text.anchors:
        anchors.setdefault(name, min(place, len(document.text)))
    return Page(document, links, anchors)


def _links(url: str, text: PageText) -> Iterator[Link]:
    base = _joined(url, text.base) or url
    for start, end, address in text.links:
        target = _joined(base, address)
        if target is not None:
            yield Link(start, end, target)


def _joined(base: str, address: str) -> str | None:
    """Where a relative address leads; None where that is no page of the web."""
    try:
        target = urllib.parse.urljoin(base, address)
        scheme = urllib.parse.urlsplit(target).scheme
    except ValueError:  # such as half an IPv6 address
        return None
    return target if scheme in _SCHEMES and host_of(target) else None

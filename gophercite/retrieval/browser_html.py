"""An HTML page for the text browser: its text, and where in it links and anchors are."""

import copy
from collections.abc import Iterable
from typing import NamedTuple

import trafilatura

from gophercite.retrieval.article_lines import of_article
from gophercite.retrieval.html_lines import Line, LineLink, lines_of
from gophercite.retrieval.html_text import parse, title_of

# For more of them trafilatura would take tens of seconds: it takes 0.15 ms for each.
_MOST_ELEMENTS = 30_000


class LinkedHtml(NamedTuple):
    """What a page says, and where it leads.

    Attributes:
      title: of the page; empty where it has none.
      text: its text, normalised as documents are, so that places in it are places in the document.
      links: in its text, in order, with their addresses as the page has them.
      anchors: names of places, with the places; of equal names the first counts.
      base: what addresses are relative to, besides the page's own; empty where it says nothing.
    """

    title: str
    text: str
    links: tuple[LineLink, ...]
    anchors: tuple[tuple[str, int], ...]
    base: str


def read(page: str, *, whole: bool = False) -> LinkedHtml:
    """Returns the article of a page, or all of it.

    Args:
      page: HTML.
      whole: whether everything is wanted that a reader sees, as `html_text.full` gives it. A page
        in which no article is found, or with too many elements to look for one, gives that in any
        case.
    """
    tree = parse(page)
    if tree is None:
        return LinkedHtml("", "", (), (), "")
    lines = lines_of(tree, for_browser=True)
    if not whole and sum(1 for _ in tree.iter()) <= _MOST_ELEMENTS:
        # It may change the tree, in which the lines have their elements.
        article = trafilatura.extract(copy.deepcopy(tree), include_comments=False)
        lines = of_article(lines, article) if article else lines
    bases = tree.xpath("//base/@href")
    text, links, anchors = _joined(lines)
    return LinkedHtml(title_of(tree), text, links, anchors, str(bases[0]) if bases else "")


def _joined(
    lines: Iterable[Line],
) -> tuple[str, tuple[LineLink, ...], tuple[tuple[str, int], ...]]:
    pieces: list[str] = []
    links: list[LineLink] = []
    anchors: dict[str, int] = {}
    length = 0
    for line in lines:
        gap = line.gap if pieces else ""
        start = length + len(gap)
        pieces += (gap, line.text)
        length = start + len(line.text)
        links += (LineLink(a + start, b + start, address) for a, b, address in line.links)
        for name, place in line.anchors:
            anchors.setdefault(name, start + place)
    return "".join(pieces), tuple(links), tuple(anchors.items())

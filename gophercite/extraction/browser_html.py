"""An HTML page for the text browser: its text, and where its links and anchors are."""

import copy
from collections.abc import Iterable
from typing import NamedTuple

import trafilatura

from gophercite.extraction.article_lines import of_article
from gophercite.extraction.html_lines import lines_of
from gophercite.extraction.html_text import is_hard, is_whole, parse, title_of
from gophercite.extraction.page_lines import Line, LineLink

# With more elements trafilatura would take tens of seconds: it takes 0.15 ms per element.
_MOST_ELEMENTS = 30_000


class LinkedHtml(NamedTuple):
    """The content of a page, and its links.

    Attributes:
      title: title of the page; empty if it has none.
      text: its text, normalised like a document's, so that offsets are offsets in the document.
      links: links in the text, in order, with their addresses as the page gives them.
      anchors: anchor names with their offsets; if a name occurs twice, the first one counts.
      base: the base address that the page declares; empty if it declares none.
      is_whole: whether all of the page was read.
    """

    title: str
    text: str
    links: tuple[LineLink, ...]
    anchors: tuple[tuple[str, int], ...]
    base: str
    is_whole: bool = True


def read(page: str, *, whole: bool = False) -> LinkedHtml:
    """Returns the article of a page, or all of it.

    Args:
      page: HTML.
      whole: return everything that a reader sees, as `html_text.full` does. This is also what a
        page gives that has no recognisable article, or too many elements to look for one.
    """
    tree = parse(page)
    if tree is None:
        return LinkedHtml("", "", (), (), "")
    lines = lines_of(tree, for_browser=True)
    if not whole and sum(1 for _ in tree.iter()) <= _MOST_ELEMENTS and not is_hard(tree):
        # On a copy: trafilatura may change the tree, which the lines' elements belong to.
        article = trafilatura.extract(copy.deepcopy(tree), include_comments=False)
        lines = of_article(lines, article) if article else lines
    bases = tree.xpath("//base/@href")
    text, links, anchors = _joined(lines)
    base = str(bases[0]) if bases else ""
    return LinkedHtml(title_of(tree), text, links, anchors, base, is_whole(tree))


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

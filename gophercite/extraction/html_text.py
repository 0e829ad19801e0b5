"""The text of an HTML page: the article alone, or everything that a reader sees."""

import re
from typing import NamedTuple

import lxml.etree
import lxml.html
import trafilatura

from gophercite.extraction.html_lines import lines_of
from gophercite.extraction.page_lines import CELLS, LINES, PARAGRAPHS, Line

_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)

# Control characters, also as character references: parsers accept them and fail on them later.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0e-\x1f\x7f]"
    r"|&#(?:0*(?:[0-8]|11|1[4-9]|2\d|3[01])|x0*(?:[0-8be-f]|1[0-9a-f]))(?:;|(?![0-9a-f]))",
    re.IGNORECASE,
)
_SPACE = re.compile(r"[ \t\n\r\f]+")

# In deeper pages trafilatura fails, or takes minutes: much of it takes quadratic time in the depth.
_DEEPEST_ARTICLE = 256
# So it does in the number of links and spans side by side: with 10,000 it takes 4 s.
_MOST_INLINE = 10_000


class Html(NamedTuple):
    """A page's title, empty if it has none, its text, and whether all of the page was read."""

    title: str
    text: str
    is_whole: bool = True


def article(page: str) -> Html:
    """Returns the main text of a page by trafilatura, without menus, advertisements and comments.

    Much of the content of infoboxes and tables is left out too. A page without a recognisable
    article, or that would take too long (`is_hard`), gives its full text.
    """
    tree = parse(page)
    if tree is None:
        return Html("", "")
    found = None
    if not is_hard(tree):
        found = trafilatura.extract(tree, include_comments=False, include_tables=True)
    return Html(title_of(tree), found or _joined(lines_of(tree)), is_whole(tree))


def full(page: str) -> Html:
    """Returns everything that a reader of the page sees, except the site's navigation.

    Each table row is a line with its cells separated by ` | `, and each list item is a line that
    starts with `- `, so that infoboxes, tables and lists can be quoted.
    """
    tree = parse(page)
    if tree is None:
        return Html("", "")
    return Html(title_of(tree), _joined(lines_of(tree)), is_whole(tree))


def parse(page: str) -> lxml.html.HtmlElement | None:
    """Returns the tree of a page, without what is hidden from readers; None if it is empty."""
    # As bytes: lxml refuses strings that begin with an XML declaration.
    # Old pages have hundreds of elements that nothing closes: libxml2's usual limit is 256 nested
    # ones, and 10 MB of text without markup; with `huge_tree` these are 2048 and 1 GB.
    parser = lxml.html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    content = _CONTROLS.sub("", page).encode("utf-8", errors="replace")
    try:
        tree = lxml.html.document_fromstring(content, parser=parser)
    except lxml.etree.ParserError:  # there is nothing in it
        return None
    # What readers can't see is no evidence, and may be written for machines only.
    for element in tree.xpath("/html/*//*[@hidden or @style]"):
        if "hidden" in element.attrib or _HIDDEN.search(element.get("style", "")):
            element.clear(keep_tail=True)
    return tree


def is_whole(tree: lxml.html.HtmlElement) -> bool:
    """Returns whether `parse` read a page to its end; it stops at 2048 nested elements."""
    problems = tree.getroottree().parser.error_log
    return not problems.filter_types([lxml.etree.ErrorTypes.ERR_RESOURCE_LIMIT])


def is_hard(tree: lxml.html.HtmlElement) -> bool:
    """Returns whether finding the article in a tree would take too long.

    Then it has more than 256 nested elements, or more than 10,000 side by side within a line.
    """
    depth = 0
    for event, _ in lxml.etree.iterwalk(tree, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > _DEEPEST_ARTICLE:
            return True
    blocks = PARAGRAPHS | LINES | CELLS
    return any(
        sum(child.tag not in blocks for child in element) > _MOST_INLINE
        for element in tree.xpath(f"//*[count(*) > {_MOST_INLINE}]")
    )


def title_of(tree: lxml.html.HtmlElement) -> str:
    """Returns the title of a page, on one line; empty where it has none."""
    for path in ("//title", "//meta[@property='og:title']/@content", "//h1"):
        for found in tree.xpath(path)[:1]:
            text = found if isinstance(found, str) else "".join(found.itertext())
            if title := _SPACE.sub(" ", text).strip():
                return title
    return ""


def _joined(lines: list[Line]) -> str:
    return "".join(f"{line.gap}{line.text}" for line in lines)

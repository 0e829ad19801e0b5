"""The text of an HTML page: the article alone, or everything that a reader sees."""

import re
from typing import NamedTuple

import lxml.etree
import lxml.html
import trafilatura

_NAME = re.compile(r"\w+")

# Around one of these there is an empty line, or a line end.
_PARAGRAPHS = frozenset(
    _NAME.findall("""
    address article aside blockquote body details dl fieldset figure footer form h1 h2 h3 h4 h5 h6
    header hr main ol p pre section table ul
    """)
)
_LINES = frozenset(
    _NAME.findall("br caption dd div dt figcaption legend li summary tbody tfoot thead tr")
)
_CELLS = frozenset({"td", "th"})

# What a reader of the page doesn't see, or sees on every page of the site.
_SKIPPED = frozenset(
    _NAME.findall("""
    audio button canvas datalist iframe math nav noscript object script select style svg template
    textarea title video
    """)
)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)

# Control characters, also as numbers: parsers let them in, and fail over them later.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0e-\x1f\x7f]"
    r"|&#(?:0*(?:[0-8]|11|1[4-9]|2\d|3[01])|x0*(?:[0-8be-f]|1[0-9a-f]))(?:;|(?![0-9a-f]))",
    re.IGNORECASE,
)
_SPACE = re.compile(r"[ \t\n\r\f]+")


class Html(NamedTuple):
    """A page's title, empty where it has none, and its text."""

    title: str
    text: str


def article(page: str) -> Html:
    """Returns the main text of a page by trafilatura, without menus, advertisements and comments.

    Much of what stands in infoboxes and tables is left out too. A page in which no article is found
    gives its full text.
    """
    tree = _parse(page)
    if tree is None:
        return Html("", "")
    found = trafilatura.extract(tree, include_comments=False, include_tables=True)
    return Html(_title(tree), found or _visible_text(tree))


def full(page: str) -> Html:
    """Returns everything that a reader of the page sees but the site's navigation.

    Each row of a table is a line with its cells divided by ` | `, and each list item a line after
    `- `, so that infoboxes, tables and lists can be quoted.
    """
    tree = _parse(page)
    return Html("", "") if tree is None else Html(_title(tree), _visible_text(tree))


def _parse(page: str) -> lxml.html.HtmlElement | None:
    # As bytes: lxml refuses strings that begin with an XML declaration.
    parser = lxml.html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    content = _CONTROLS.sub("", page).encode("utf-8", errors="replace")
    try:
        tree = lxml.html.document_fromstring(content, parser=parser)
    except lxml.etree.ParserError:  # there is nothing in it
        return None
    # What is hidden from readers is no evidence, and may be written for machines only.
    for element in tree.xpath("/html/*//*[@hidden or @style]"):
        if "hidden" in element.attrib or _HIDDEN.search(element.get("style", "")):
            element.clear(keep_tail=True)
    return tree


def _title(tree: lxml.html.HtmlElement) -> str:
    for path in ("//title", "//meta[@property='og:title']/@content", "//h1"):
        for found in tree.xpath(path)[:1]:
            text = found if isinstance(found, str) else "".join(found.itertext())
            if title := _SPACE.sub(" ", text).strip():
                return title
    return ""


def _visible_text(tree: lxml.html.HtmlElement) -> str:
    lines = _Lines()
    walk = lxml.etree.iterwalk(tree, events=("start", "end"))
    for event, element in walk:
        seen = element.tag not in _SKIPPED
        if event == "start":
            if seen:
                lines.start(element.tag)
                lines.write(element.text)
            else:
                walk.skip_subtree()
        else:
            if seen:
                lines.end(element.tag)
            lines.write(element.tail)
    return lines.text()


class _Lines:
    """Puts the pieces of a page's text into lines, as their elements ask for it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._line: list[str] = []
        self._gap = ""  # what stands before the next line
        self._marker = ""  # of a list item whose first line is not yet there
        self._preformatted = 0

    def start(self, tag: str) -> None:
        if tag in _CELLS and any(piece.strip() for piece in self._line):
            self._line.append(" | ")
        self._break(tag)
        if tag == "li":
            self._marker = "- "
        self._preformatted += tag == "pre"

    def end(self, tag: str) -> None:
        self._break(tag)
        self._preformatted -= tag == "pre"

    def write(self, text: str | None) -> None:
        if text:
            self._line.append(text)

    def text(self) -> str:
        self._break("body")
        return "".join(self._pieces)

    def _break(self, tag: str) -> None:
        """Ends the line where the element begins or ends one."""
        if tag not in _PARAGRAPHS and tag not in _LINES:
            return
        text = "".join(self._line)
        text = text.strip("\n") if self._preformatted else _SPACE.sub(" ", text).strip()
        gap = "\n\n" if tag in _PARAGRAPHS else "\n"
        self._line.clear()
        if text.strip():
            self._pieces += [self._gap, self._marker, text]
            self._gap, self._marker = gap, ""
        elif self._pieces:
            self._gap = max(self._gap, gap, key=len)

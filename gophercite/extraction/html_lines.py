"""The lines of an HTML page: what a reader sees of it, in the page's order.

For the text browser the lines also say where links and anchors are, and superscripts, subscripts,
images and mathematics are spelled out (WebGPT, appendix A).
"""

import dataclasses
import itertools
import re

import lxml.etree
import lxml.html

from gophercite.documents import normalise_text
from gophercite.extraction import math_text
from gophercite.extraction.page_lines import (
    CELLS,
    LINES,
    PARAGRAPHS,
    Line,
    LineLink,
    has_lines,
    joined,
    keeps_lines,
    normalised,
    partly_joined,
)

_NAME = re.compile(r"\w+")

# What a reader of the page doesn't see, or sees on every page of the site.
_SKIPPED = frozenset(
    _NAME.findall("""
    audio button canvas datalist iframe math nav noscript object script select style svg template
    textarea title video
    """)
)
# Elements that show a formula a second time, next to its MathML.
_SHOWN_TWICE = frozenset({"katex-html", "mjx-math", "mathjax_preview"})

_SPACE = re.compile(r"[ \t\n\r\f]+")
_LONGEST_ALTERNATIVE = 500  # characters of an image's description
_LONGEST_ADDRESS = 4000  # as for addresses that are fetched
_LONGEST_ANCHOR = 500
_SCRIPTS = {"sup": "^", "sub": "_"}


def lines_of(tree: lxml.html.HtmlElement, *, for_browser: bool = False) -> list[Line]:
    """Returns the lines of a page; each table row is one line, its cells separated by ` | `.

    Tables also lay out pages. So a row keeps the lines of its cells if only one of them has text,
    or if one has several lines with over 200 characters; and a table within a row divides it.

    Args:
      tree: the page's tree.
      for_browser: whether to add links, anchors, and what else the text browser spells out.
    """
    writer = _Writer(for_browser)
    walk = lxml.etree.iterwalk(tree, events=("start", "end"))
    for event, element in walk:
        seen = element.tag not in _SKIPPED and not (for_browser and _is_shown_twice(element))
        if event == "start":
            if for_browser and _is_formula(element):
                writer.write(_formula(element), element)
            if not seen:
                walk.skip_subtree()
                continue
            writer.start(element)
            if for_browser:
                _start_for_browser(writer, element)
            writer.write(element.text, element)
        else:
            if seen:
                if for_browser:
                    _end_for_browser(writer, element)
                writer.end(element.tag)
            writer.write(element.tail, element)
    return writer.lines()


def _start_for_browser(writer: "_Writer", element: lxml.html.HtmlElement) -> None:
    tag = element.tag
    writer.anchor(element.get("id") or (element.get("name") if tag == "a" else None))
    if tag in _SCRIPTS:
        writer.start_script(_SCRIPTS[tag])
    elif tag == "a" and element.get("href") is not None:
        writer.start_link(element)
    elif tag == "img":
        writer.write(_image(element), element)


def _end_for_browser(writer: "_Writer", element: lxml.html.HtmlElement) -> None:
    if element.tag in _SCRIPTS:
        writer.end_script()
    writer.end_link(element)


def _image(element: lxml.html.HtmlElement) -> str:
    if {element.get("width"), element.get("height")} & {"0", "1"}:
        return ""  # invisible: a tracking pixel
    described = " ".join(element.get("alt", "")[:_LONGEST_ALTERNATIVE].split())
    if math_text.is_tex_image(described, element.get("class", "")):
        return math_text.of_tex(described)
    return f"[Image: {described}]" if described else "[Image]"


def _is_formula(element: lxml.html.HtmlElement) -> bool:
    if element.tag == "script":
        return bool(element.get("type", "").startswith("math/tex"))
    return bool(element.tag == "math")


def _formula(element: lxml.html.HtmlElement) -> str:
    if element.tag == "math":
        return math_text.of_element(element)
    return math_text.of_tex(element.text or "")


def _is_shown_twice(element: lxml.html.HtmlElement) -> bool:
    classes = element.get("class")
    if classes and _SHOWN_TWICE & set(classes[:1000].lower().split()):
        return True
    return element.tag in _SHOWN_TWICE


@dataclasses.dataclass
class _Row:
    """A table row that has not ended.

    Attributes:
      gap: what separates it from the line before.
      cells: for each of its cells, the number of lines before it.
    """

    gap: str
    cells: list[int] = dataclasses.field(default_factory=list)


class _Writer:
    """Assembles the pieces of a page's text into lines, following their elements."""

    def __init__(self, for_browser: bool) -> None:
        self._for_browser = for_browser
        self._lines: list[Line] = []
        self._pieces: list[str] = []  # of the current line
        self._length = 0  # of these, in characters
        self._gap = ""  # what separates the next line from the one before
        self._marker = ""  # of a list item whose first line is still to come
        self._numbers: list[int | None] = []  # next number in each open list; None: no numbers
        self._preformatted = self._cells = 0
        self._rows: list[_Row | None] = [None]  # of each open table, and outside of tables
        self._element: lxml.html.HtmlElement | None = None  # where the current line begins
        self._scripts: list[str] = []  # marks of scripts whose text is still to come
        self._link: lxml.html.HtmlElement | None = None
        self._link_start: int | None = None  # offset in the current line
        self._links: list[LineLink] = []
        self._anchors: list[tuple[str, int]] = []
        self._waiting: list[str] = []  # anchors for the start of the next line

    def start(self, element: lxml.html.HtmlElement) -> None:
        tag = element.tag
        if tag == "table":  # what is before it in its cell is of the row
            self._break(tag)
        if tag in ("table", "tr"):
            self._end_row()
        self._break(tag)
        if tag == "table":
            self._rows.append(None)
        elif tag in CELLS:
            self._cells += 1
            row = self._rows[-1] = self._rows[-1] or _Row(self._gap)
            row.cells.append(len(self._lines))
        elif tag in ("ul", "ol"):
            self._numbers.append(
                _first_number(element) if tag == "ol" and self._for_browser else None
            )
        elif tag == "li":
            self._marker = self._next_marker()
        self._preformatted += tag == "pre"

    def end(self, tag: str) -> None:
        if tag in ("table", "tr"):
            self._end_row()
        self._break(tag)
        if tag == "table":
            self._rows.pop()
        self._preformatted -= tag == "pre"
        self._cells -= tag in CELLS
        if tag in ("ul", "ol") and self._numbers:
            self._numbers.pop()

    def write(self, text: str | None, element: lxml.html.HtmlElement) -> None:
        if not text:
            return
        if self._for_browser:
            text = normalise_text(text)  # so that offsets in it stay valid
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
            if text.startswith(" ") and (not self._pieces or self._pieces[-1].endswith(" ")):
                text = text[1:]
        elif not self._pieces:
            text = text.lstrip("\n")
        if text.strip():
            if self._scripts:
                self._append("".join(self._scripts))
                self._scripts.clear()
            if self._element is None:
                self._element = element
            if self._link is not None and self._link_start is None:
                self._link_start = self._length + len(text) - len(text.lstrip())
        self._append(text)

    def start_script(self, mark: str) -> None:
        self._scripts.append(mark)

    def end_script(self) -> None:
        if self._scripts:  # it had no text
            self._scripts.pop()

    def anchor(self, name: str | None) -> None:
        if name and len(name) <= _LONGEST_ANCHOR:
            self._anchors.append((normalise_text(name), self._length))

    def start_link(self, element: lxml.html.HtmlElement) -> None:
        if self._link is None:
            self._link = element

    def end_link(self, element: lxml.html.HtmlElement) -> None:
        if self._link is element:
            self._keep_link()
            self._link = None

    def lines(self) -> list[Line]:
        self._break("body")
        self._end_row()
        if self._waiting and self._lines:  # anchors at the end of the page
            last = self._lines[-1]
            anchors = [*last.anchors, *((name, len(last.text)) for name in self._waiting)]
            self._lines[-1] = dataclasses.replace(last, anchors=tuple(anchors))
        return self._lines

    def _append(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)

    def _next_marker(self) -> str:
        number = self._numbers[-1] if self._numbers else None
        if number is None:
            return "- "
        self._numbers[-1] = number + 1
        return f"{number}. "

    def _keep_link(self) -> None:
        """Ends the link's text here; if it continues on other lines, that part is not a link."""
        if self._link is not None and self._link_start is not None:
            address = self._link.get("href", "").strip()
            if address and len(address) <= _LONGEST_ADDRESS:
                self._links.append(LineLink(self._link_start, self._length, address))
            self._link = None
        self._link_start = None

    def _end_row(self) -> None:
        """Joins the lines of the current row's cells, all of them or where cells have only one."""
        row, self._rows[-1] = self._rows[-1], None
        if row is None or row.cells[0] == len(self._lines):
            return
        ends = [*row.cells, len(self._lines)]
        cells = [self._lines[a:b] for a, b in itertools.pairwise(ends)]
        if sum(map(bool, cells)) == 1:  # empty cells before a text are only space
            cells = list(itertools.dropwhile(lambda cell: not cell, cells))
            if has_lines(cells[0]):
                return
        del self._lines[row.cells[0] :]
        if any(map(keeps_lines, cells)):
            self._lines += partly_joined(cells)
        else:
            self._lines.append(dataclasses.replace(joined(cells), gap=row.gap))
            self._gap = "\n"

    def _break(self, tag: str) -> None:
        """Ends the line if the element begins or ends one."""
        if tag not in PARAGRAPHS and tag not in LINES:
            return
        gap = "\n\n" if tag in PARAGRAPHS else "\n"
        blanks = "\n" if self._preformatted else None
        whole = "".join(self._pieces)
        text = whole.strip(blanks)
        if text.strip() and self._element is not None:
            self._keep_link()
            moved = len(self._marker) - (len(whole) - len(whole.lstrip(blanks)))
            line = Line(
                self._gap,
                self._marker + text,
                self._element,
                self._cells > 0,
                tuple(LineLink(a + moved, b + moved, address) for a, b, address in self._links),
                (
                    *((name, 0) for name in self._waiting),
                    *((name, at + moved) for name, at in self._anchors),
                ),
            )
            self._lines.append(normalised(line) if self._for_browser else line)
            self._gap, self._marker = gap, ""
            self._anchors, self._waiting = [], []
        else:
            if self._lines:
                self._gap = max(self._gap, gap, key=len)
            self._waiting += (name for name, _ in self._anchors)
            self._anchors = []
            self._link_start = None
        self._pieces = []
        self._length = 0
        self._element = None
        self._links = []


def _first_number(element: lxml.html.HtmlElement) -> int:
    start = element.get("start", "1").strip()
    return int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 1

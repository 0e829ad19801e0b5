"""A line of an HTML page, and how the lines of a table row are joined."""

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import lxml.html

from gophercite.documents import normalise_text

_NAME = re.compile(r"\w+")

# These elements are surrounded by an empty line; those in `LINES` by a line end.
PARAGRAPHS = frozenset(
    _NAME.findall("""
    address article aside blockquote body details dl fieldset figure footer form h1 h2 h3 h4 h5 h6
    header hr main ol p pre section table ul
    """)
)
LINES = frozenset(
    _NAME.findall("br caption dd div dt figcaption legend li summary tbody td tfoot th thead tr")
)
CELLS = frozenset({"td", "th"})
_LONGEST_CELL = 200  # characters of a cell of several lines that is part of its row's line


class LineLink(NamedTuple):
    """A link: its text is `text[start:end]` of its line; its address is as the page gives it."""

    start: int
    end: int
    address: str


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a page.

    Attributes:
      gap: what separates it from the line before: one or two line ends; empty for the first line.
      text: its text, with the marker of a list item.
      element: the element in which it begins.
      is_in_table: whether that is within a table cell.
      links: links in its text, in order.
      anchors: anchor names, and their offsets in its text.
    """

    gap: str
    text: str
    element: lxml.html.HtmlElement
    is_in_table: bool = False
    links: tuple[LineLink, ...] = ()
    anchors: tuple[tuple[str, int], ...] = ()


def has_lines(cell: Sequence[Line]) -> bool:
    """Whether a table cell has several lines, or one of several: preformatted text."""
    return len(cell) > 1 or any("\n" in line.text for line in cell)


def keeps_lines(cell: Sequence[Line]) -> bool:
    """Whether a table cell has so much text, in several lines, that the table lays out the page."""
    return has_lines(cell) and (
        any("\n" in line.text for line in cell)
        or sum(len(line.text) for line in cell) > _LONGEST_CELL
    )


def partly_joined(cells: Sequence[Sequence[Line]]) -> list[Line]:
    """The lines of a row that keeps them, without the breaks between cells of one line."""
    lines: list[Line] = []
    row: list[Sequence[Line]] = []
    for cell in cells:
        if cell and has_lines(cell):
            if row and not _begins_block(cell[0]):
                lines += (joined([*row, cell[:1]]), *cell[1:])
            else:
                lines += (*([joined(row)] if row else []), *cell)
            row = []
        elif cell:
            row.append(cell)
    return [*lines, joined(row)] if row else lines


def _begins_block(line: Line) -> bool:
    """Whether a line in a table cell begins in an element that begins a line."""
    place = line.element
    while place is not None and place.tag not in CELLS:
        if place.tag in PARAGRAPHS or place.tag in LINES:
            return True
        place = place.getparent()
    return False


def joined(cells: Sequence[Sequence[Line]]) -> Line:
    """One line of the lines of these cells, of which at least one has some."""
    texts: list[str] = []
    links: list[LineLink] = []
    anchors: list[tuple[str, int]] = []
    length = 0
    for number, cell in enumerate(cells):
        if number:
            texts.append("|")
            length += 2
        for line in cell:
            texts.append(line.text)
            links += (LineLink(a + length, b + length, link) for a, b, link in line.links)
            anchors += ((name, place + length) for name, place in line.anchors)
            length += len(line.text) + 1
    first = next(line for cell in cells for line in cell)
    return dataclasses.replace(
        first, text=" ".join(texts), links=tuple(links), anchors=tuple(anchors)
    )


def normalised(line: Line) -> Line:
    """Normalises a line as in a document, and adjusts and limits its offsets to its text.

    Its pieces are in normal form, but where two of them meet, the result may not be.
    """
    text, length = line.text, len(line.text)
    places = {min(max(0, place), length) for link in line.links for place in link[:2]}
    places |= {min(max(0, place), length) for _, place in line.anchors}
    moved = {place: place for place in places}
    if not unicodedata.is_normalized("NFC", text):
        ordered = sorted(places | {0, length})
        parts = [normalise_text(text[a:b]) for a, b in itertools.pairwise(ordered)]
        starts = itertools.accumulate(map(len, parts), initial=0)
        moved = dict(zip(ordered, starts, strict=True))
        text = normalise_text(text)
        if text != "".join(parts):  # an offset splits what normalisation joins
            return dataclasses.replace(line, text=text, links=(), anchors=())
    links = []
    for link in line.links:
        start, end = (moved[min(max(0, place), length)] for place in link[:2])
        said = text[start:end]
        if said.strip():
            start += len(said) - len(said.lstrip())
            links.append(LineLink(start, start + len(said.strip()), link.address))
    anchors = tuple((name, moved[min(max(0, place), length)]) for name, place in line.anchors)
    return dataclasses.replace(line, text=text, links=tuple(links), anchors=anchors)

"""Pages with marked quotes, as HTML for people: for notebooks, and as separate files.

Titles, texts and addresses are untrusted: all of them are escaped, and misleading or invisible
characters are shown by their codes. Long pages show only the surroundings of their marks, and how
much is left out in between; right-to-left texts are displayed as such.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from gophercite.documents import Document
from gophercite.html.escaping import escape_html, whole_page

CONTEXT = 400  # characters that are shown before and after a mark

_LEAST_GAP = 80  # characters; shorter gaps are shown
_WORD = 40  # maximum characters to extend to the end of a word
_SPACE = re.compile(r"\s")

# Colours that are readable on light and dark backgrounds, within our own class: the style is
# inserted into pages that belong to others, such as a notebook.
_STYLE = """
.gophercite { line-height: 1.5; max-width: 60rem; }
.gophercite .claim { font-size: 1.15em; font-weight: 600; margin: .5em 0; }
.gophercite .about { color: #777; font-size: .85em; margin: .25em 0; overflow-wrap: anywhere; }
.gophercite .source { border: 1px solid #8886; border-radius: 6px; margin: .75em 0; }
.gophercite .source > * { margin: 0; padding: .4em .9em; }
.gophercite .source > .title { font-weight: 600; }
.gophercite .text { border: solid #8886; border-width: 1px 0; max-height: 24em; overflow: auto; }
.gophercite .text, .gophercite blockquote { unicode-bidi: plaintext; white-space: pre-wrap; }
.gophercite mark { background: #ffe066; border-radius: 2px; color: #000; }
.gophercite mark.near { background: #ffc9a8; text-decoration: underline wavy #b34700; }
.gophercite mark[data-label]::before { content: attr(data-label) " "; font-size: .7em;
  font-weight: 700; vertical-align: super; }
.gophercite .gap { color: #777; display: block; font-size: .85em; text-align: center; }
.gophercite .yes { color: #00795a; } .gophercite .no { color: #b34700; }
.gophercite details.step { border-top: 1px solid #8884; padding: .35em 0; }
.gophercite summary { cursor: pointer; overflow-wrap: anywhere; }
.gophercite .read { border-left-width: 1px; border-right-width: 1px; font-family: monospace;
  font-size: .85em; overflow-wrap: anywhere; padding: .4em .9em; }
.gophercite .written { unicode-bidi: plaintext; white-space: pre-wrap; }
"""
PAGE_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
.gophercite .text { max-height: none; }
.gophercite .about, .gophercite .gap { color: #5c5c5c; }
@media (prefers-color-scheme: dark) {
  .gophercite .about, .gophercite .gap { color: #aaa; }
  .gophercite .yes { color: #5fd3b3; } .gophercite .no { color: #ff9d5c; } }
"""


class Mark(NamedTuple):
    """A run of a text to highlight.

    Attributes:
      start, end: the run is `text[start:end]`.
      label: shown small before it, such as the number of a claim; not part of the text.
      is_quote: whether it is the quote itself; else it is only similar to it.
    """

    start: int
    end: int
    label: str = ""
    is_quote: bool = True


@dataclasses.dataclass(frozen=True)
class MarkedPages:
    """Pages with marks, and the text next to them; notebooks display it directly.

    Attributes:
      title: title of the page that `page` returns.
      body: HTML, from the functions below.
    """

    title: str
    body: str

    def page(self) -> str:
        """Returns a self-contained HTML page."""
        style = _STYLE + PAGE_STYLE
        return whole_page(self.title, style, f'<div class="gophercite">\n{self.body}</div>\n')

    def _repr_html_(self) -> str:
        """The representation in notebooks."""
        return f'<div class="gophercite"><style>{_STYLE}</style>\n{self.body}</div>'


def source(document: Document, marks: Sequence[Mark], said: str, context: int = CONTEXT) -> str:
    """Returns a page's title, its text with the marks, and where to get it and check it.

    Args:
      document: the page.
      marks: marks in its text; if there are none, its beginning is shown.
      said: any text about the marks.
      context: characters that are shown before and after a mark.

    Raises:
      ValueError: a mark is not in the text.
    """
    title = f'<p class="title" dir="auto">{escape_html(document.title)}</p>\n'
    text = f'<div class="text" dir="auto">{marked_text(document.text, marks, context)}</div>\n'
    parts = [escape_html(said)] if said else []
    parts.append(address(document.url or document.id))
    if document.retrieved_at:
        parts.append(f"retrieved {escape_html(document.retrieved_at)}")
    parts.append(f"SHA-256 of the text {document.sha256}")
    return f'<section class="source">\n{title}{text}{about(*parts)}</section>\n'


def address(text: str) -> str:
    """Returns an address or the id of a page as HTML: a link if it is a web address."""
    shown = f"<bdi>{escape_html(text)}</bdi>"
    if not re.match("https?://", text, re.IGNORECASE):
        return shown
    return f'<a href="{escape_html(text)}" rel="noopener noreferrer nofollow">{shown}</a>'


def about(*parts: str) -> str:
    """Returns a small line of several parts, each of which is HTML."""
    return f'<p class="about">{" · ".join(parts)}</p>\n'


def marked_text(text: str, marks: Sequence[Mark], context: int = CONTEXT) -> str:
    """Returns a text as HTML, its marks in `<mark>`; parts far from all of them are left out.

    Marks may overlap. Parts that are left out are replaced by their number of characters.

    Args:
      text: any text.
      marks: in any order.
      context: characters that are shown before and after a mark.

    Raises:
      ValueError: a mark is not in the text, or `context` is negative.
    """
    if context < 0:
        raise ValueError(f"context = {context}: must be 0 or more")
    for mark in marks:
        if not 0 <= mark.start < mark.end <= len(text):
            raise ValueError(f"{mark} is not in a text of {len(text)} characters")
    parts, shown = [], 0
    for start, end in _regions(text, marks, context):
        parts += [_gap(start - shown), _region(text, start, end, marks)]
        shown = end
    return "".join([*parts, _gap(len(text) - shown)])


def _regions(text: str, marks: Sequence[Mark], context: int) -> list[tuple[int, int]]:
    """The regions to show, in order and not touching each other."""
    wanted = sorted((mark.start - context, mark.end + context) for mark in marks)
    regions: list[tuple[int, int]] = []
    for start, end in wanted or [(0, 2 * context)]:
        start, end = _whole_words(text, max(0, start), min(len(text), end))
        if regions and start - regions[-1][1] < _LEAST_GAP:
            regions[-1] = regions[-1][0], max(end, regions[-1][1])
        else:
            regions.append((start, end))
    first, last = regions[0], regions[-1]
    if first[0] < _LEAST_GAP:
        regions[0] = 0, first[1]
    if len(text) - last[1] < _LEAST_GAP:
        regions[-1] = regions[-1][0], len(text)
    return regions


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Extends a region to word boundaries, if they are near."""
    if start > 0:
        before = [match.end() for match in _SPACE.finditer(text, max(0, start - _WORD), start)]
        start = before[-1] if before else start
    if end < len(text):
        after = _SPACE.search(text, end, end + _WORD)
        end = after.start() if after else end
    return start, end


def _region(text: str, start: int, end: int, marks: Sequence[Mark]) -> str:
    """A region's HTML, split wherever a mark begins or ends, so that elements never cross."""
    inside = [mark for mark in marks if start <= mark.start and mark.end <= end]
    cuts = {start, end, *(mark.start for mark in inside), *(mark.end for mark in inside)}
    places = sorted(cuts)
    parts = []
    for left, right in itertools.pairwise(places):
        covering = [mark for mark in inside if mark.start <= left and right <= mark.end]
        parts.append(_run(text[left:right], left, covering))
    return "".join(parts)


def _run(text: str, start: int, covering: Sequence[Mark]) -> str:
    if not covering:
        return escape_html(text)
    kind = "" if any(mark.is_quote for mark in covering) else ' class="near"'
    begun = [mark.label for mark in covering if mark.start == start and mark.label]
    label = f' data-label="{escape_html(" ".join(begun))}"' if begun else ""
    return f"<mark{kind}{label}>{escape_html(text)}</mark>"


def _gap(length: int) -> str:
    if not length:
        return ""
    many = "character is" if length == 1 else "characters are"
    return f'<span class="gap">⋯ {length:,} {many} not shown ⋯</span>'

"""A page's text as shown to the model: marks escaped, links marked, divided into lines."""

import bisect
import dataclasses
import functools
from collections.abc import Sequence

from gophercite.browser.hosts import host_of
from gophercite.browser.marks import LINK_CLOSE, LINK_OPEN, LINK_PART, escape, one_line
from gophercite.browser.matching import Matcher


@dataclasses.dataclass(frozen=True)
class Link:
    """A link of a page.

    Attributes:
      start, end: its text is `text[start:end]` of the page.
      url: its target, absolute, with the fragment.
    """

    start: int
    end: int
    url: str


class ShownPage:
    """The text of a page under an episode's rules.

    A link is shown as `【<id>†<its text>†<domain>】`, without the domain if that is the page's own
    (WebGPT, appendix A). Ids number the links that are shown, from 0.

    Args:
      text: the stored page's text.
      links: links that may be shown; those without text, or overlapping an earlier one, are not.
      host: the page's domain.
      columns: maximum length of a line.

    Attributes:
      plain: the text without links, its marks escaped: offsets are the same as in `text`.
      text: the shown text.
      links: by their ids.
      line_starts: where each line begins in the shown text.
    """

    def __init__(self, text: str, links: Sequence[Link], host: str, columns: int) -> None:
        self.plain = escape(text)
        self.links: tuple[Link, ...] = tuple(_that_can_be_shown(links, text))
        pieces: list[str] = []
        # From each of these places in `plain`, up to the next one, the shown text continues at the
        # corresponding shown place.
        self._plain_starts, self._shown_starts = [0], [0]
        spans: list[tuple[int, int]] = []
        place = length = 0
        for number, link in enumerate(self.links):
            domain = host_of(link.url)
            opening = f"{LINK_OPEN}{number}{LINK_PART}"
            closing = f"{LINK_PART}{one_line(domain)}" if domain != host else ""
            closing += LINK_CLOSE
            before, within = self.plain[place : link.start], self.plain[link.start : link.end]
            pieces += (before, opening, within, closing)
            start = length + len(before)
            inside = start + len(opening)
            length = inside + len(within) + len(closing)
            spans.append((start, length))
            self._plain_starts += (link.start, link.end)
            self._shown_starts += (inside, length)
            place = link.end
        self.text = "".join([*pieces, self.plain[place:]])
        self.line_starts = _line_starts(self.text, spans, columns)

    def __len__(self) -> int:
        """The number of lines; an empty page has one."""
        return len(self.line_starts)

    @functools.cached_property
    def matcher(self) -> Matcher:
        """Finds texts in `plain`."""
        return Matcher(self.plain)

    def lines(self, first: int, last: int) -> str:
        """Returns the text of the lines from `first` to `last`, both included."""
        end = self.line_starts[last + 1] if last + 1 < len(self) else len(self.text)
        return self.text[self.line_starts[first] : end].rstrip()

    def line_of(self, place: int) -> int:
        """Returns the line in which the character of `plain` at this place is shown."""
        part = bisect.bisect_right(self._plain_starts, place) - 1
        shown = self._shown_starts[part] + place - self._plain_starts[part]
        return max(0, bisect.bisect_right(self.line_starts, shown) - 1)

    def place_of_line(self, line: int) -> int:
        """Returns the place in `plain` of the first character that is shown from this line on.

        For lines after the last one it is the last line's.
        """
        shown = self.line_starts[min(line, len(self) - 1)]
        part = bisect.bisect_right(self._shown_starts, shown) - 1
        place = self._plain_starts[part] + shown - self._shown_starts[part]
        # Within the marks of a link, nothing of the page is shown.
        return min([place, *self._plain_starts[part + 1 : part + 2]])


def _that_can_be_shown(links: Sequence[Link], text: str) -> list[Link]:
    shown: list[Link] = []
    end = 0
    for link in links:
        if end <= link.start < link.end <= len(text) and text[link.start : link.end].strip():
            shown.append(link)
            end = link.end
    return shown


def _line_starts(text: str, links: Sequence[tuple[int, int]], columns: int) -> list[int]:
    """Splits a text into lines: at line ends, and at blanks where they would be too long.

    A link is kept on one line if it fits.
    """
    starts: list[int] = []
    place, number = 0, 0
    while True:
        newline = text.find("\n", place)
        end = len(text) if newline < 0 else newline
        while end - place > columns:
            starts.append(place)
            cut = text.rfind(" ", place + 1, place + columns + 1) + 1 or place + columns
            while number < len(links) and links[number][1] <= cut:
                number += 1
            if number < len(links):
                opening, closing = links[number]
                if place < opening < cut < closing and closing - opening <= columns:
                    cut = opening
            place = cut
        starts.append(place)
        if newline < 0:
            return starts
        place = newline + 1

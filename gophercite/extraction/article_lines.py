"""Finds the lines of a page that are its article, including its tables, formulas and pictures.

trafilatura finds the text of the article; a line belongs to the article when most of its words
appear there in the same order. trafilatura leaves out much that Mozilla's Readability, which WebGPT
used, keeps. So the lines between such lines are kept as well if they are within the element that
holds nearly all of the article, unless a line is mostly links or its element has a name typical of
advertisements or comments.
"""

import re
from collections.abc import Sequence

import lxml.html

from gophercite.extraction.page_lines import Line

_RUN = 4  # words
_SAME = 0.5  # minimum share of a line's runs that are in the article, for a line of the article
_NEARLY_ALL = 0.9  # minimum share of the article's characters
_MOST_LINKS = 0.5  # maximum share of a line's characters that are link text

_WORD = re.compile(r"\w+")
# Bounded like the descriptions: otherwise a page full of `[Image: ` would take quadratic time.
_PICTURE = re.compile(r"\[Image(?:: [^\]\n]{0,500})?\]")
# Names of classes and ids, similar to Readability's.
_UNLIKELY = re.compile(
    r"-ad-|\bads?\b|advert|agegate|banner|breadcrumb|byline|comment|community|cookie|disqus|extra|"
    r"footer|gdpr|hatnote|masthead|menu|meta\b|metadata|modal|nav(?:bar|box|ig)|newsletter|outbrain|"
    r"pager|pagination|popup|promo|recommend|related|remark|replies|rss|share|sharing|shoutbox|"
    r"sidebar|skip|social|sponsor|subscri|taboola|teaser|toolbar|toc\b|widget",
    re.IGNORECASE,
)
_UNLIKELY_TAGS = frozenset({"aside", "footer", "form", "nav"})


def of_article(lines: Sequence[Line], article: str) -> list[Line]:
    """Returns the lines of a page that are its article.

    Args:
      lines: all lines of the page.
      article: its main text as trafilatura gives it.
    """
    known = _Known(article)
    found = [known.holds(line.text) for line in lines]
    if not any(found):
        return list(lines)
    container = _container([line for line, is_found in zip(lines, found, strict=True) if is_found])
    first = found.index(True)
    last = len(found) - 1 - found[::-1].index(True)
    judge = _Judge(container)
    return [
        line
        for number, (line, is_found) in enumerate(zip(lines, found, strict=True))
        if is_found or (first < number < last and judge.admits(line))
    ]


class _Known:
    """The words of an article, for comparison with lines."""

    def __init__(self, article: str) -> None:
        self._runs: set[tuple[str, ...]] = set()
        self._lines: set[tuple[str, ...]] = set()
        for line in article.split("\n"):
            words = tuple(_WORD.findall(line))
            self._lines.add(words)
            self._runs.update(_runs(words))

    def holds(self, line: str) -> bool:
        words = tuple(_WORD.findall(_PICTURE.sub(" ", line)))
        if len(words) < _RUN:
            return bool(words) and words in self._lines
        runs = _runs(words)
        return sum(run in self._runs for run in runs) >= _SAME * len(runs)


def _runs(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [words[start : start + _RUN] for start in range(len(words) - _RUN + 1)]


def _container(lines: Sequence[Line]) -> lxml.html.HtmlElement:
    """The innermost element that holds nearly all characters of these lines."""
    counts: dict[lxml.html.HtmlElement, int] = {}
    for line in lines:
        counts[line.element] = counts.get(line.element, 0) + len(line.text)
    total = sum(counts.values())
    root = lines[0].element.getroottree().getroot()
    # From the leaves up: an element's subtree is complete before its parent's.
    for element in reversed(list(root.iter())):
        parent = element.getparent()
        if element in counts and parent is not None:
            counts[parent] = counts.get(parent, 0) + counts[element]
    place = root
    while True:
        inner = [child for child in place if counts.get(child, 0) >= _NEARLY_ALL * total]
        if not inner:
            return place
        place = inner[0]


class _Judge:
    """Says which other lines, within an element, belong to the article."""

    def __init__(self, container: lxml.html.HtmlElement) -> None:
        # Whether an element's content may be admitted; the container's own names do not count.
        self._admitted: dict[lxml.html.HtmlElement, bool] = {container: True}

    def admits(self, line: Line) -> bool:
        linked = sum(link.end - link.start for link in line.links)
        if linked > _MOST_LINKS * len(line.text) and not line.is_in_table:
            return False
        return self._admits(line.element)

    def _admits(self, element: lxml.html.HtmlElement) -> bool:
        path = []
        place: lxml.html.HtmlElement | None = element
        while place is not None and place not in self._admitted:
            path.append(place)
            place = place.getparent()
        admitted = place is not None and self._admitted[place]
        for each in reversed(path):
            admitted = admitted and not _is_unlikely(each)
            self._admitted[each] = admitted
        return admitted


def _is_unlikely(element: lxml.html.HtmlElement) -> bool:
    if element.tag in _UNLIKELY_TAGS:
        return True
    names = f"{element.get('class', '')[:500]} {element.get('id', '')[:500]}"
    return bool(_UNLIKELY.search(names))

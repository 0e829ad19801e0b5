"""Finds where the snippet of a results page stands in the page itself (GopherCite, appendix A).

A snippet is not a quote: engines highlight the query's words, escape HTML, join fragments from
several places by ellipses and put a date in front; and the page may have changed since. So each
fragment is searched for exactly, then by fuzzy match, and a page is dropped if too little is found.
The embedded index does none of this but join runs of the text by `…`. Its snippets may have tags,
escapes and dates that the page itself has, so a snippet is first searched for as it is.
"""

import dataclasses
import functools
import html
import importlib
import re
from collections.abc import Iterator
from typing import Literal

from rapidfuzz import fuzz, process

from gophercite.documents import normalise_text

Engine = Literal["rapidfuzz", "fuzzywuzzy"]
Span = tuple[int, int]

THRESHOLD = 0.75  # appendix A
MAXIMUM_LENGTH = 1000  # characters of a snippet that are used; engines show about 300

# What engines put around words and between lines. Other tags count as text that the page is about.
_TAG = re.compile(r"</?(?:b|strong|em|i|mark|span|wbr)(?:\s[^<>]{0,200})?/?>", re.IGNORECASE)
_BREAK = re.compile(r"<br\s{0,8}/?>", re.IGNORECASE)
_ELLIPSIS = re.compile(r"…|\.{3,}+|(?:\. ){2,}\.")
_SHORTEST_FRAGMENT = 10  # characters; shorter ones could be anywhere, and say nothing

# For a run that occurs once in the page: its minimum length, how far the rest may have shifted, and
# the ratio of the whole fragment, in per cent, from which the place counts as certain.
_LONG_RUN = 40
_SHIFT = 16
_SURE = 90.0

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATE = re.compile(
    rf"(?:{_MONTH} \d{{1,2}}, \d{{4}}|\d{{1,2}} {_MONTH},? \d{{4}}|\d{{4}}-\d\d-\d\d"
    r"|\d{1,2}[./]\d{1,2}[./]\d{4}|\d{1,3} (?:minute|hour|day|week|month|year)s? ago)",
    re.IGNORECASE,
)
_DATE_IN_FRONT = re.compile(rf"{_DATE.pattern}\s?(?:[—–·|:-]|\Z)\s?", re.IGNORECASE)

_SPACES = "\n\t\r\v\f\xa0\u2009\u202f"


@dataclasses.dataclass(frozen=True)
class SnippetMatch:
    """Where a snippet was found.

    Attributes:
      ratio: how much of the snippet is there, from 0 to 1: the aligned partial ratio; for several
        fragments, their mean weighted by length.
      spans: `(start, end)` in the page of each fragment that was found, the surest first, which is
        the one with the most matching characters.
    """

    ratio: float
    spans: tuple[Span, ...]

    def hulls(self) -> Iterator[Span]:
        """Yields what a window should contain: all fragments first, the surest one alone last."""
        for count in range(len(self.spans), 0, -1):
            starts, ends = zip(*self.spans[:count], strict=True)
            yield min(starts), max(ends)


@functools.lru_cache(maxsize=1024)
def fragments(snippet: str) -> tuple[str, ...]:
    """Returns the runs of page text that a snippet shows, in order, without decoration.

    Highlighting, HTML escapes, ellipses and a leading date are removed, and white space becomes
    single spaces. Fragments of fewer than ten characters are dropped if there are longer ones.
    """
    text = _TAG.sub("", _BREAK.sub(" ", snippet[: 2 * MAXIMUM_LENGTH]))
    text = " ".join(normalise_text(html.unescape(text)).split())[:MAXIMUM_LENGTH]
    text = _DATE_IN_FRONT.sub("", text, count=1) if _DATE_IN_FRONT.match(text) else text
    parts = [part.strip() for part in _ELLIPSIS.split(text)]
    if parts and _DATE.fullmatch(parts[0]):
        del parts[0]
    return _telling(parts)


def _telling(parts: list[str]) -> tuple[str, ...]:
    """Returns the parts that are long enough to say something; if none is, all but empty ones."""
    parts = [part for part in parts if part]
    return tuple(part for part in parts if len(part) >= _SHORTEST_FRAGMENT) or tuple(parts)


def find_snippet(
    snippet: str, text: str, *, threshold: float = THRESHOLD, engine: Engine = "rapidfuzz"
) -> SnippetMatch | None:
    """Finds where in `text` a snippet was taken from.

    A snippet that the text has word for word is found as it is; otherwise its decoration is
    removed. Time and memory are linear in the length of the text. Case matters.

    Args:
      snippet: as the results page shows it; anything after its first 1,000 characters is ignored.
      text: the page's text.
      threshold: the ratio, from 0 to 1, below which there is no match; a fragment below it counts
        as missing.
      engine: how the ratio is measured. `fuzzywuzzy`, the paper's, must be installed. It often
        misses text that is there, even word for word, and does not say where it found the rest;
        `rapidfuzz` then finds the place.

    Returns:
      The place, or None when the snippet is empty or is not in the text.

    Raises:
      ValueError: when there is no such engine.
      ModuleNotFoundError: when `fuzzywuzzy` is chosen and is not installed.
    """
    if engine not in ("rapidfuzz", "fuzzywuzzy"):
        raise ValueError(f"there is no engine {engine!r}; choose 'rapidfuzz' or 'fuzzywuzzy'")
    page = plain_spaces(text)
    parts = fragments(snippet)
    if parts and engine == "rapidfuzz" and (spans := _verbatim(snippet, page)):
        return SnippetMatch(1.0, spans)
    found: list[tuple[float, Span]] = []  # matching characters, place
    for part in parts:
        match = _align(part, page, threshold, engine)
        if match is not None:
            ratio, span = match
            found.append((ratio * len(part), span))
    if not found:
        return None
    ratio = sum(weight for weight, _ in found) / sum(map(len, parts))
    if ratio < threshold:
        return None
    found.sort(key=lambda item: -item[0])
    return SnippetMatch(ratio, tuple(span for _, span in found))


def plain_spaces(text: str) -> str:
    """Returns a text with every kind of space replaced by a plain one; offsets stay valid."""
    for space in _SPACES:
        text = text.replace(space, " ")
    return text


def _verbatim(snippet: str, page: str) -> tuple[Span, ...]:
    """Returns the places of a snippet's parts, the longest first; none unless all are there."""
    text = plain_spaces(normalise_text(snippet[:MAXIMUM_LENGTH]))
    parts = _telling([part.strip() for part in text.split("…")])
    places = [(page.find(part), len(part)) for part in sorted(parts, key=len, reverse=True)]
    if any(start < 0 for start, _ in places):
        return ()
    return tuple((start, start + length) for start, length in places)


def _align(part: str, page: str, threshold: float, engine: Engine) -> tuple[float, Span] | None:
    """Returns a fragment's ratio and place, or None if it is below the threshold."""
    cutoff = 100 * threshold
    if engine == "fuzzywuzzy":
        score = _fuzzywuzzy_score(part, page)
        if score < cutoff:
            return None
        place = _place(part, page, 0)
        return None if place is None else (score / 100, place[1])
    return _place(part, page, cutoff)


def _place(part: str, page: str, cutoff: float) -> tuple[float, Span] | None:
    start = page.find(part)
    if start >= 0:
        return 1.0, (start, start + len(part))
    if len(page) <= len(part):
        # An alignment would search for the page in the fragment, and find a one-word page anywhere;
        # of two texts of equal length it would search for either in the other.
        score = fuzz.ratio(part, page, score_cutoff=cutoff)
        return (score / 100, (0, len(page))) if score and score >= cutoff else None
    found = _place_by_run(part, page, cutoff)
    if found is not None:
        return found
    # None below the cutoff, in spite of its stub; the alignment's offsets are into the page.
    alignment = fuzz.partial_ratio_alignment(part, page, score_cutoff=cutoff)
    if alignment is None or alignment.score == 0:
        return _place_across_spaces(part, page)
    return alignment.score / 100, (alignment.dest_start, alignment.dest_end)


def _place_by_run(part: str, page: str, cutoff: float) -> tuple[float, Span] | None:
    """Finds a fragment if a third of it occurs once in the page verbatim, and most of the rest too.

    There is then no other place to look, and an alignment with the page costs many times more.
    """
    length, least = len(part) // 3, max(_SURE, cutoff)
    if length < _LONG_RUN:
        return None
    for start in (0, len(part) - length, length):
        run = part[start : start + length]
        at = page.find(run)
        if at < 0 or page.find(run, at + 1) >= 0:
            continue
        first = at - start - _SHIFT
        # At the ends of the page, alignments are shorter.
        places = [
            (max(0, place), min(len(page), place + len(part)))
            for place in range(first, first + 2 * _SHIFT + 1)
        ]
        texts = [page[slice(*place)] for place in places]
        best = process.extractOne(part, texts, scorer=fuzz.ratio, score_cutoff=least)
        if best is not None:
            _, score, number = best
            return score / 100, places[number]
    return None


def _place_across_spaces(part: str, page: str) -> tuple[float, Span] | None:
    """Finds text that the page has word for word, but with so much space that it looks unlike."""
    text = " ".join(page.split())
    found = text.find(part)
    if found < 0:
        return None
    words = [match.start() for match in re.finditer(r"\S+", page)]

    def in_page(place: int) -> int:
        return words[text.count(" ", 0, place)] + place - (text.rfind(" ", 0, place) + 1)

    return 1.0, (in_page(found), in_page(found + len(part) - 1) + 1)


def _fuzzywuzzy_score(part: str, page: str) -> float:
    try:
        fuzzywuzzy = importlib.import_module("fuzzywuzzy.fuzz")  # GPL: only on request
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the engine 'fuzzywuzzy' is not installed: pip install 'gophercite[paper]' adds it "
            "(its licence is GPL-2.0), or choose the engine 'rapidfuzz'"
        ) from None
    return float(fuzzywuzzy.partial_ratio(part, page))

"""The runs of a page that a browser's command may hold."""

import numpy as np

from gophercite.browser.matching import origins
from gophercite.commands.long_quotes import long_quotes, standing_once
from gophercite.commands.skeletons import PageRuns
from gophercite.documents import Window
from gophercite.quoting.run_automaton import build_run_automata
from gophercite.quoting.run_boundaries import Boundaries, run_boundaries


def page_runs(
    part: Window, boundaries: Boundaries, most: int, quoted: int | None = None
) -> PageRuns | None:
    """Finds the runs of a part of a page.

    Args:
      part: the part that has runs; boundaries are those of the whole page.
      boundaries: where a run may begin and end, except at white space.
      most: maximum number of characters in a run.
      quoted: if a quote may be given by its start and end, the maximum number of characters that it
        may have in all. Only used if the part is the whole page.

    Returns:
      The runs; None if there are none.
    """
    text = part.text
    begins, ends = run_boundaries(part, boundaries)
    blank = np.fromiter(map(str.isspace, text), bool, len(text))
    begins, ends = begins[:-1] & ~blank, ends[1:] & ~blank
    places = np.flatnonzero(begins), np.flatnonzero(ends)
    if not (len(places[0]) and len(places[1])) or places[0][0] > places[1][-1]:
        return None
    first, last = int(places[0][0]), int(places[1][-1]) + 1
    data = np.frombuffer(text[first:last].encode(), np.uint8)
    byte = np.flatnonzero(np.bincount(data, minlength=256))
    letter = np.zeros(256, np.uint8)
    letter[byte] = np.arange(len(byte))
    leads = (data & 0xC0) != 0x80
    may_begin, may_end = np.zeros(len(data), bool), np.zeros(len(data), bool)
    may_begin[leads] = begins[first:last]
    may_end[np.append(leads[1:], True)] = ends[first:last]
    whole = np.array([0]), np.array([len(data)]), np.array([0])
    automaton = build_run_automata(letter[data], *whole, len(byte), may_begin, may_end)
    runs = PageRuns.of(automaton, byte, most)
    if quoted is None or (part.start, part.end) != (0, len(part.document.text)):
        return runs
    once = standing_once(text)[first:last] - first
    quotes = long_quotes(text[first:last], once, automaton, byte, may_begin, may_end, quoted)
    if quotes is None:
        return runs
    return PageRuns(quotes.edges, quotes.ends, quotes.longest, runs.most, quotes)


def longest_run(text: str, most: int) -> int:
    """The maximum length of a run for which the text found has at most `most` characters.

    A quote is found without white space, ignoring case, at its first occurrence, which may have
    more white space and other letters than where it was taken from.

    Args:
      text: the page's text.
      most: maximum number of characters that may be found.

    Returns:
      The length in characters.
    """
    if len(text) <= most:
        return most
    folded = text.casefold()
    origin = origins(text, folded)
    place = origin[~np.fromiter(map(str.isspace, folded), bool, len(folded))]
    # For each beginning of the text, how many more characters it case-folds to than it has.
    more = np.append(0, np.cumsum(np.bincount(origin, minlength=len(text)) - 1))
    fits, fails = 0, min(len(place), most) + 1
    while fails - fits > 1:
        count = (fits + fails) // 2
        # A run of this length has at most so many characters that are compared.
        compared = min(count + int((more[count:] - more[:-count]).max()), len(place))
        found = place[compared - 1 :] - place[: len(place) - compared + 1]
        if int(found.max()) + 1 <= most:
            fits = count
        else:
            fails = count
    return fits

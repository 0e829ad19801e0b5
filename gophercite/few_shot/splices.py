"""Quotes that leave words out, marked by `[...]`, and the run of the page that they are from.

A base model may write them (table 14) in more ways than ` [...] `, the only one that constrained
sampling uses (`evidence.OMISSION`). Leaving words out can change what the rest means, so such
quotes are never training data as they are: the words are put back.
"""

import re

from gophercite.evidence import fold_case

_OMISSION = re.compile(r"\s*\[(?:\.\.\.|…)\]\s*")


def parts(quote: str) -> list[str]:
    """Returns the parts of a quote between its omissions; a single part if it has none."""
    return [part for part in _OMISSION.split(quote) if part]


def restore(quote: str, text: str) -> tuple[int, int] | None:
    """Returns the shortest run of a text that contains a quote's parts from first to last.

    The parts must be verbatim in the text, except for the case of ASCII letters, and in order.

    Args:
      quote: with or without omissions.
      text: the page's text.

    Returns:
      Start and end of the run; None if the parts do not occur in this way.
    """
    sought = [fold_case(part) for part in parts(quote)]
    folded = fold_case(text)
    best: tuple[int, int] | None = None
    start = folded.find(sought[0]) if sought else -1
    while start >= 0:
        end = start + len(sought[0])
        for part in sought[1:]:
            place = folded.find(part, end)
            if place < 0:
                return best  # it does not occur after a later start either
            end = place + len(part)
        if best is None or end - start < best[1] - best[0]:
            best = start, end
        if len(sought) == 1:
            break
        start = folded.find(sought[0], start + 1)
    return best

"""Quotes that leave words out, marked by `[...]`, and the run of the page that they are from.

A base model may write them (table 14), in more ways than ` [...] `, the one that constrained
sampling knows (`evidence.OMISSION`). What is left out can change what the rest means, so nothing
is trained on them as they are: the words are put back.
"""

import re

from gophercite.evidence import fold_case

_OMISSION = re.compile(r"\s*\[(?:\.\.\.|…)\]\s*")


def parts(quote: str) -> list[str]:
    """Returns the parts of a quote between its omissions; one part where it has none."""
    return [part for part in _OMISSION.split(quote) if part]


def restore(quote: str, text: str) -> tuple[int, int] | None:
    """Returns the shortest run of a text that begins, goes on and ends with a quote's parts.

    The parts have to be verbatim in the text, but for the case of ASCII letters, and in its order.

    Args:
      quote: with or without omissions.
      text: of the page.

    Returns:
      Start and end of the run; None where the parts do not stand there so.
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
                return best  # nor is it there behind a later start
            end = place + len(part)
        if best is None or end - start < best[1] - best[0]:
            best = start, end
        if len(sought) == 1:
            break
        start = folded.find(sought[0], start + 1)
    return best

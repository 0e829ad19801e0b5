"""Titles for passages whose source has none of their own."""

import itertools
import re
from collections.abc import Collection, Sequence

from gophercite.evidence import holds_mark

_FEWEST_WORDS = 4
_MOST_WORDS = 12
_TRAILING = ",.;:!?-–(\"'“ "


def says_nothing(titles: Collection[str], passages: int) -> bool:
    """Returns whether a source's titles tell its passages apart no better than a number would.

    That is so when several passages stand under titles that are all equal but for digits, as
    "Amazon_Reviews_2030" and "Amazon_Reviews_55" are.
    """
    return passages > 1 and len({re.sub(r"\d+", "", title) for title in titles}) == 1


def mint_titles(texts: Sequence[str]) -> list[str]:
    """Returns a title for each text: its first words, as many as make it unlike all others.

    Texts that begin alike for a dozen words get a number behind the title.
    """
    taken: set[str] = set()
    titles = []
    for text in texts:
        words = _speakable(text).split()[:_MOST_WORDS]
        lengths = range(min(_FEWEST_WORDS, len(words)), len(words) + 1)
        candidates = [
            " ".join(words[:length]).rstrip(_TRAILING) or "Untitled" for length in lengths
        ]
        numbered = (f"{candidates[-1]} ({number})" for number in itertools.count(2))
        title = next(c for c in itertools.chain(candidates, numbered) if c not in taken)
        taken.add(title)
        titles.append(title)
    return titles


def readable(title: str) -> str:
    """Returns a source's title as people write it: spaces for underscores, no reserved mark."""
    return _speakable(title.replace("_", " "))


def _speakable(text: str) -> str:
    return " ".join(word for word in text.split() if not holds_mark(word))

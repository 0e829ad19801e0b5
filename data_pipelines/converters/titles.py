"""Titles for passages whose source has none."""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from gophercite.evidence import holds_mark

_MOST_WORDS = 12
_USUAL_WORDS = 7
_TRAILING = ",.;:!?-–(\"'“ "


def says_nothing(titles: Collection[str], passages: int) -> bool:
    """Whether a source's titles say no more about its passages than numbers would.

    This is the case if several passages have titles that are all equal except for digits, such as
    "Amazon_Reviews_2030" and "Amazon_Reviews_55".
    """
    return passages > 1 and len({re.sub(r"\d+", "", title) for title in titles}) == 1


def mint_titles(texts: Sequence[str]) -> list[str]:
    """Returns a title for each text: its first sentence if that is short, or its first words.

    If two texts begin alike, the later one gets a longer title, or as a last resort a number.
    """
    taken: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}  # numbers still to be tried, by the title before them
    titles = []
    for text in texts:
        words = _speakable(text).split()[:_MOST_WORDS]
        sentence = next((n for n, word in enumerate(words, 1) if word[-1] in ".!?"), _MOST_WORDS)
        shortest = sentence if 3 <= sentence < len(words) else min(_USUAL_WORDS, len(words))
        lengths = range(shortest, len(words) + 1)
        starts = [" ".join(words[:length]).rstrip(_TRAILING) for length in lengths]
        candidates = [start or "Untitled" for start in starts]
        longest = candidates[-1]
        free = numbers.setdefault(longest, itertools.count(2))
        numbered = (f"{longest} ({number})" for number in free)
        title = next(c for c in itertools.chain(candidates, numbered) if c not in taken)
        taken.add(title)
        titles.append(title)
    return titles


def readable(title: str) -> str:
    """Returns a source's title as people write it: spaces for underscores, no reserved mark.

    If nothing is left of it, returns "Untitled", because a page needs a title.
    """
    return _speakable(title.replace("_", " ")) or "Untitled"


def _speakable(text: str) -> str:
    return " ".join(word for word in text.split() if not holds_mark(word))

"""Finding a text in a page as `Find in page` and `Quote` do (WebGPT, appendix A).

Both ignore case. Finding takes any white space, line ends too, for one blank; quoting leaves white
space aside altogether. What is found is a span of the page's own text.
"""

import bisect
import functools
import itertools
import re

_WORD = re.compile(r"\S+")


class Matcher:
    """A text in which others are sought, folded once.

    Args:
      text: of a page, its links stripped.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, wanted: str, start: int) -> tuple[int, int] | None:
        """Returns the first place of a text at or after `start`, before which nothing is sought."""
        return self._spaced.find(" ".join(wanted.split()), start)

    def quote(self, wanted: str, start: int) -> tuple[int, int] | None:
        """Returns the first place of a text at or after `start`, white space left aside."""
        return self._packed.find("".join(wanted.split()), start)

    @functools.cached_property
    def _spaced(self) -> "_Folded":
        return _Folded(self._text, " ")

    @functools.cached_property
    def _packed(self) -> "_Folded":
        return _Folded(self._text, "")


class _Folded:
    """A text in one case, with its runs of white space replaced, that remembers where it stood."""

    def __init__(self, text: str, blank: str) -> None:
        words, self._starts = [], []
        for match in _WORD.finditer(text):
            words.append(match.group())
            self._starts.append(match.start())
        folded = [word.casefold() for word in words]
        # Where each word begins in the folded text.
        lengths = (len(word) + len(blank) for word in folded)
        self._places = list(itertools.accumulate(lengths, initial=0))
        self._words = words
        self._folded = blank.join(folded)

    def find(self, wanted: str, start: int) -> tuple[int, int] | None:
        wanted = wanted.casefold()
        if not wanted:
            return None
        place = self._folded.find(wanted, self._folded_place(start))
        if place < 0:
            return None
        first, _ = self._original(place)
        _, end = self._original(place + len(wanted) - 1)
        return first, end

    def _folded_place(self, place: int) -> int:
        """Where in the folded text the character at `place`, or the next that is none, begins."""
        number = bisect.bisect_right(self._starts, place) - 1
        if number < 0:
            return 0
        word = self._words[number]
        within = place - self._starts[number]
        if within >= len(word):
            return self._places[number + 1]
        return self._places[number] + len(word[:within].casefold())

    def _original(self, place: int) -> tuple[int, int]:
        """The span of the character that the folded text's character at `place` comes from."""
        number = bisect.bisect_right(self._places, place, hi=len(self._words)) - 1
        word, start = self._words[number], self._starts[number]
        within = place - self._places[number]
        if len(word.casefold()) == len(word):
            return start + within, start + within + 1
        # Some character folds to several, as ß to ss; a word may be long, and is walked only here.
        for offset, character in enumerate(word):
            within -= len(character.casefold())
            if within < 0:
                return start + offset, start + offset + 1
        return start + len(word), start + len(word)  # the blank behind it

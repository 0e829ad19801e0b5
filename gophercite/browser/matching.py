"""Finds a text in a page as `Find in page` and `Quote` do (WebGPT, appendix A).

Both ignore case. Finding treats any white space, including line ends, as one blank; quoting ignores
white space completely. The result is a span of the page's own text.
"""

import functools

import numpy as np
from numpy.typing import NDArray

# White space as `str.split` defines it: all of Unicode's, and the separators of ASCII.
_SPACES = np.array(
    [
        *(*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0),
        *(0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
    ],
    np.uint32,
)


class Matcher:
    """A text to search in, case-folded only once.

    Args:
      text: the page's text without link marks.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, wanted: str, start: int) -> tuple[int, int] | None:
        """Returns the first occurrence of a text at or after `start`."""
        return self._spaced.find(" ".join(wanted.split()), start)

    def quote(self, wanted: str, start: int) -> tuple[int, int] | None:
        """Returns the first occurrence of a text at or after `start`, ignoring white space."""
        return self._packed.find("".join(wanted.split()), start)

    @functools.cached_property
    def _spaced(self) -> "_Folded":
        return _Folded(self._text, blank=True)

    @functools.cached_property
    def _packed(self) -> "_Folded":
        return _Folded(self._text, blank=False)


class _Folded:
    """A case-folded text, its white space reduced to single blanks or none, and its offsets."""

    def __init__(self, text: str, *, blank: bool) -> None:
        # The folded text maps back character by character: folding ignores neighbours.
        folded = text.casefold()
        self._text = (" " if blank else "").join(folded.split())
        codes = np.frombuffer(folded.encode("utf-32-le", errors="surrogatepass"), np.uint32)
        kept = ~np.isin(codes, _SPACES)
        if blank:
            kept |= _blanks_between(kept)
        # For each character, the place of the one that it comes from.
        self._origins = origins(text, folded)[kept]

    def find(self, wanted: str, start: int) -> tuple[int, int] | None:
        wanted = wanted.casefold()
        if not wanted:
            return None
        begin = int(np.searchsorted(self._origins, start))
        place = self._text.find(wanted, begin)
        if place < 0:
            return None
        return int(self._origins[place]), int(self._origins[place + len(wanted) - 1]) + 1


def _blanks_between(is_word: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the first white space of each run between words."""
    blanks = np.zeros_like(is_word)
    blanks[1:] = ~is_word[1:] & is_word[:-1]
    words = np.flatnonzero(is_word)
    blanks[words[-1] if len(words) else 0 :] = False
    return blanks


def origins(text: str, folded: str) -> NDArray[np.int32]:
    """For each character of a case-folded text, the place of its original character.

    Args:
      text: the text.
      folded: `text.casefold()`.
    """
    places = np.arange(len(text), dtype=np.int32)
    if len(folded) == len(text):  # no character folds to nothing, so none folds to several
        return places
    lengths = np.ones(len(text), np.int32)
    codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)
    for character in set(text):
        if len(character.casefold()) > 1:
            lengths[codes == ord(character)] = len(character.casefold())
    return np.repeat(places, lengths)

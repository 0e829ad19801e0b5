"""The tokens of a text's words: most words of a text are frequent, so their tokens are held.

Texts are cut before spaces that follow anything but white space. Wherever `Vocabulary.splits_words`
holds, the tokens of such a part are the same in every text.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

# A word with the white space before it; a text may end with white space only.
WORD = re.compile(r"[ \n]*+[^ \n]++|[ \n]++")
# The same where tokenizers join line ends and tabs to what is before: up to a space that follows
# anything but white space.
UP_TO_A_SPACE = re.compile(r"\s*+(?:\S++(?:[^\S ]\s*+)?+)++|\s++")

_HELD_WORDS = 1 << 17  # maximum number of words whose tokens are held
_LONGEST_HELD = 160  # characters; addresses of pages are often longer than 64

Ids = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Words:
    """Consecutive words, each with the space before it.

    Attributes:
      parts: the words without the space; joined by spaces, they are the text after its first space.
      ids: the tokens of each word, including the space.
    """

    parts: Sequence[str]
    ids: Sequence[Ids]

    def ends(self, start: int) -> list[int]:
        """Returns where each word ends in a text that has the first word's space at `start`."""
        ends = itertools.accumulate(map(len, self.parts))
        return [end + spaces for spaces, end in enumerate(ends, start + 1)]


class WordTokens:
    """Tokenises word by word.

    Args:
      pattern: matches a word with the white space before it, so that matches cover a text.
      encode: gives the tokens of one word, which are the same in every text.
    """

    def __init__(self, pattern: re.Pattern[str], encode: Callable[[str], list[int]]) -> None:
        self._pattern = pattern
        self._encode = encode
        self._alone = _Held(self._of_one)
        self._spaced = _Held(self._after_a_space)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text."""
        first, space, rest = text.partition(" ")
        if space and not first[-1:].isspace():
            return [*self._of(first), *itertools.chain.from_iterable(self.words(rest).ids)]
        return list(self._of(text))

    def words(self, rest: str) -> Words:
        """Returns the words of a space followed by `rest`."""
        parts = rest.split(" ")
        try:
            return Words(parts, list(map(self._spaced.__getitem__, parts)))
        except _MoreSpaceError:
            parts = [word[1:] for word in UP_TO_A_SPACE.findall(f" {rest}")]
            return Words(parts, [self._of_any(part) for part in parts])

    def _of_any(self, part: str) -> Ids:
        """Returns the tokens of a space and `part`, whatever that is."""
        try:
            return self._spaced[part]
        except _MoreSpaceError:
            return tuple(self._of(f" {part}"))

    def _after_a_space(self, part: str) -> Ids:
        """Returns the tokens of a space and `part`, if a word may begin after them."""
        if not part or part[-1].isspace():
            raise _MoreSpaceError
        return tuple(self._of(f" {part}"))

    def _of(self, text: str) -> Iterator[int]:
        """Yields the tokens of a text, with its words as the pattern has them."""
        words = self._pattern.findall(text)
        return itertools.chain.from_iterable(map(self._alone.__getitem__, words))

    def _of_one(self, word: str) -> Ids:
        return tuple(self._encode(word))


class _MoreSpaceError(Exception):
    """A space follows white space: the text can't be cut there."""


class _Held(dict[str, Ids]):
    """Tokens of words, found when they are first asked for."""

    def __init__(self, find: Callable[[str], Ids]) -> None:
        self._find = find

    def __missing__(self, word: str) -> Ids:
        ids = self._find(word)
        if len(word) <= _LONGEST_HELD:
            if len(self) >= _HELD_WORDS:
                self.clear()
            self[word] = ids
        return ids

"""Where words begin and end: Unicode's default rules (UAX #29, section 4).

`regex` knows each character's Word_Break property; the pattern below holds the rules over them. Two
other libraries that follow the standard closely were tried: `uniseg` (MIT) takes 21 s per megabyte,
where this takes 0.3; `unicode-segmentation-rs` (Apache-2.0) takes 0.1, but joins an emoji to the
word before it if only a full stop and a joiner lie between. ICU's breakers use dictionaries for
Thai, Khmer and Han, so that words change with ICU's releases. (`regex`'s own `\\b` has its own rule
for apostrophes before vowels.)
"""

import functools
import string

import numpy as np
import regex
from jaxtyping import Bool, Integer

# Characters that belong to the character before them (WB4).
_WITH_IT = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"

_HEBREW = r"\p{WB=Hebrew_Letter}"
_AFTER_HEBREW = rf"(?<={_HEBREW}{_WITH_IT[:-1]})"
_LETTER = rf"[\p{{WB=ALetter}}{_HEBREW}]"
_DIGIT = r"\p{WB=Numeric}"
_IN_WORDS = r"[\p{WB=MidLetter}\p{WB=MidNumLet}']"
_IN_NUMBERS = r"[\p{WB=MidNum}\p{WB=MidNumLet}']"
_LETTERS = (  # WB5 to 7, and 7b, 7c
    rf"{_LETTER}++{_WITH_IT}"
    rf"(?:{_AFTER_HEBREW}\"{_WITH_IT}(?={_HEBREW})|{_IN_WORDS}{_WITH_IT}(?={_LETTER}))?+"
)
_DIGITS = rf"{_DIGIT}++{_WITH_IT}(?:{_IN_NUMBERS}{_WITH_IT}(?={_DIGIT}))?+"  # WB8, 11, 12
_PART = rf"(?:(?:{_LETTERS}|{_DIGITS})++|(?:\p{{WB=Katakana}}{_WITH_IT})++)"  # WB9, 10, 13
_TIES = rf"(?:\p{{WB=ExtendNumLet}}{_WITH_IT})++"  # WB13a, 13b
_WORD = rf"(?:{_PART}(?:{_TIES}{_PART}?+)*+|(?:{_TIES}{_PART}?+)++)(?:{_AFTER_HEBREW}'{_WITH_IT})?+"
# An emoji that follows a joiner (WB3c); some are letters, too, and continue as those do.
_JOINED = rf"(?:(?<=\u200d)(?=\p{{Extended_Pictographic}})(?:{_WORD}|.{_WITH_IT}))*+"
_FLAG = rf"\p{{WB=Regional_Indicator}}{_WITH_IT}\p{{WB=Regional_Indicator}}"  # WB15, 16

# What the rules distinguish in ASCII, as bits of each character's kind.
_LETTER_KIND, _DIGIT_KIND, _TIE_KIND, _BETWEEN_LETTERS, _BETWEEN_DIGITS, _SPACE_KIND = (
    np.uint8(1 << bit) for bit in range(6)
)
_KINDS = {
    _LETTER_KIND: string.ascii_letters,
    _DIGIT_KIND: string.digits,
    _TIE_KIND: "_",
    _BETWEEN_LETTERS: ":.'",
    _BETWEEN_DIGITS: ".',;",
    _SPACE_KIND: " ",
}
_OTHER = 128  # any character beyond ASCII
_KIND = np.zeros(_OTHER + 1, np.uint8)
for _kind, _characters in _KINDS.items():
    _KIND[[ord(character) for character in _characters]] |= _kind


def word_boundaries(text: str) -> Bool[np.ndarray, " characters_and_one"]:
    """Tells between which characters of a text Unicode has a word boundary.

    There is one on each side of a word, of a space and of a punctuation mark; none within "can't",
    "3.14", "e.g", a character with its accents, or an emoji of several characters. Scripts that are
    written without spaces (Han, Hiragana, Thai, Lao, Khmer, Myanmar) have one between any two
    characters; a run of Katakana is one word.

    Args:
      text: any text.

    Returns:
      For each offset, including the text's end, whether there is a boundary; a text that is not
      empty has one at its beginning and end.
    """
    if not text:
        return np.zeros(1, bool)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    if text.isascii():
        return _by_ascii_rules(codes)
    found = _by_ascii_rules(np.minimum(codes, _OTHER))
    for begin, end in _islands(codes):
        found[begin:end] = False
        place = begin
        for segment in _segment().findall(text, begin, end):
            found[place] = True
            place += len(segment)
    return found


def _by_ascii_rules(
    codes: Integer[np.ndarray, " characters"],
) -> Bool[np.ndarray, " characters_and_one"]:
    """The boundaries of a text all of whose other characters stand apart from their neighbours."""
    kind = _KIND[codes]
    found = np.ones(len(codes) + 1, bool)
    in_word, space = kind & (_LETTER_KIND | _DIGIT_KIND | _TIE_KIND) != 0, kind == _SPACE_KIND
    within = (in_word[:-1] & in_word[1:]) | (space[:-1] & space[1:])
    within |= (codes[:-1] == ord("\r")) & (codes[1:] == ord("\n"))
    for beside, between in ((_LETTER_KIND, _BETWEEN_LETTERS), (_DIGIT_KIND, _BETWEEN_DIGITS)):
        held = kind & beside != 0
        joined = held[:-2] & (kind[1:-1] & between != 0) & held[2:]
        within[:-1] |= joined
        within[1:] |= joined
    found[1:-1] = ~within
    return found


def _islands(codes: Integer[np.ndarray, " characters"]) -> list[tuple[int, int]]:
    """The parts of a text that need all rules.

    They hold all characters beyond ASCII. No rule looks across a part's ends: they are at ends of
    lines, or between a space and a letter or digit of ASCII.
    """
    kind = _KIND[np.minimum(codes, _OTHER)]
    after_space = (kind[:-1] == _SPACE_KIND) & (kind[1:] & (_LETTER_KIND | _DIGIT_KIND) != 0)
    apart = np.flatnonzero(after_space | (codes[:-1] == ord("\n"))) + 1
    ends = np.concatenate([[0], apart, [len(codes)]])
    parts = np.unique(np.searchsorted(ends, np.flatnonzero(codes >= _OTHER), side="right"))
    return [(int(ends[part - 1]), int(ends[part])) for part in parts]


@functools.cache
def _segment() -> regex.Pattern[str]:
    """What stands between two boundaries; compiled for the first text that isn't ASCII alone."""
    return regex.compile(
        r"[A-Za-z]++(?=[ \n])|[ ](?=[A-Za-z0-9])"  # the most common segments, only for speed
        rf"|{_WORD}{_JOINED}"
        r"|\r\n|[\r\n\p{WB=Newline}]"  # WB3 to 3b
        rf"|(?:\p{{WB=WSegSpace}}++|{_FLAG}|.){_WITH_IT}{_JOINED}",  # WB3d, 999
        regex.V1 | regex.DOTALL,
    )

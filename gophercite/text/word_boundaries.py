"""Where words begin and end: Unicode's default rules (UAX #29, section 4).

`regex` knows each character's Word_Break property; the pattern below holds the rules over them. Two
other libraries that follow the standard closely were tried: `uniseg` (MIT) takes 21 s per megabyte,
where this takes 0.3; `unicode-segmentation-rs` (Apache-2.0) takes 0.1, but joins an emoji to the
word before it if only a full stop and a joiner lie between. ICU's breakers use dictionaries for
Thai, Khmer and Han, so that words change with ICU's releases. (`regex`'s own `\\b` has its own rule
for apostrophes before vowels.)
"""

import re

import numpy as np
import regex
from jaxtyping import Bool

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
_SEGMENT = regex.compile(
    r"[A-Za-z]++(?=[ \n])|[ ](?=[A-Za-z0-9])"  # the most common segments, only for speed
    rf"|{_WORD}{_JOINED}"
    r"|\r\n|[\r\n\p{WB=Newline}]"  # WB3 to 3b
    rf"|(?:\p{{WB=WSegSpace}}++|{_FLAG}|.){_WITH_IT}{_JOINED}",  # WB3d, 999
    regex.V1 | regex.DOTALL,
)
# The same rules for ASCII text, in a third of the time.
_ASCII_SEGMENT = re.compile(
    r"(?:[A-Za-z]+(?:[:.'](?=[A-Za-z]))?|[0-9]+(?:[.',;](?=[0-9]))?|_+)+|\r\n| +|.", re.DOTALL
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


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
    found = np.zeros(len(text) + 1, bool)
    if text:
        found[0] = True
    place = 0
    for line in _LINE.findall(text):  # there always is a boundary after a line end
        segments = (_ASCII_SEGMENT if line.isascii() else _SEGMENT).findall(line)
        found[place + np.cumsum(np.fromiter(map(len, segments), np.int64, len(segments)))] = True
        place += len(line)
    return found

"""UAX #29's word boundaries once more: rule by rule, as its section 4.1 writes them down.

Nothing is shared with `gophercite.text.word_boundaries` but the table of characters' properties.
"""

import functools

import regex

_PROPERTIES = (
    "CR", "LF", "Newline", "Extend", "ZWJ", "Regional_Indicator", "Format", "Katakana",
    "Hebrew_Letter", "ALetter", "Single_Quote", "Double_Quote", "MidNumLet", "MidLetter", "MidNum",
    "Numeric", "ExtendNumLet", "WSegSpace",
)  # fmt: skip
_OF_PROPERTY = {name: regex.compile(rf"\p{{WB={name}}}") for name in _PROPERTIES}
_PICTOGRAPHIC = regex.compile(r"\p{Extended_Pictographic}")

_LINE_ENDS = {"CR", "LF", "Newline"}
_IGNORED = {"Extend", "Format", "ZWJ"}
_LETTERS = {"ALetter", "Hebrew_Letter"}
_MID_LETTERS = {"MidLetter", "MidNumLet", "Single_Quote"}
_MID_NUMBERS = {"MidNum", "MidNumLet", "Single_Quote"}
_TIED = {*_LETTERS, "Numeric", "Katakana", "ExtendNumLet"}


@functools.lru_cache(1 << 16)
def word_break(character: str) -> str:
    """The Word_Break property."""
    return next((n for n, pattern in _OF_PROPERTY.items() if pattern.match(character)), "Other")


def boundaries(text: str) -> list[int]:
    """Offsets with a boundary, in order."""
    kinds = [word_break(character) for character in text]
    # WB4: each character that is not ignored, and what is ignored after it goes with it.
    kept = [
        i for i, kind in enumerate(kinds)
        if kind not in _IGNORED or i == 0 or kinds[i - 1] in _LINE_ENDS
    ]  # fmt: skip
    found = [0] if text else []
    for place, i in enumerate(kept[1:], 1):
        last, here = kinds[i - 1], kinds[i]
        if last == "CR" and here == "LF":  # WB3
            continue
        if last in _LINE_ENDS or here in _LINE_ENDS:  # WB3a, 3b
            found.append(i)
            continue
        if last == "ZWJ" and _PICTOGRAPHIC.match(text[i]):  # WB3c
            continue
        if last == here == "WSegSpace":  # WB3d
            continue
        around = [
            kinds[kept[at]] if 0 <= at < len(kept) else None for at in range(place - 2, place + 2)
        ]
        if not _joined(*around) and not _half_of_a_flag(kinds, kept, place):
            found.append(i)
    return [*found, len(text)] if text else []


def _joined(before: str | None, left: str, right: str, after: str | None) -> bool:
    """Whether rules 5 to 13b forbid a boundary between `left` and `right`."""
    return any(
        (
            left in _LETTERS and right in _LETTERS,  # WB5
            left in _LETTERS and right in _MID_LETTERS and after in _LETTERS,  # WB6
            before in _LETTERS and left in _MID_LETTERS and right in _LETTERS,  # WB7
            left == "Hebrew_Letter" and right == "Single_Quote",  # WB7a
            (left, right, after) == ("Hebrew_Letter", "Double_Quote", "Hebrew_Letter"),  # WB7b
            (before, left, right) == ("Hebrew_Letter", "Double_Quote", "Hebrew_Letter"),  # WB7c
            left == right == "Numeric",  # WB8
            left in _LETTERS and right == "Numeric",  # WB9
            left == "Numeric" and right in _LETTERS,  # WB10
            before == "Numeric" and left in _MID_NUMBERS and right == "Numeric",  # WB11
            left == "Numeric" and right in _MID_NUMBERS and after == "Numeric",  # WB12
            left == right == "Katakana",  # WB13
            left in _TIED and right == "ExtendNumLet",  # WB13a
            left == "ExtendNumLet" and right in _TIED,  # WB13b
        )
    )


def _half_of_a_flag(kinds: list[str], kept: list[int], place: int) -> bool:
    """WB15, 16: whether an odd number of regional indicators stands before one."""
    if kinds[kept[place]] != "Regional_Indicator":
        return False
    count = 0
    while place > count and kinds[kept[place - 1 - count]] == "Regional_Indicator":
        count += 1
    return count % 2 == 1

"""The automaton of the free texts in a browser's actions and answers, byte by byte.

There are two kinds. A line is a text to search for: any characters except line ends. A cited text
is an answer: any characters, but `[` only where a citation begins, which another automaton reads.
Both must have something that is not blank. Almost every token may follow almost everywhere, so the
tables have complete rows for their states (`joined_graphs.FreeTexts`).
"""

import dataclasses
import functools
from typing import Literal

import numpy as np

from gophercite.quoting.claims import CLOSED, DEAD, ClaimAutomaton
from gophercite.quoting.utf8 import WHITE_SPACE, goes_on, is_whole, representative

END = 0xFF  # represents the end of a text: no character contains this byte
CITATION = ord("[")

LINE_ENDS = tuple(character.encode() for character in "\n\r\x85\u2028\u2029")
# What `documents.normalise_text` drops: a text of only these is empty.
DROPPED = tuple(character.encode() for character in "\u00ad\u200b\u2060\ufeff")
BLANK = (*WHITE_SPACE, *DROPPED)

Kind = Literal["space", "line", "cited"]


@dataclasses.dataclass(frozen=True)
class _State:
    """What is known of a text so far.

    Attributes:
      kind: kind of the text; `space` before the blank that precedes a line.
      character: first bytes of an unfinished character; equivalent beginnings share one state.
      content: whether the text has anything that is not blank.
    """

    kind: Kind
    character: bytes = b""
    content: bool = False


@dataclasses.dataclass(frozen=True)
class FreeTextAutomaton:
    """The states as a table.

    Attributes:
      table: `CLOSED` where a byte is not part of the text: `END`, or the `[` of a citation.
      space: the state before the blank that precedes a line.
      cited: the state where a cited text begins.
      goes_on: the state where a cited text continues after a citation.
    """

    table: ClaimAutomaton
    space: int
    cited: int
    goes_on: int


@functools.cache
def free_text_automaton() -> FreeTextAutomaton:
    """Returns the automaton, which is built once."""
    cited, goes_on_cited = _State("cited"), _State("cited", content=True)
    states = [_State("space"), cited, goes_on_cited]
    numbers = {state: place for place, state in enumerate(states)}
    rows = []
    for state in states:  # grows while it is walked
        row = np.full(256, DEAD, np.int16)
        for byte in range(256):
            after = _step(state, byte)
            if isinstance(after, int):
                row[byte] = after
            else:
                if after not in numbers:
                    numbers[after] = len(states)
                    states.append(after)
                row[byte] = numbers[after]
        rows.append(row)
    table = ClaimAutomaton(
        np.stack(rows),
        np.zeros(len(states), np.int16),
        np.array([state.content for state in states]),
    )
    return FreeTextAutomaton(table, 0, numbers[cited], numbers[goes_on_cited])


def _step(state: _State, byte: int) -> "_State | int":
    if state.kind == "space":
        return _State("line") if byte == ord(" ") else DEAD
    if byte == END:
        return CLOSED if state.content and not state.character else DEAD
    if not goes_on(state.character, byte):
        return DEAD
    character = state.character + bytes([byte])
    if is_whole(character):
        if state.kind == "line" and character in LINE_ENDS:
            return DEAD
        if state.kind == "cited" and byte == CITATION and not state.character:
            return CLOSED
        return _State(state.kind, b"", state.content or character not in BLANK)
    special = (*(() if state.content else BLANK), *(LINE_ENDS if state.kind == "line" else ()))
    if any(each.startswith(character) for each in special):
        return _State(state.kind, character, state.content)
    # None of these can follow any more: only the possible continuations matter.
    return _State(state.kind, representative(character), True)

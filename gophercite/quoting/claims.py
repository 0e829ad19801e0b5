"""The automaton of claims: any text without reserved marks, up to `>%(`.

It reads bytes, because tokens may hold half a character or half a mark. It is the same for all
prompts. A state remembers three things: how much of a mark the text ends with, which bytes may
follow inside the current character (only valid UTF-8), and whether the claim has anything but white
space yet. A `>` or `>%` at the end of the text is not part of the claim until the next character
shows that it does not begin `>%(`.
"""

import dataclasses
import functools

import numpy as np
from jaxtyping import Int

from gophercite.evidence import CLAIM_MARK, END_MARK, MARKS, QUOTE_MARK, TITLE_MARK
from gophercite.quoting.utf8 import (
    WHITE_SPACE,
    goes_on,
    is_whole,
    may_be_white_space,
    representative,
)

DEAD = -1
CLOSED = -2  # the claim's end: `>%(` has been read

_REFUSED = tuple(mark.encode() for mark in (CLAIM_MARK, QUOTE_MARK, END_MARK))
_CLOSING = TITLE_MARK.encode()
_PREFIXES = sorted(
    {mark[:n].encode() for mark in MARKS for n in range(1, len(mark))}, key=len, reverse=True
)


@dataclasses.dataclass(frozen=True)
class _State:
    """The automaton's state after some text.

    Attributes:
      mark: the longest suffix of the text that is a prefix of a mark.
      character: the first bytes of an unfinished character; prefixes with the same continuations
        share one representative.
      content: whether the claim has anything but white space.
    """

    mark: bytes = b""
    character: bytes = b""
    content: bool = False


@dataclasses.dataclass(frozen=True)
class ClaimAutomaton:
    """The states as a table.

    Attributes:
      next: next state by state and byte; `DEAD` if no legal claim continues like this, `CLOSED`
        after `>%(`. State 0 is the start.
      pending: number of characters of `>%(` that the text ends with; they are not part of the claim
        yet.
      content: whether the claim has anything but white space.
    """

    next: Int[np.ndarray, "states 256"]
    pending: Int[np.ndarray, " states"]
    content: np.ndarray


@functools.cache
def claim_automaton() -> ClaimAutomaton:
    """Returns the automaton, which is built once and cached."""
    numbers = {_State(): 0}
    states, rows = [_State()], []
    for state in states:  # the list grows during the loop
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
    pending = [len(state.mark) if _CLOSING.startswith(state.mark) else 0 for state in states]
    content = [state.content for state in states]
    return ClaimAutomaton(np.stack(rows), np.array(pending, np.int16), np.array(content))


def _step(state: _State, byte: int) -> "_State | int":
    if state.character or byte >= 0x80:
        return _step_inside_character(state, byte)
    text = state.mark + bytes([byte])
    if text.endswith(_REFUSED):
        return DEAD
    if text.endswith(_CLOSING):
        return CLOSED if state.content else DEAD
    mark = next((prefix for prefix in _PREFIXES if text.endswith(prefix)), b"")
    return _State(mark, b"", state.content or _has_content(text, mark))


def _has_content(text: bytes, mark: bytes) -> bool:
    """Whether `text` without its pending mark has anything but white space."""
    closing = len(mark) if _CLOSING.startswith(mark) else 0
    return bool(text[: len(text) - closing].decode().strip())


def _step_inside_character(state: _State, byte: int) -> "_State | int":
    character = state.character + bytes([byte])
    if not goes_on(state.character, byte):
        return DEAD
    # The pending characters are part of the claim, because no mark has a non-ASCII character.
    content = state.content or bool(state.mark)
    if is_whole(character):
        return _State(b"", b"", content or character not in WHITE_SPACE)
    if not content and may_be_white_space(character):
        return _State(b"", character, False)
    # No continuation is white space, so only the possible next bytes matter.
    return _State(b"", representative(character), True)

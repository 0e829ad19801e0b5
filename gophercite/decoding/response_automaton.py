"""The parser of `evidence.parse` and `evidence.faults` as an automaton over arbitrary bytes.

It reads an unconstrained sample byte by byte, as `bytes.decode(errors="replace")` would: invalid
UTF-8 becomes U+FFFD. The automaton does not know the documents. Titles and quotes are checked by
the walks of `fault_tracking`, and the automaton says after each byte what these walks must do.
"""

import dataclasses
import enum
import functools

import numpy as np
from jaxtyping import Bool, Int16, Int32

from gophercite.evidence import (
    END_MARK,
    MARKS,
    OMISSION,
    QUOTE_MARK,
    TITLE_MARK,
    Fault,
    is_blank,
)
from gophercite.quoting.utf8 import (
    WHITE_SPACE,
    goes_on,
    is_whole,
    may_be_white_space,
    representative,
)

FAULTS = tuple(Fault)  # a bit set of them has bit i for fault i
MALFORMED = 0  # the state of a text that no continuation can make well-formed


class Action(enum.IntFlag):
    """What a byte means for the walks, in addition to changing the state."""

    REPLACE = 1  # the character before it was incomplete
    BEGIN = 2  # it begins a character
    STEP = 4  # it is part of the title or quote
    REPLACE_BYTE = 8  # it is not valid UTF-8
    FOLD = 16  # its case is ignored if it is a letter
    OPEN_TITLE = 32  # it ends `>%(`
    OPEN_QUOTE = 64  # it ends `)%[`
    CLOSE_QUOTE = 128  # it ends `]%`
    HOLD = 256  # an omission may begin with it, so the run may have ended before it
    OMIT = 512  # it ends ` [...] `
    FAULT = 1024  # multiplied by the bit set of the faults that are now certain


class _Part(enum.Enum):
    """The part of a response in which a text ends."""

    BEFORE = enum.auto()  # at most white space, and "%"
    CLAIM = enum.auto()
    TITLE = enum.auto()
    QUOTE = enum.auto()
    RUN = enum.auto()  # a quote, or a run of one, where quotes may leave words out
    ENDED = enum.auto()  # right after `]%`
    BETWEEN = enum.auto()  # white space after `]%`, and "%"
    REST = enum.auto()  # ignored text


_CLOSING = {
    _Part.CLAIM: TITLE_MARK,
    _Part.TITLE: QUOTE_MARK,
    _Part.QUOTE: END_MARK,
    _Part.RUN: END_MARK,
}


def _beginnings(*marks: str) -> list[bytes]:
    """The proper prefixes of the marks, longest first."""
    prefixes = {mark[:n].encode() for mark in marks for n in range(1, len(mark))}
    return sorted(prefixes, key=len, reverse=True)


_PREFIXES = dict.fromkeys(_Part, _beginnings(*MARKS)) | {_Part.RUN: _beginnings(*MARKS, OMISSION)}
_MARKS = tuple(mark.encode() for mark in MARKS)


@dataclasses.dataclass(frozen=True)
class _State:
    """The parser's state after some text.

    Attributes:
      part: the part in which the text ends.
      mark: the longest suffix of the text that is a prefix of a mark, or of an omission.
      character: the first bytes of an unfinished character; prefixes with the same continuations
        share one representative.
      content: whether the claim, quote or run is non-blank so far.
    """

    part: _Part
    mark: bytes = b""
    character: bytes = b""
    content: bool = False


@dataclasses.dataclass(frozen=True)
class ResponseAutomaton:
    """The states as tables.

    Attributes:
      next: next state, by state and byte.
      action: `Action`, by state and byte.
      well_formed: whether a text may end in each state. `MALFORMED` has no way out.
      start: the state of the empty text.
    """

    next: Int16[np.ndarray, "states 256"]
    action: Int32[np.ndarray, "states 256"]
    well_formed: Bool[np.ndarray, " states"]
    start: int


@functools.cache
def response_automaton(omissions: bool = False) -> ResponseAutomaton:
    """Returns the automaton, which is built once and cached.

    Args:
      omissions: whether quotes may leave words out.
    """
    start = _State(_Part.BEFORE)
    numbers: dict[_State | None, int] = {None: MALFORMED, start: 1}
    states = [start]
    rows, actions = [np.zeros(256, np.int16)], [np.zeros(256, np.int32)]
    for state in states:  # the list grows during the loop
        row, action = np.zeros(256, np.int16), np.zeros(256, np.int32)
        for byte in range(256):
            after, action[byte] = _step(state, byte)
            if after is not None and after.part is _Part.QUOTE and omissions:
                after = dataclasses.replace(after, part=_Part.RUN)
            if after is not None and after not in numbers:
                states.append(after)
                numbers[after] = len(states)
            row[byte] = numbers[after]
        rows.append(row)
        actions.append(action)
    ends = (_Part.ENDED, _Part.BETWEEN, _Part.REST)
    well_formed = np.array([False, *(state.part in ends for state in states)])
    return ResponseAutomaton(np.stack(rows), np.stack(actions), well_formed, numbers[start])


def fault_bits(*faults: Fault) -> int:
    """The bit set of some faults."""
    return sum(1 << FAULTS.index(fault) for fault in faults)


def faults_of(bits: int) -> frozenset[Fault]:
    """The faults in a bit set."""
    return frozenset(fault for i, fault in enumerate(FAULTS) if bits >> i & 1)


_Step = tuple[_State | None, int]


def _step(state: _State, byte: int) -> _Step:
    if state.character:
        if goes_on(state.character, byte):
            return _go_on(state, byte)
        broken = _after_character(dataclasses.replace(state, character=b""), white=False)
        if broken is None:
            return None, 0
        after, action = _step(broken, byte)
        return after, action | Action.REPLACE
    if byte < 0x80:
        return _step_ascii(state, byte)
    if not goes_on(b"", byte):
        action = _walk(state)
        return _after_character(state, white=False), action and action | Action.REPLACE_BYTE
    return _begin(state, byte)


def _walk(state: _State) -> int:
    """The action of the walks where a character begins."""
    return Action.BEGIN if state.part in (_Part.TITLE, _Part.QUOTE, _Part.RUN) else 0


def _steps(state: _State) -> int:
    """The action of the walks at a byte that is part of a title or quote."""
    if state.part in (_Part.QUOTE, _Part.RUN):
        return Action.STEP | Action.FOLD
    return Action.STEP if state.part is _Part.TITLE else 0


def _begin(state: _State, byte: int) -> _Step:
    """Reads the first byte of a non-ASCII character."""
    action = _walk(state) | _steps(state)
    after = _after_character(state, white=True)  # no mark has a non-ASCII character
    if after is None or after.part is _Part.REST:
        return after, action
    character = bytes([byte])
    if not may_be_white_space(character):
        after = _after_character(after, white=False)
    if after is None or not _matters(after):
        return after, action
    if _is_open(after):
        return dataclasses.replace(after, character=character), action
    return dataclasses.replace(after, character=representative(character)), action


def _is_open(state: _State) -> bool:
    """Whether it matters in this state whether the next character is white space."""
    return state.part in (_Part.BEFORE, _Part.ENDED, _Part.BETWEEN) or (
        state.part in (_Part.CLAIM, _Part.QUOTE, _Part.RUN) and not state.content
    )


def _matters(state: _State) -> bool:
    """Whether the bytes of a character matter in this state."""
    return _is_open(state) or state.part in (_Part.TITLE, _Part.QUOTE, _Part.RUN)


def _go_on(state: _State, byte: int) -> _Step:
    """Reads a continuation byte of a character."""
    character, action = state.character + bytes([byte]), _steps(state)
    base = dataclasses.replace(state, character=b"")
    if not _is_open(state):
        kept = b"" if is_whole(character) else representative(character)
        return dataclasses.replace(base, character=kept), action
    if is_whole(character):
        return _after_character(base, white=character in WHITE_SPACE), action
    if may_be_white_space(character):
        return dataclasses.replace(base, character=character), action
    after = _after_character(base, white=False)
    if after is not None and _matters(after):
        after = dataclasses.replace(after, character=representative(character))
    return after, action


def _after_character(state: _State, white: bool) -> _State | None:
    """The state after a character that is not part of a mark."""
    part = state.part
    if part is _Part.BEFORE:
        return state if white and not state.mark else None
    if part in (_Part.ENDED, _Part.BETWEEN):
        if white and not state.mark:
            return _State(_Part.BETWEEN)
        return _State(_Part.REST)
    if part in (_Part.CLAIM, _Part.QUOTE):
        return _State(part, content=state.content or bool(state.mark) or not white)
    if part is _Part.RUN:
        return _State(part, content=state.content or not white)
    return _State(part)


def _step_ascii(state: _State, byte: int) -> _Step:
    part, character = state.part, bytes([byte])
    if part in (_Part.BEFORE, _Part.ENDED, _Part.BETWEEN):
        if character == b"<" and (state.mark or part is _Part.ENDED):
            return _State(_Part.CLAIM), 0
        if character == b"%" and not state.mark:
            return _State(_Part.BETWEEN if part is _Part.ENDED else part, mark=b"%"), 0
        if character in WHITE_SPACE and not state.mark:
            return _after_character(state, white=True), 0
        return (None if part is _Part.BEFORE else _read_on(state, _Part.REST, character)), 0
    text = state.mark + character
    if part is not _Part.REST and text.endswith(_CLOSING[part].encode()):
        return _close(state)
    action = _walk(state) | _steps(state)
    if text.endswith(_MARKS):
        if part not in (_Part.QUOTE, _Part.RUN):
            return None, 0
        return _State(part, content=True), action | Action.FAULT * fault_bits(Fault.RESERVED_SYNTAX)
    if part is _Part.RUN and text.endswith(OMISSION.encode()):
        return _State(part), action | Action.OMIT | _fault_unless(state.content, Fault.EMPTY_QUOTE)
    if part is _Part.RUN and OMISSION.startswith(character.decode()):
        action |= Action.HOLD
    return _read_on(state, part, character), action


def _read_on(state: _State, part: _Part, character: bytes) -> _State:
    text = state.mark + character
    mark = next((prefix for prefix in _PREFIXES[part] if text.endswith(prefix)), b"")
    if part is _Part.RUN:
        blank = is_blank(character.decode(), omissions=True)
        return _State(part, mark, content=state.content or not blank)
    if part not in (_Part.CLAIM, _Part.QUOTE):
        return _State(part, mark)
    # A prefix of the closing mark is not part of the content yet.
    pending = len(mark) if _CLOSING[part].encode().startswith(mark) else 0
    content = bool(text[: len(text) - pending].decode().strip())
    return _State(part, mark, content=state.content or content)


def _close(state: _State) -> _Step:
    """The state after the mark that ends a part."""
    if state.part is _Part.TITLE:
        return _State(_Part.QUOTE), _walk(state) | _steps(state) | Action.OPEN_QUOTE
    claim = state.part is _Part.CLAIM
    after = _State(_Part.TITLE if claim else _Part.ENDED)
    action: int = Action.OPEN_TITLE if claim else Action.CLOSE_QUOTE
    empty = Fault.EMPTY_CLAIM if claim else Fault.EMPTY_QUOTE
    return after, action | _fault_unless(state.content, empty)


def _fault_unless(fine: bool, fault: Fault) -> int:
    return 0 if fine else Action.FAULT * fault_bits(fault)

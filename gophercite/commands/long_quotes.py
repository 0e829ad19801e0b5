"""Quotes by their start and their end, `Quote: <start>━<end>`, as part of a page's grammar.

The environment takes the first occurrence of the start, and the first occurrence of the end after
it. Here a start is a run that occurs only once in the page, so that its place is known however the
page is scrolled; an end is a run that occurs after it, in the same window of the page. Windows
overlap, and are so short that a quote is never too long.

A state of a start stands for runs of several lengths, of which only the longer ones are unique: a
token that continues to `━` requires a minimum number of characters of the run before it. From there
on, a sample's characters are counted from the place where the start ends. Once some of the end has
been read, this count is at most the last place where the end's words occur in the window, if and
only if they occur after the start (`TokenEdges.reach`).
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from gophercite.browser.marks import ELLIPSIS
from gophercite.native import native
from gophercite.quoting.byte_edges import ByteEdges
from gophercite.quoting.run_automaton import RunAutomata, build_run_automata
from gophercite.quoting.suffix_automaton import build_suffix_automata

LONGEST_START = 200  # characters
WINDOW = 2000  # characters; starts lie in the first half
LONGEST_WINDOW = 16_000  # characters of a page that is a single window, if all of it may be quoted
_MARK = tuple(ELLIPSIS.encode())


@dataclasses.dataclass(frozen=True)
class LongQuotes:
    """Nodes after a page's runs, counted from the root of the runs.

    For each run state that may be a start there are two twins, with the same continuations while
    the mark is incomplete, and one node after the mark. Then come the states of ends.

    Attributes:
      edges: bytes from node to node, of the runs' states and all these nodes; `ends` tells where a
        run may end.
      ends: whether a text may end in each node.
      longest: a number that grows along every edge.
      begun: for each node, the start whose mark has begun there, if nothing else can follow; else
        -1.
      after: for each start, the node after its mark.
      window: for each start, the window of its end.
      least: minimum number of characters that make a run a start.
      place: place of each start's end in its window, in characters.
      roots: for each window, the node where its ends begin.
      last: for each node of an end, the last place in the window where it occurs, in characters.
      first_end: the first node of an end.
    """

    edges: ByteEdges
    ends: Bool[np.ndarray, " nodes"]
    longest: Int[np.ndarray, " nodes"]
    begun: Int[np.ndarray, " nodes"]
    after: Int[np.ndarray, " starts"]
    window: Int[np.ndarray, " starts"]
    least: Int[np.ndarray, " starts"]
    place: Int[np.ndarray, " starts"]
    roots: Int[np.ndarray, " windows"]
    last: Int[np.ndarray, " nodes"]
    first_end: int


def long_quotes(
    text: str,
    once: Int[np.ndarray, " characters"],
    automaton: RunAutomata,
    byte: Int[np.ndarray, " letters"],
    begins: Bool[np.ndarray, " bytes"],
    ends: Bool[np.ndarray, " bytes"],
    most: int,
) -> LongQuotes | None:
    """Adds starts and ends to the runs of a page.

    Args:
      text: the text that has runs.
      once: for each of its characters, the result of `standing_once`, counted from its first.
      automaton: automaton of its runs.
      byte: the byte of each letter.
      begins: whether a run may begin with each byte of the text.
      ends: whether a run may end with it.
      most: maximum number of characters that may be quoted.

    Returns:
      All nodes; None if nothing can be quoted in this way.
    """
    data = np.frombuffer(text.encode(), np.uint8)
    leads = (data & 0xC0) != 0x80
    characters = np.cumsum(leads)  # up to each byte, with it
    whole = len(text) <= min(most, LONGEST_WINDOW)
    size = len(text) if whole else min(WINDOW, most - LONGEST_START)
    half = size if whole else size // 2
    if half < 1:
        return None
    state = np.flatnonzero(automaton.ends & (automaton.place >= 0))
    end = characters[automaton.place[state]]
    least = end - once[end - 1]
    # No run of any other state is unique.
    chosen = (once[end - 1] >= 0) & (least <= min(LONGEST_START, most))
    chosen &= least <= automaton.length[state]
    state, end, least = state[chosen], end[chosen], least[chosen]
    if not len(state):
        return None
    window = (end - 1) // half
    windows = int(window.max()) + 1
    found = _ends(data, leads, characters, begins, ends, half, size, windows, byte)
    return _joined(automaton, byte, state, window, end - window * half, least, found)


def standing_once(text: str) -> Int[np.ndarray, " characters"]:
    """For each character, the latest one from which the text up to it occurs only once.

    Compared as quotes are: without white space, ignoring case. -1 for white space, and where
    everything that ends at the character also occurs elsewhere.
    """
    folded = [character.casefold().encode() for character in text]
    blank = np.fromiter(map(str.isspace, text), bool, len(text))
    lengths = np.array([len(each) for each in folded])
    lengths[blank] = 0
    packed = b"".join(each for each, space in zip(folded, blank, strict=True) if not space)
    if not packed:
        return np.full(len(text), -1)
    upto = np.cumsum(lengths)  # bytes of the packed text up to and including each character
    data = np.frombuffer(packed, np.uint8)
    byte = np.flatnonzero(np.bincount(data, minlength=256))
    letter = np.zeros(256, np.uint8)
    letter[byte] = np.arange(len(byte))
    whole = np.array([0]), np.array([len(data)]), np.array([0])
    step, length, _, _, link = build_suffix_automata(letter[data], *whole, len(byte))
    order = np.argsort(-length.astype(np.int64), kind="stable")
    several = _repeated(letter[data], step, length, link, order)
    latest = upto - several[np.maximum(upto - 1, 0)] - 1
    # The last character that begins at this byte or before.
    begin = np.searchsorted(upto - lengths, latest, side="right") - 1
    begin[(latest < 0) | blank] = -1
    return begin


@native
def _repeated(
    data: np.ndarray, step: np.ndarray, length: np.ndarray, link: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """For each letter, the length of the longest text that ends there and also occurs elsewhere."""
    count = np.zeros(length.shape[0], np.int64)
    states = np.empty(data.shape[0], np.int64)
    state: Any = np.int64(0)
    for at in range(data.shape[0]):
        state = np.int64(step[state, data[at]])
        states[at] = state
        count[state] += 1
    for at in order:
        if link[at] >= 0:
            count[link[at]] += count[at]
    found = np.empty(data.shape[0], np.int64)
    for at in range(data.shape[0]):
        state = np.int64(states[at])
        found[at] = length[link[state]] if count[state] == 1 else length[state]
    return found


@dataclasses.dataclass(frozen=True)
class _Ends:
    """The runs of all windows.

    Attributes:
      automata: one for each window.
      last: for each state, the last place where it occurs in its window, in characters.
    """

    automata: RunAutomata
    last: Int[np.ndarray, " states"]


def _ends(
    data: np.ndarray,
    leads: np.ndarray,
    characters: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    half: int,
    size: int,
    count: int,
    byte: np.ndarray,
) -> _Ends:
    """The automata of windows of `size` characters, each of which starts `half` after the last."""
    lead = np.append(np.flatnonzero(leads), len(data))
    spans = []
    for number in range(count):
        first, last = (
            lead[min(place, len(lead) - 1)] for place in (number * half, number * half + size)
        )
        spans.append((first, last))
    letter = np.zeros(256, np.uint8)
    letter[byte] = np.arange(len(byte))
    # A mark behind each window's end: runs that end there continue with it, too.
    behind = len(byte)
    place = np.concatenate([np.arange(first, last + 1) for first, last in spans])
    stop = np.cumsum([last + 1 - first for first, last in spans])
    start = stop - [last + 1 - first for first, last in spans]
    letters = np.append(letter[data], np.uint8(0))[place]
    may_begin, may_end = np.append(begins, False)[place], np.append(ends, False)[place]
    letters[stop - 1], may_begin[stop - 1], may_end[stop - 1] = behind, False, False
    for first, end in zip(start, stop, strict=True):
        if not may_begin[first:end].any():  # an automaton needs a beginning: of no run, then
            may_begin[first], may_end[first:end] = True, False
    automata = build_run_automata(
        letters, start, stop, np.arange(count), behind + 1, may_begin, may_end
    )
    last = _last_places(
        automata.step, automata.place, np.argsort(-automata.length.astype(np.int64), kind="stable")
    )
    automata = automata._replace(step=automata.step[:, :behind])
    window = np.searchsorted(stop, np.maximum(last - 1, 0), side="right")
    before = np.array([characters[first] - leads[first] for first, _ in spans])
    byte_of_last = np.minimum(place[np.maximum(last - 1, 0)], len(data) - 1)
    inside = characters[byte_of_last] - before[window]
    return _Ends(automata, np.where(last > 0, inside, 0))


@native
def _last_places(step: np.ndarray, place: np.ndarray, order: np.ndarray) -> np.ndarray:
    """After which byte each state's runs end for the last time, if they can continue from there.

    0 for roots.
    """
    last = np.zeros(step.shape[0], np.int64)
    for state in order:
        if place[state] < 0:
            continue
        # A state's own place may be within a word: no run begins there, so none continues from it.
        for letter in range(step.shape[1]):
            if step[state, letter] >= 0:
                last[state] = max(last[state], last[step[state, letter]] - 1)
        if last[state] == 0:
            last[state] = place[state] + 1
    return last


def _joined(
    automaton: RunAutomata,
    byte: np.ndarray,
    state: np.ndarray,
    window: np.ndarray,
    place: np.ndarray,
    least: np.ndarray,
    found: _Ends,
) -> LongQuotes:
    """Combines runs, marks and ends."""
    runs, starts = len(automaton.step), len(state)
    letters = {int(each): number for number, each in enumerate(byte)}

    def followed(states: np.ndarray, value: int) -> np.ndarray:
        if value not in letters:
            return np.full(len(states), -1)
        return np.where(states >= 0, automaton.step[states, letters[value]], -1)

    one = followed(state, _MARK[0])
    two = followed(one, _MARK[1])
    first = runs + np.arange(starts)  # after a byte of the mark
    second, third = first + starts, first + 2 * starts
    ends_from = runs + 3 * starts
    rows: list[np.ndarray] = []
    bytes_: list[np.ndarray] = []
    nodes: list[np.ndarray] = []

    def add(row: np.ndarray, value: np.ndarray, node: np.ndarray) -> None:
        rows.append(row)
        bytes_.append(value)
        nodes.append(node)

    row, letter = np.nonzero(automaton.step >= 0)
    after = automaton.step[row, letter]
    # A start's own edge for the mark's first byte leads to its first twin.
    twin = np.full(runs, -1)
    twin[state] = first
    kept = ~((byte[letter] == _MARK[0]) & (twin[row] >= 0))
    add(row[kept], byte[letter[kept]], after[kept])
    add(state, np.full(starts, _MARK[0]), first)
    for twins, originals, mark, leads_to in (
        (first, one, _MARK[1], second),
        (second, two, _MARK[2], third),
    ):
        which, letter = np.nonzero(
            (originals[:, None] >= 0) & (automaton.step[originals] >= 0) & (byte != mark)
        )
        add(twins[which], byte[letter], automaton.step[originals[which], letter])
        add(twins, np.full(starts, mark), leads_to)
    row, letter = np.nonzero(found.automata.step >= 0)
    add(ends_from + row, byte[letter], ends_from + found.automata.step[row, letter])

    count = ends_from + len(found.automata.step)
    every, value, node = (np.concatenate(each) for each in (rows, bytes_, nodes))
    order = np.lexsort((value, every))
    begin = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(every, minlength=count), out=begin[1:])
    begun = np.full(count, -1)
    begun[first] = np.where(one < 0, np.arange(starts), -1)
    begun[second] = np.where(two < 0, np.arange(starts), -1)
    begun[third] = np.arange(starts)
    length = automaton.length
    none = np.zeros(3 * starts, bool)
    last = np.zeros(count, np.int64)
    last[ends_from:] = found.last
    return LongQuotes(
        edges=ByteEdges(
            begin,
            value[order].astype(np.uint8),
            node[order].astype(np.int32),
            np.zeros(len(every), np.uint8),
        ),
        ends=np.concatenate([automaton.ends, none, found.automata.ends]),
        longest=np.concatenate(
            [length, length[state] + 1, length[state] + 2, length[state] + 3, found.automata.length]
        ),
        begun=begun,
        after=third,
        window=window,
        least=least,
        place=place,
        roots=ends_from + found.automata.roots,
        last=last,
        first_end=ends_from,
    )

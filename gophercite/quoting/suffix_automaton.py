"""Suffix automata: they read all contiguous runs of some texts, in space linear in their length.

Reading a run byte by byte from the root leads to a state. Two runs share a state exactly when they
end at the same positions (Blumer et al. 1985). One array holds the automata of several groups of
texts.
"""

from typing import Any

import numpy as np

from gophercite.native import native


@native
def build_suffix_automata(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, groups: np.ndarray, letters: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Builds the automaton of each group's texts.

    Args:
      data: letters, each below `letters`, uint8.
      starts: where each text begins in `data`; texts of a group are adjacent.
      ends: where each text ends.
      groups: which group each text belongs to, rising from 0.
      letters: size of the alphabet.

    Returns:
      The next state by state and letter, [states, letters], -1 if no run continues like this; the
      length of the longest run of each state; the position in `data` of the last letter of some run
      of each state (-1 for roots); the root of each group; each state's suffix link, which is the
      state of its longest suffix that ends at more positions (-1 for roots). The length grows along
      every step.
    """
    total = 0
    for text in range(starts.shape[0]):
        total += ends[text] - starts[text]
    count = (groups[-1] + 1) if groups.shape[0] else 0
    room = 2 * total + count
    step = np.empty((room, letters), np.int32)  # a state's row is filled when it is created
    link = np.full(room, -1, np.int32)
    length = np.zeros(room, np.int32)
    place = np.full(room, -1, np.int32)
    roots = np.zeros(count, np.int32)
    size = 0
    group = -1
    for text in range(starts.shape[0]):
        if groups[text] != group:
            group = groups[text]
            roots[group] = size
            step[size] = -1
            size += 1
        last: Any = np.int64(roots[group])
        for at in range(starts[text], ends[text]):
            letter = data[at]
            known: Any = np.int64(step[last, letter])  # one type throughout: see `_split`
            if known >= 0 and length[known] == length[last] + 1:
                last = known  # an earlier text has this run, with its own state
                continue
            if known >= 0:
                last = _split(step, link, length, place, last, letter, size)
                size += 1
                continue
            new = size
            size += 1
            step[new] = -1
            length[new] = length[last] + 1
            place[new] = at
            state = last
            while state >= 0 and step[state, letter] < 0:
                step[state, letter] = new
                state = link[state]
            if state < 0:
                link[new] = roots[group]
            else:
                target: Any = np.int64(step[state, letter])
                if length[target] != length[state] + 1:
                    target = _split(step, link, length, place, state, letter, size)
                    size += 1
                link[new] = target
            last = new
    return step[:size], length[:size], place[:size], roots, link[:size]


@native
def _split(
    step: np.ndarray,
    link: np.ndarray,
    length: np.ndarray,
    place: np.ndarray,
    state: int,
    letter: int,
    clone: int,
) -> int:
    """Splits a state: its runs up to the length that is being read get their own state."""
    target = step[state, letter]
    for other in range(step.shape[1]):  # assigning the entire row takes seconds to compile
        step[clone, other] = step[target, other]
    link[clone] = link[target]
    length[clone] = length[state] + 1
    place[clone] = place[target]
    link[target] = clone
    while state >= 0 and step[state, letter] == target:
        step[state, letter] = clone
        state = link[state]
    return clone

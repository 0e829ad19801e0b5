"""Automata of the runs of some texts, where runs may begin and end only at given positions.

As in a suffix automaton, a state stands for the runs that end at the same positions. Only runs that
begin at a permitted position count, so this is a sparse suffix automaton (Inenaga and Takeda 2006).
It is built from the texts' suffix tree, which is the tree of suffix links of the suffix automaton
of the reversed texts. Only the suffixes that begin at a permitted position are kept in that tree.
If two of the remaining nodes have the same children, at the same distances in letters, then their
runs end at the same positions: the nodes are merged, and the letters on the way to them become one
path.
"""

from typing import Any, NamedTuple

import numpy as np

from gophercite.native import native
from gophercite.quoting.suffix_automaton import build_suffix_automata

# Whether a run may end at a position nearly always shows in this many letters up to it and the
# letter after it.
_NEAR = 8
_FEW = 32  # up to this many places are looked at one by one


class RunAutomata(NamedTuple):
    """One automaton per group of texts; the groups' states are concatenated.

    Attributes:
      step: next state by state and letter, [states, letters]; -1 if no run continues like this.
      length: the length of some long run of each state; it grows along every step.
      place: position in the texts of the last letter of some run of each state; -1 for roots.
      roots: the first state of each group, where its runs begin.
      ends: whether a run may end in each state.
    """

    step: np.ndarray
    length: np.ndarray
    place: np.ndarray
    roots: np.ndarray
    ends: np.ndarray


class _Tree(NamedTuple):
    """The suffix tree of the suffixes at the given positions; its nodes are states of an automaton.

    Attributes:
      parent: the nearest node above each node; -1 for roots and for states that are not nodes.
      length: depth of each state in letters.
      place: a position where the runs of each state begin.
      order: all states by descending length.
      near: the nearest node at or above each state.
      state: for each beginning, the state of the suffix that begins there.
      below: number of beginnings below each state.
    """

    parent: np.ndarray
    length: np.ndarray
    place: np.ndarray
    order: np.ndarray
    near: np.ndarray
    state: np.ndarray
    below: np.ndarray


class _Ways(NamedTuple):
    """The tree's edges, from nodes down to nodes or ends of texts; sorted by node, then letter.

    Attributes:
      start: index of each state's first edge; one more entry than states.
      letter: first letter of each edge; -1 if it has none, because the text ends at the node.
      node: the lower node; ~t for the end of text t.
      letters: number of letters on each edge.
    """

    start: np.ndarray
    letter: np.ndarray
    node: np.ndarray
    letters: np.ndarray


def build_run_automata(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    groups: np.ndarray,
    letters: int,
    may_begin: np.ndarray,
    may_end: np.ndarray,
) -> RunAutomata:
    """Builds the automaton of each group's texts.

    Args:
      data: letters, each below `letters`, uint8.
      starts: where each text begins in `data`; texts are adjacent and in order.
      ends: where each text ends.
      groups: which group each text belongs to, rising from 0.
      letters: size of the alphabet.
      may_begin: whether a run may begin with each letter of `data`; True at least once per text.
      may_end: whether a run may end with each letter of `data`.
    """
    total = len(data)
    backwards = build_suffix_automata(
        np.ascontiguousarray(data[::-1]),
        total - ends[::-1],
        total - starts[::-1],
        groups[-1] - groups[::-1],
        letters,
    )
    step, length, place, roots, link = backwards
    text = np.repeat(np.arange(len(starts)), ends - starts)  # index of each letter's text
    begins = np.flatnonzero(may_begin)
    roots = np.ascontiguousarray(roots[::-1])
    states = _states_of_suffixes(data, starts, ends, roots[groups], step)[begins]
    tree = _tree(link, length, total - 1 - place, states)
    ways = _ways(tree, begins, text[begins], ends, data)
    same, heads = _same_nodes(tree, ways, len(starts))
    return RunAutomata(
        *_states(tree, ways, same, heads, roots, begins, ends, groups, data, may_end, letters)
    )


@native
def _states_of_suffixes(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, roots: np.ndarray, step: np.ndarray
) -> np.ndarray:
    """The state of the suffix that begins at each letter."""
    found = np.empty(data.shape[0], np.int64)
    for text in range(starts.shape[0]):
        state: Any = np.int64(roots[text])
        for at in range(ends[text] - 1, starts[text] - 1, -1):
            state = np.int64(step[state, data[at]])
            found[at] = state
    return found


@native
def _tree(link: np.ndarray, length: np.ndarray, place: np.ndarray, state: np.ndarray) -> _Tree:
    """Prunes the suffix tree to the nodes where the given suffixes branch or one of them ends."""
    size = link.shape[0]
    begins = np.zeros(size + 2, np.int64)
    for i in range(size):
        begins[size - length[i]] += 1
    total = 0
    for i in range(size + 1):
        begins[i], total = total, total + begins[i]
    order = np.empty(size, np.int64)
    for i in range(size):
        order[begins[size - length[i]]] = i
        begins[size - length[i]] += 1

    own = np.zeros(size, np.int64)
    for at in state:
        own[at] += 1
    count, below = own.copy(), np.zeros(size, np.int64)
    for at in order:
        if count[at] and link[at] >= 0:
            count[link[at]] += count[at]
            below[link[at]] += 1
    near = np.empty(size, np.int64)
    parent = np.full(size, -1, np.int64)
    for i in range(size - 1, -1, -1):
        at = order[i]
        if link[at] < 0:
            near[at] = at
        elif count[at] > 1 and (own[at] > 0 or below[at] > 1):
            near[at], parent[at] = at, near[link[at]]
        else:
            near[at] = near[link[at]]
    return _Tree(parent, length, place, order, near, state, count)


@native
def _ways(
    tree: _Tree, begins: np.ndarray, text: np.ndarray, ends: np.ndarray, data: np.ndarray
) -> _Ways:
    """Finds the edges below each node."""
    size = tree.parent.shape[0]
    start = np.zeros(size + 1, np.int64)
    for i in range(begins.shape[0]):
        start[tree.near[tree.state[i]] + 1] += 1
    for node in range(size):
        if tree.parent[node] >= 0:
            start[tree.parent[node] + 1] += 1
    for node in range(size):
        start[node + 1] += start[node]
    many, filled = start[size], start[:-1].copy()
    letter = np.empty(many, np.int64)
    below = np.empty(many, np.int64)
    letters = np.empty(many, np.int64)
    for i in range(begins.shape[0] + size):
        if i < begins.shape[0]:
            above = tree.near[tree.state[i]]
            node, first, end = ~text[i], begins[i], ends[text[i]]
            here = end - first - tree.length[above]
        else:
            node = i - begins.shape[0]
            above = tree.parent[node]
            if above < 0:
                continue
            first, here = tree.place[node], tree.length[node] - tree.length[above]
        place = filled[above]
        filled[above] += 1
        byte: Any = np.int64(-1)
        if here:
            byte = np.int64(data[first + tree.length[above]])
        # Most nodes have few edges, so each is inserted in order (insertion sort).
        while place > start[above] and (
            letter[place - 1] > byte or (letter[place - 1] == byte and below[place - 1] > node)
        ):
            letter[place], below[place] = letter[place - 1], below[place - 1]
            letters[place] = letters[place - 1]
            place -= 1
        letter[place], below[place], letters[place] = byte, node, here
    return _Ways(start, letter, below, letters)


@native
def _same_nodes(tree: _Tree, ways: _Ways, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds nodes whose runs end at the same positions.

    Returns:
      The class number of each node, equal for nodes whose runs end at the same positions (the ends
      of the texts have the first numbers); and one node of each class.
    """
    size, many = tree.parent.shape[0], ways.node.shape[0]
    # Hash table: a number for each triple of the edges read so far and the node's next edge.
    room = 2
    while room < 2 * many + 2:
        room *= 2
    first = np.full(room, -1, np.int64)
    node = np.empty(room, np.int64)
    letters = np.empty(room, np.int64)
    number = np.empty(room, np.int64)
    known: Any = np.int64(0)
    same = np.full(size, -1, np.int64)
    of_ways = np.full(many + 1, -1, np.int64)
    heads = np.full(texts + size, -1, np.int64)
    count: Any = np.int64(texts)
    for at in tree.order:
        if tree.parent[at] < 0:
            continue
        so_far: Any = np.int64(0)
        for i in range(ways.start[at], ways.start[at + 1]):
            below: Any = np.int64(~ways.node[i])
            if below < 0:
                below = np.int64(same[~below])
            here = ways.letters[i]
            mixed = (so_far * 0x9E3779B1 + below) * 0x85EBCA77 + here
            slot = (mixed ^ (mixed >> 15)) & (room - 1)
            while first[slot] >= 0 and (
                first[slot] != so_far or node[slot] != below or letters[slot] != here
            ):
                slot = (slot + 1) & (room - 1)
            if first[slot] < 0:
                known += 1
                first[slot], node[slot], letters[slot], number[slot] = so_far, below, here, known
            so_far = np.int64(number[slot])
        if of_ways[so_far] < 0:
            of_ways[so_far] = count
            heads[count] = at
            count += 1
        same[at] = of_ways[so_far]
    return same, heads[:count]


@native
def _states(
    tree: _Tree,
    ways: _Ways,
    same: np.ndarray,
    heads: np.ndarray,
    tops: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    groups: np.ndarray,
    data: np.ndarray,
    may_end: np.ndarray,
    letters: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Builds the automata: a path of states to each node, and to each text's end."""
    count, texts = heads.shape[0], ends.shape[0]
    end, longest, way = _ends_of_paths(tree, ways, same, heads, begins, ends)
    group = np.empty(count, np.int64)
    for number in range(count):  # nodes below a node have smaller numbers
        if number < texts:
            group[number] = groups[number]
        else:
            below: Any = np.int64(~ways.node[ways.start[heads[number]]])
            if below < 0:
                below = np.int64(same[~below])
            group[number] = group[below]

    # A group's states follow its root; those of a path are adjacent, the last one first.
    sizes = np.ones(tops.shape[0], np.int64)
    for number in range(count):
        sizes[group[number]] += way[number]
    roots = np.zeros(tops.shape[0], np.int32)
    for i in range(1, tops.shape[0]):
        roots[i] = roots[i - 1] + sizes[i - 1]
    base, filled = np.empty(count, np.int64), roots + 1
    for number in range(count):
        base[number] = filled[group[number]]
        filled[group[number]] += way[number]

    states = roots[-1] + sizes[-1]
    step = np.full((states, letters), -1, np.int32)
    length, place = np.zeros(states, np.int32), np.full(states, -1, np.int32)
    may = np.zeros(states, np.bool_)
    inside, slot = _begins_below(tree, begins)
    known = _letters_at_ends(data, may_end)
    for number in range(count):
        for back in range(way[number]):
            state, at = base[number] + back, end[number] - back - 1
            length[state], place[state] = longest[number] - back, at
            if back:
                step[state, data[at + 1]] = state - 1
            if number < texts:
                may[state] = may_end[at]
                continue
            head = heads[number]
            # If a text repeats one word, each state has about as many places as there are words.
            alike = tree.below[head] > _FEW and tree.length[head] - back >= _NEAR
            if alike and not known[_letters(data, at, 1 if back else 0, known.shape[0])]:
                continue
            for i in range(slot[head], slot[head] + tree.below[head]):
                if may_end[inside[i] + tree.length[head] - back - 1]:
                    may[state] = True
                    break
    for number in range(texts, count + tops.shape[0]):
        if number < count:
            node, state = heads[number], base[number]
        else:
            node, state = tops[number - count], np.int64(roots[number - count])
        for i in range(ways.start[node], ways.start[node + 1]):
            if ways.letters[i]:
                below = np.int64(~ways.node[i])
                if below < 0:
                    below = np.int64(same[~below])
                step[state, ways.letter[i]] = base[below] + ways.letters[i] - 1
    return step, length, place, roots, may


@native
def _letters_at_ends(data: np.ndarray, may_end: np.ndarray) -> np.ndarray:
    """A set of the letters around all places where runs may end, as a table of their hashes."""
    room = 1024
    while room < 8 * data.shape[0]:
        room *= 2
    known = np.zeros(room, np.bool_)
    for at in range(_NEAR - 1, data.shape[0]):
        if may_end[at]:
            known[_letters(data, at, 0, room)] = True
            if at + 1 < data.shape[0]:
                known[_letters(data, at, 1, room)] = True
    return known


@native
def _letters(data: np.ndarray, at: int | np.int64, after: int, room: int) -> int:
    """Hashes the last letters up to a place, and `after` letters after it."""
    mixed: Any = np.int64(256 * (1 + after))  # unlike any letter
    for i in range(at + 1 - _NEAR, at + 1 + after):
        # Without the mask, this would overflow, and differently in each caller.
        mixed = ((mixed ^ data[i]) * 0x85EBCA77) & 0x7FFFFFFF
        mixed ^= mixed >> 15
    return mixed & (room - 1)


@native
def _ends_of_paths(
    tree: _Tree,
    ways: _Ways,
    same: np.ndarray,
    heads: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each class: where some run ends, and the lengths of its longest run and longest edge."""
    count, texts = heads.shape[0], ends.shape[0]
    end = np.empty(count, np.int64)
    longest, way = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for number in range(count):
        if number < texts:
            end[number] = ends[number]
        else:
            end[number] = tree.place[heads[number]] + tree.length[heads[number]]
    text = 0
    for begin in begins:
        while begin >= ends[text]:
            text += 1
        longest[text] = max(longest[text], ends[text] - begin)
    for node in range(same.shape[0]):
        if same[node] >= 0:
            longest[same[node]] = max(longest[same[node]], tree.length[node])
    for i in range(ways.node.shape[0]):
        below: Any = np.int64(~ways.node[i])
        if below < 0:
            below = np.int64(same[~below])
        way[below] = max(way[below], ways.letters[i])
    return end, longest, way


@native
def _begins_below(tree: _Tree, begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The beginnings below each node: all of them in tree order, and where each node's start."""
    size = tree.parent.shape[0]
    slot, filled = np.zeros(size, np.int64), np.zeros(size, np.int64)
    total = 0
    for i in range(size - 1, -1, -1):
        node = tree.order[i]
        if tree.near[node] != node:
            continue
        if tree.parent[node] < 0:
            slot[node], total = total, total + tree.below[node]
        else:
            slot[node] = filled[tree.parent[node]]
            filled[tree.parent[node]] += tree.below[node]
        filled[node] = slot[node]
    inside = np.empty(begins.shape[0], np.int64)
    for i in range(begins.shape[0]):
        node = tree.near[tree.state[i]]
        inside[filled[node]] = begins[i]
        filled[node] += 1
    return inside, slot

"""The graph of the legal answers to one prompt, byte by byte.

A legal answer is `prompts.response(*triples)`: a space, then one or more triples joined by a space,
each with a claim that is not blank, the title of a document in context, and a run of that
document's text. The graph's nodes, by number:

    claim states           the same for all prompts (`claims.py`)
    title prefixes         one for each prefix of "title)%[" of the titles in context, the empty
                           one first
    start + 0, 1, 2        nothing yet; after " "; after " %"
    start + 3, 4, 5        after the "]" that ends a quote; after its "%"; after end of sequence
    omissions              usually none; see `omissions.py`, also for the other changes they make
    quotes                 states of an automaton for each title, which reads the runs of its texts
                           that begin at a permitted position; then twins of some states, for runs
                           of white space alone and for runs with a "]" before which none may end

A quote is a run of one text that begins and ends at permitted positions (`run_boundaries.py`) and
is not all white space, which is why states reached by white space alone are separate. No run
contains a reserved mark, because texts are cut at marks (`pieces.py`).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int, Int8, Int32, UInt8

from gophercite.evidence import QUOTE_MARK
from gophercite.native import native
from gophercite.quoting import omissions
from gophercite.quoting.byte_edges import (
    AFTER_BRACKET,
    AFTER_PERCENT,
    AFTER_SPACE,
    BRACKET,
    CLOSED_BEFORE,
    CLOSES,
    DONE,
    ENDED,
    OPENS,
    PERCENT,
    STRUCTURE,
    ByteEdges,
    Parts,
)
from gophercite.quoting.claims import CLOSED, DEAD, claim_automaton
from gophercite.quoting.pieces import Piece
from gophercite.quoting.run_automaton import RunAutomata, build_run_automata
from gophercite.quoting.suffix_automaton import build_suffix_automata
from gophercite.quoting.utf8 import WHITE_SPACE


@dataclasses.dataclass(frozen=True)
class QuoteGraph:
    """The byte graph of one prompt.

    Attributes:
      edges: its edges.
      parts: where its parts begin.
      pending: number of characters at the end of each node's texts that may belong to the next
        mark: a claim's `>` or `>%`, a quote's `]`.
      longest: length in bytes of the longest run of each quote node; it grows along every edge
        between quote nodes.
    """

    edges: ByteEdges
    parts: Parts
    pending: Int8[np.ndarray, " nodes"]
    longest: Int[np.ndarray, " quotes"]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.edges.start) - 1

    @classmethod
    def build(
        cls,
        pieces: Mapping[str, Sequence[Piece]],
        with_omissions: bool = False,
        before_title: bytes = b"",
    ) -> "QuoteGraph":
        """Builds the graph.

        Args:
          pieces: the pieces that can be quoted under each title (`quotable_pieces`); not empty.
          with_omissions: whether quotes may leave words out.
          before_title: bytes to read before each title, as if the title began with them.
        """
        every = [piece for group in pieces.values() for piece in group]
        encoded = [piece.text.encode() for piece in every]
        text = np.frombuffer(b"".join(encoded), np.uint8)
        byte = np.flatnonzero(np.bincount(text, minlength=256))
        complete = np.append((text[1:] & 0xC0) != 0x80, True)[: len(text)]
        may_end = complete.copy()
        may_end[complete] = np.frombuffer(b"".join(piece.ends for piece in every), bool)
        automata = _automata(pieces, [len(piece) for piece in encoded], text, byte, may_end)
        step, length, place, roots, ends = automata
        space = _ends_blank(text, with_omissions)
        twins = _twins(step, place, roots, ends, byte, complete, space)
        twin_state, twin_level, blank, _ = twins

        prefixes = title_prefixes(
            [before_title + (title + QUOTE_MARK).encode() for title in pieces]
        )
        prefix = len(claim_automaton().next)
        start = prefix + len(prefixes)
        quote = start + STRUCTURE + with_omissions * len(roots) * omissions.NODES
        runs = quote + len(step) + blank[roots]
        edges = ByteEdges(
            *_quote_edges(step, place, ends, byte, text, complete, space, *twins, start, quote)
        )
        longest = np.concatenate([length, length[twin_state]])
        if with_omissions:
            states = np.flatnonzero(np.append(complete, False)[place])  # roots have place -1
            begun = omissions.begun(text)[place[states]]
            ends_in = omissions.ends_of_runs(step, byte, states, begun)
            for back, chosen in enumerate(ends_in):
                may = ends[chosen] if back == 0 else may_end[np.maximum(0, place[chosen] - back)]
                ends_in[back] = chosen[may]
            in_runs = np.where(twin_level == 1, twin_state, -1)
            edges = omissions.add_edges(edges, ends_in, in_runs, roots, runs, start, quote)
            longest = np.append(longest, np.full(len(roots), longest.max() + 1))
        last = omissions.rows(start + STRUCTURE, runs) if with_omissions else []
        first = _first_edges(prefixes, prefix, start, runs, last)
        pending = np.zeros(quote + len(longest), np.int8)
        pending[:prefix] = claim_automaton().pending
        pending[quote : quote + len(step)] = np.append(text == BRACKET, False)[place]  # roots: -1
        pending[quote + len(step) + len(twin_state) :] = 1
        return cls(
            first.followed_by(edges),
            Parts(prefix, start, quote),
            pending,
            longest,
        )


def _automata(
    pieces: Mapping[str, Sequence[Piece]],
    sizes: Sequence[int],
    text: UInt8[np.ndarray, " bytes"],
    byte: Int[np.ndarray, " letters"],
    may_end: np.ndarray,
) -> RunAutomata:
    """The automata of the runs that may be quoted under each title.

    Args:
      pieces: see `QuoteGraph.build`.
      sizes: number of bytes in each piece.
      text: the bytes of all pieces.
      byte: the byte that each letter of the automata stands for.
      may_end: whether a run may end with each byte of `text`.
    """
    ends = np.cumsum(np.array(sizes, np.int64))
    groups = np.repeat(np.arange(len(pieces)), [len(group) for group in pieces.values()])
    letter = np.zeros(256, np.uint8)
    letter[byte] = np.arange(len(byte))
    whole = letter[text], ends - sizes, ends, groups, len(byte)
    every = [piece for group in pieces.values() for piece in group]
    begins = np.frombuffer(b"".join(piece.begins for piece in every), bool)
    if begins.all() and not any(b"\0" in piece.ends for piece in every):  # at all positions
        step, length, place, roots, _ = build_suffix_automata(*whole)
        return RunAutomata(step, length, place, roots, np.append(may_end, False)[place])
    may_begin = np.zeros(len(text), bool)
    may_begin[(text & 0xC0) != 0x80] = begins
    return build_run_automata(*whole, may_begin, may_end)


def _ends_blank(text: np.ndarray, with_omissions: bool) -> np.ndarray:
    """Whether the character that ends at each position is blank (`evidence.is_blank`)."""
    alone = np.zeros(256, bool)
    alone[[ord(blank) for blank in WHITE_SPACE if len(blank) == 1]] = True
    if with_omissions:
        alone[omissions.SPELLED] = True
    space = alone[text]
    spelled = text.tobytes()
    for blank in WHITE_SPACE:
        at = spelled.find(blank) if len(blank) > 1 else -1
        while at >= 0:
            space[at + len(blank) - 1] = True
            at = spelled.find(blank, at + 1)
    return space


@native
def _twins(
    step: np.ndarray,
    place: np.ndarray,
    roots: np.ndarray,
    ends: np.ndarray,
    byte: np.ndarray,
    complete: np.ndarray,
    space: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Makes twins of the states reached by white space alone, or by a "]" that can't end a run."""
    states = step.shape[0]
    blank = np.full(states, -1, np.int32)
    bracket = np.full(states, -1, np.int32)
    twin_state = np.zeros(2 * states, np.int32)
    twin_level = np.zeros(2 * states, np.int8)
    size = 0
    for root in roots:
        blank[root] = size
        twin_state[size] = root
        size += 1
    twin = 0
    while twin < size:
        state, level = twin_state[twin], twin_level[twin]
        twin += 1
        if level == 1:
            continue  # the run is no longer all white space
        for letter in range(step.shape[1]):
            after = step[state, letter]
            if after < 0 or (place[state] < 0 and (byte[letter] & 0xC0) == 0x80):
                continue
            if not complete[place[after]] or space[place[after]]:
                if blank[after] < 0:
                    blank[after] = size
                    twin_state[size] = after
                    size += 1
            elif byte[letter] == BRACKET and bracket[after] < 0:
                bracket[after] = size
                twin_state[size] = after
                twin_level[size] = 1
                size += 1
    for letter in range(step.shape[1]):
        if byte[letter] != BRACKET:
            continue
        for state in range(states):
            after = step[state, letter]
            if after >= 0 and not ends[state] and bracket[after] < 0:
                bracket[after] = size
                twin_state[size] = after
                twin_level[size] = 1
                size += 1
    return twin_state[:size], twin_level[:size], blank, bracket


def title_prefixes(spellings: list[bytes]) -> list[dict[int, int]]:
    """A trie: for each prefix, its next bytes with the prefix, or ~i if spelling i ends there."""
    prefixes: list[dict[int, int]] = [{}]
    for i, spelling in enumerate(spellings):
        at = 0
        for byte in spelling[:-1]:
            if byte not in prefixes[at]:
                prefixes[at][byte] = len(prefixes)
                prefixes.append({})
            at = prefixes[at][byte]
        prefixes[at][spelling[-1]] = ~i
    return prefixes


def _first_edges(
    prefixes: list[dict[int, int]],
    first: int,
    start: int,
    runs: np.ndarray,
    last: list[dict[int, int]],
) -> ByteEdges:
    """The edges of all nodes before the quotes.

    Args:
      prefixes: the trie of titles.
      first: the node of the empty prefix.
      start: the node where an answer begins.
      runs: the node where the runs of each title begin.
      last: the edges of the nodes right before the quotes.
    """
    rows: list[dict[int, int]] = [
        {byte: first + at if at >= 0 else int(runs[~at]) for byte, at in prefix.items()}
        for prefix in prefixes
    ]
    space, percent, less = b" %<"
    rows += [
        {space: start + AFTER_SPACE},
        {percent: start + AFTER_PERCENT},
        {less: 0},
        {percent: start + ENDED},
        {space: start + AFTER_SPACE},
        {},
        *last,
    ]
    claim, claim_byte, claim_node = _claim_edges()
    byte = [byte for row in rows for byte in sorted(row)]
    node = [row[byte] for row in rows for byte in sorted(row)]
    begins = np.zeros(first + len(rows) + 1, np.int32)
    np.cumsum([*claim, *(len(row) for row in rows)], out=begins[1:])
    event = np.zeros(begins[-1], np.uint8)
    event[begins[start + ENDED] : begins[start + DONE]] = OPENS
    return ByteEdges(
        begins,
        np.concatenate([claim_byte, np.array(byte, np.uint8)]),
        np.concatenate([claim_node, np.array(node, np.int32)]),
        event,
    )


@functools.cache
def _claim_edges() -> tuple[list[int], UInt8[np.ndarray, " edges"], Int32[np.ndarray, " edges"]]:
    """The number of edges of each claim state, and all their bytes and nodes."""
    claim = claim_automaton().next
    state, byte = np.nonzero(claim != DEAD)
    node = np.where(claim == CLOSED, len(claim), claim)[state, byte]
    counts = np.bincount(state, minlength=len(claim)).tolist()
    return counts, byte.astype(np.uint8), node.astype(np.int32)


@native
def _quote_edges(
    step: np.ndarray,
    place: np.ndarray,
    may_end: np.ndarray,
    byte: np.ndarray,
    text: np.ndarray,
    complete: np.ndarray,
    space: np.ndarray,
    twin_state: np.ndarray,
    twin_level: np.ndarray,
    blank: np.ndarray,
    bracket: np.ndarray,
    start: int,
    quote: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The edges of the states and their twins, which continue the run or end it."""
    states = step.shape[0]
    nodes = states + twin_state.shape[0]
    begins = np.zeros(nodes + 1, np.int32)
    # A suffix automaton has at most as many steps as its states and the letters of its texts
    # together. Its twins may repeat them at two levels.
    most = 3 * (states + text.shape[0]) + 2 * nodes
    edge_byte = np.empty(most, np.uint8)
    leads = np.empty(most, np.int32)
    event = np.zeros(most, np.uint8)
    size = 0
    for node in range(nodes):
        begins[node] = size
        state = node if node < states else twin_state[node - states]
        level = 2 if node < states else twin_level[node - states]
        at = place[state]
        # A quote of white space alone can't end anywhere.
        ends = level > 0 and may_end[state]
        closed = False
        for letter in range(step.shape[1]):
            after = step[state, letter]
            if after < 0 or (at < 0 and (byte[letter] & 0xC0) == 0x80):
                continue  # runs don't begin inside a character
            edge_byte[size] = byte[letter]
            if level > 0:
                leads[size] = quote + after
                if byte[letter] == BRACKET and not may_end[state]:
                    leads[size] = quote + states + bracket[after]
            elif not complete[place[after]] or space[place[after]]:
                leads[size] = quote + states + blank[after]
            elif byte[letter] == BRACKET:
                leads[size] = quote + states + bracket[after]
            else:
                leads[size] = quote + after
            closed = closed or byte[letter] == BRACKET
            size += 1
        if ends and not closed:
            edge_byte[size], leads[size], event[size] = BRACKET, start + AFTER_BRACKET, CLOSES
            size += 1
        if level == 2 and at >= 0 and text[at] == BRACKET:
            edge_byte[size], leads[size], event[size] = PERCENT, start + ENDED, CLOSED_BEFORE
            size += 1
    begins[nodes] = size
    return begins, edge_byte[:size], leads[:size], event[:size]

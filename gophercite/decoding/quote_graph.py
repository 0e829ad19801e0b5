"""What may follow what in the answers to one prompt, byte by byte.

A legal answer is `prompts.response(*triples)`: a space, then one or more triples joined by a space,
each with a claim that is not empty, the title of a document in context, and a run of that
document's text. The graph's nodes, by number:

    claim states           the same for all prompts (`claims.py`)
    one for each prefix of "title)%[" of the titles in context, the empty one first
    start + 0, 1, 2        nothing yet; after " "; after " %"
    start + 3, 4, 5        after the "]" that ends a quote; after its "%"; after end of sequence
    quotes                 states of a suffix automaton for each title; then twins of those that
                           white space alone, or white space and one "]", can reach

A quote is a run of one text that starts and ends between characters and is not all white space,
which is why states reached by white space alone are kept apart. No run holds a reserved mark: texts
are cut so that the pieces overlap in all but one of each mark's characters.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Int, Int8, Int32, UInt8

from gophercite.decoding.claims import CLOSED, DEAD, claim_automaton
from gophercite.decoding.suffix_automaton import build_suffix_automata
from gophercite.decoding.utf8 import WHITE_SPACE
from gophercite.documents import Document, Window
from gophercite.evidence import END_MARK, MARKS, QUOTE_MARK, holds_mark

AFTER_SPACE, AFTER_PERCENT, AFTER_BRACKET, ENDED, DONE = 1, 2, 3, 4, 5  # from the start on
_STRUCTURE = 6

_EVERY_MARK = re.compile(f"(?=({'|'.join(map(re.escape, MARKS))}))")
_BRACKET, _PERCENT = END_MARK.encode()


class ByteEdges(NamedTuple):
    """Bytes from node to node.

    Attributes:
      start: of each node's edges; one more entry than nodes.
      byte: read along the edge.
      node: where it leads.
      event: what the byte demands or does beside: 0, `CLOSES`, `CLOSED_BEFORE` or `OPENS`.
    """

    start: Int[np.ndarray, " nodes_and_one"]
    byte: UInt8[np.ndarray, " edges"]
    node: Int[np.ndarray, " edges"]
    event: UInt8[np.ndarray, " edges"]


# Events. A quote that a byte closes must have its minimum length before that byte; where the run
# itself goes on with "]", the end shows only at the "%" and is one character back.
CLOSES, CLOSED_BEFORE, OPENS = 1, 2, 3


class Parts(NamedTuple):
    """Where the parts of a graph's nodes begin; claims' states are the first.

    Attributes:
      prefix: the empty title prefix.
      start: where an answer begins.
      quote: the first of the quotes' nodes; those that stand for no run, or white space, included.
    """

    prefix: int
    start: int
    quote: int


@dataclasses.dataclass(frozen=True)
class QuoteGraph:
    """The byte graph of one prompt.

    Attributes:
      edges: its edges.
      parts: where its parts begin.
      pending: characters that texts at each node end with and that may be the next mark's: a
        claim's `>` or `>%`, a quote's `]`.
      longest: length of the longest run of each node of a quote, in bytes; it grows along every
        edge between such nodes.
    """

    edges: ByteEdges
    parts: Parts
    pending: Int8[np.ndarray, " nodes"]
    longest: Int[np.ndarray, " quotes"]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.edges.start) - 1

    @classmethod
    def build(cls, pieces: Mapping[str, Sequence[str]]) -> "QuoteGraph":
        """Makes the graph.

        Args:
          pieces: what can be quoted under each title, as `quotable_pieces` finds it; not empty.
        """
        encoded = [[piece.encode() for piece in group] for group in pieces.values()]
        text = np.frombuffer(b"".join(b"".join(group) for group in encoded), np.uint8)
        sizes = [len(piece) for group in encoded for piece in group]
        ends = np.cumsum(np.array(sizes, np.int64))
        groups = np.repeat(np.arange(len(encoded)), [len(group) for group in encoded])
        byte = np.flatnonzero(np.bincount(text, minlength=256))
        letter = np.zeros(256, np.uint8)
        letter[byte] = np.arange(len(byte))
        step, length, place, roots = build_suffix_automata(
            letter[text], ends - sizes, ends, groups, len(byte)
        )
        complete = np.append((text[1:] & 0xC0) != 0x80, True)[: len(text)]
        space = _ends_white_space(text)
        twins = _twins(step, place, roots, byte, complete, space)

        prefixes = title_prefixes([(title + QUOTE_MARK).encode() for title in pieces])
        prefix = len(claim_automaton().next)
        start = prefix + len(prefixes)
        quote = start + _STRUCTURE
        edges = _quote_edges(step, place, byte, text, complete, space, *twins, start, quote)
        twin_state, _, blank, _ = twins
        first = _first_edges(prefixes, prefix, start, quote + len(step) + blank[roots])
        pending = np.zeros(quote + len(step) + len(twin_state), np.int8)
        pending[:prefix] = claim_automaton().pending
        pending[quote : quote + len(step)] = np.append(text == _BRACKET, False)[place]  # roots: -1
        return cls(
            ByteEdges(
                np.concatenate([first.start[:-1], edges[0] + first.start[-1]]),
                np.concatenate([first.byte, edges[1]]),
                np.concatenate([first.node, edges[2]]),
                np.concatenate([first.event, edges[3]]),
            ),
            Parts(prefix, start, quote),
            pending,
            np.concatenate([length, length[twin_state]]),
        )


def quotable_pieces(
    sources: Sequence[Document | Window], minimum_quote: int
) -> dict[str, list[str]]:
    """The pieces of text that quotes may be runs of, by title.

    Args:
      sources: what a prompt shows. Those that share a title are quotable under it alike; those with
        nothing to quote, or whose title holds a mark, are left out.
      minimum_quote: characters of the shortest quote.
    """
    pieces: dict[str, dict[str, None]] = {}  # in order, each piece once
    for source in sources:
        if holds_mark(source.title):
            continue
        start, text = 0, source.text
        cuts = [(mark.start(), mark.start() + len(mark[1])) for mark in _EVERY_MARK.finditer(text)]
        for begin, end in [*cuts, (len(text), len(text) + 1)]:
            piece = text[start : end - 1]
            start = begin + 1
            if len(piece) >= minimum_quote and piece.strip():
                pieces.setdefault(source.title, {})[piece] = None
    return {title: list(texts) for title, texts in pieces.items()}


def _ends_white_space(text: np.ndarray) -> np.ndarray:
    """Whether the character that ends at each place is white space."""
    alone = np.zeros(256, bool)
    alone[[ord(blank) for blank in WHITE_SPACE if len(blank) == 1]] = True
    space = alone[text]
    spelled = text.tobytes()
    for blank in WHITE_SPACE:
        at = spelled.find(blank) if len(blank) > 1 else -1
        while at >= 0:
            space[at + len(blank) - 1] = True
            at = spelled.find(blank, at + 1)
    return space


@numba.njit(cache=True)
def _twins(
    step: np.ndarray,
    place: np.ndarray,
    roots: np.ndarray,
    byte: np.ndarray,
    complete: np.ndarray,
    space: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Doubles the states that white space alone, or white space and "]", leads to."""
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
            continue  # whatever follows is no white space any more
        for letter in range(step.shape[1]):
            after = step[state, letter]
            if after < 0 or (place[state] < 0 and (byte[letter] & 0xC0) == 0x80):
                continue
            if not complete[place[after]] or space[place[after]]:
                if blank[after] < 0:
                    blank[after] = size
                    twin_state[size] = after
                    size += 1
            elif byte[letter] == _BRACKET and bracket[after] < 0:
                bracket[after] = size
                twin_state[size] = after
                twin_level[size] = 1
                size += 1
    return twin_state[:size].copy(), twin_level[:size].copy(), blank, bracket


def title_prefixes(spellings: list[bytes]) -> list[dict[int, int]]:
    """A trie: each prefix's next bytes, leading to a prefix, or to ~i where spelling i is whole."""
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
    prefixes: list[dict[int, int]], first: int, start: int, quotes: np.ndarray
) -> ByteEdges:
    """The edges of all nodes before the quotes; `quotes` has the first node of each title's."""
    rows: list[dict[int, int]] = [
        {byte: first + at if at >= 0 else int(quotes[~at]) for byte, at in prefix.items()}
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
    """How many edges each state of a claim has, and all their bytes and nodes."""
    claim = claim_automaton().next
    state, byte = np.nonzero(claim != DEAD)
    node = np.where(claim == CLOSED, len(claim), claim)[state, byte]
    counts = np.bincount(state, minlength=len(claim)).tolist()
    return counts, byte.astype(np.uint8), node.astype(np.int32)


@numba.njit(cache=True)
def _quote_edges(
    step: np.ndarray,
    place: np.ndarray,
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
    """The edges of the states and their twins: on in the run, or to its end."""
    states = step.shape[0]
    nodes = states + twin_state.shape[0]
    begins = np.zeros(nodes + 1, np.int32)
    capacity = 4 * nodes + 2 * byte.shape[0] + 256
    read = np.empty(capacity, np.uint8)
    leads = np.empty(capacity, np.int32)
    event = np.zeros(capacity, np.uint8)
    size = 0
    for node in range(nodes):
        begins[node] = size
        if size + 258 > capacity:
            capacity *= 2
            read = np.append(read, np.empty(capacity - read.shape[0], np.uint8))
            leads = np.append(leads, np.empty(capacity - leads.shape[0], np.int32))
            event = np.append(event, np.zeros(capacity - event.shape[0], np.uint8))
        state = node if node < states else twin_state[node - states]
        level = 2 if node < states else twin_level[node - states]
        at = place[state]
        # After white space alone, or inside a character, a quote can't end.
        ends = level > 0 and at >= 0 and complete[at]
        closed = False
        for letter in range(step.shape[1]):
            after = step[state, letter]
            if after < 0 or (at < 0 and (byte[letter] & 0xC0) == 0x80):
                continue  # no run begins inside a character
            read[size] = byte[letter]
            if level > 0:
                leads[size] = quote + after
            elif not complete[place[after]] or space[place[after]]:
                leads[size] = quote + states + blank[after]
            elif byte[letter] == _BRACKET:
                leads[size] = quote + states + bracket[after]
            else:
                leads[size] = quote + after
            closed = closed or byte[letter] == _BRACKET
            size += 1
        if ends and not closed:
            read[size], leads[size], event[size] = _BRACKET, start + AFTER_BRACKET, CLOSES
            size += 1
        if ends and level == 2 and text[at] == _BRACKET:
            read[size], leads[size], event[size] = _PERCENT, start + ENDED, CLOSED_BEFORE
            size += 1
    begins[nodes] = size
    return begins, read[:size].copy(), leads[:size].copy(), event[:size].copy()

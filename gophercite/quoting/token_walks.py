"""Reading tokens byte by byte along a prompt's graph: where each leads, and what it demands.

A walk goes along the vocabulary's trie and the graph at once, for as long as some token goes on as
the graph does. Nearly all walks stay inside a run of a quote, or end it by "]", after which the
same may follow for all runs: those have a loop of their own, which remembers less.
"""

from typing import Any, NamedTuple

import numpy as np

from gophercite.native import native, native_inline
from gophercite.quoting.byte_edges import (
    AFTER_BRACKET,
    CLOSED_BEFORE,
    CLOSES,
    OMITS,
    OPENS,
    ByteEdges,
    Parts,
)
from gophercite.quoting.token_trie import trie_child

UNLIMITED = 30_000  # characters: a maximum that forbids nothing
NO_REACH = -UNLIMITED  # the reach of a token that no maximum forbids

_AT_ONCE = 8192  # edges that are found before they are sorted, about: they stay in the cache

# Added up in `TokenEdges.begins`.
A_TRIPLE, AN_OMISSION = 1, 2
MOST_OMISSIONS = 60  # so that their sum fits


class Limits(NamedTuple):
    """How long quotes and claims may be, in characters; maxima may be `UNLIMITED`.

    With omissions, a quote's limits are those of each of its runs. `anywhere` says whether runs may
    end after any of their characters.
    """

    minimum_quote: int
    maximum_quote: int
    minimum_claim: int
    maximum_claim: int
    maximum_omissions: int
    anywhere: bool


class Ground(NamedTuple):
    """What walks go along.

    Attributes:
      edges: of the prompt's graph.
      parts: where its parts begin.
      pending: see `QuoteGraph`.
      content: see `ClaimAutomaton`.
      children, child, follows, before, ends, token: the vocabulary, see `TokenTrie`.
      limits: of lengths.
    """

    edges: ByteEdges
    parts: Parts
    pending: np.ndarray
    content: np.ndarray
    children: np.ndarray
    child: np.ndarray
    follows: np.ndarray
    before: np.ndarray
    ends: np.ndarray
    token: np.ndarray
    limits: Limits


class Found(NamedTuple):
    """What walks find, and where they wait.

    Attributes:
      edges: token, node, characters, need, reach, begins (see `TokenEdges`) of what was found last;
        how many there are is counted elsewhere.
      inside: walks that wait inside a run: the trie's node, the graph's, characters.
      stack: other walks, as in `Walk`.
      closings: edges of tokens after the "]" in them that ends a run, as in `edges`, but for what
        depends on the run.
      closing: which of them follow each node of the trie; -1 where nobody has asked.
      closed: how many there are.
    """

    edges: np.ndarray
    inside: np.ndarray
    stack: np.ndarray
    closings: np.ndarray
    closing: np.ndarray
    closed: np.ndarray


class Walk(NamedTuple):
    """What a walk along a token's bytes remembers.

    Attributes:
      leaf: the trie's node.
      node: the graph's.
      length: characters of the present run within the token.
      fresh: whether the run began there.
      need: see `TokenEdges`, as are the next two.
      reach: characters.
      begins: see `TokenEdges`.
    """

    leaf: Any  # of 64 bits, as the next: a compiled function needs one type for each
    node: Any
    length: int
    fresh: int
    need: int
    reach: int
    begins: int


def nothing_found(nodes: int, most: int) -> Found:
    """Room for what is found.

    Args:
      nodes: of the trie.
      most: edges that a node may have.
    """
    deep = nodes + 256
    return Found(
        np.empty((6, most + _AT_ONCE), np.int32),
        np.empty((deep, 3), np.int64),
        np.empty((deep, 7), np.int64),
        np.empty((6, most), np.int32),
        np.full((nodes, 2), -1, np.int32),
        np.zeros(1, np.int64),
    )


@native
def read(
    walk: Walk, leaf: int, byte: int, after: int, event: int, parts: Parts, limits: Limits
) -> tuple[bool, Walk]:
    """Moves a walk along a byte edge; False where what is within the token is not legal."""
    node, count, fresh, need = walk.node, walk.length, walk.fresh, walk.need
    reach, begins = walk.reach, walk.begins
    legal = True
    if event >= OPENS:
        # A token that would begin a triple and then an omission, or another triple, is left out:
        # one number could not count them.
        legal = begins & A_TRIPLE == 0 and begins <= AN_OMISSION * limits.maximum_omissions
        begins += A_TRIPLE if event == OPENS else AN_OMISSION
    if event != 0 and event != OPENS:
        # The last characters were not the run's.
        back = event - OMITS if event >= OMITS else 1 if event == CLOSED_BEFORE else 0
        length = count - back
        if fresh == 0:
            need, reach = limits.minimum_quote - length, length
        else:
            legal = legal and limits.minimum_quote <= length <= limits.maximum_quote
    elif node < parts.prefix <= after:
        length = count - 2  # ">%", the last two, were not the claim's
        legal = limits.minimum_claim <= length <= limits.maximum_claim
    if event < OMITS and (
        (node >= parts.quote and after >= parts.quote)
        or (node < parts.prefix and after < parts.prefix)
    ):
        count += (byte & 0xC0) != 0x80
    else:
        count, fresh = 0, 1
    arrived = Walk(np.int64(leaf), np.int64(after), count, fresh, need, reach, begins)
    return legal, arrived


@native_inline
def arrive(edges: np.ndarray, size: int, token: int, walk: Walk, ground: Ground) -> int:
    """Writes the edge of a token that ends where a walk has come, unless it is too long.

    Returns:
      The number of edges found so far.
    """
    node, count, reach = walk.node, walk.length, walk.reach
    characters = -1  # ~0
    if node >= ground.parts.quote:
        length = count - ground.pending[node]
        if walk.fresh == 0:
            characters, reach = count, length
        elif length > ground.limits.maximum_quote:
            return size
        else:
            characters = ~count
    elif node < ground.parts.prefix:  # a claim that began within the token: others are no edges
        count -= ground.pending[node]
        if count + (not ground.content[node]) > ground.limits.maximum_claim:
            return size
        characters = ~count
    edges[0, size], edges[1, size], edges[2, size] = token, node, characters
    edges[3, size], edges[4, size], edges[5, size] = walk.need, reach, walk.begins
    return size + 1


@native
def read_tokens(
    ground: Ground, stack: np.ndarray, waiting: Any, edges: np.ndarray, many: int
) -> int:
    """Ends the walks that wait on a stack.

    Returns:
      The number of edges found so far.
    """
    graph = ground.edges
    while waiting:
        waiting -= 1
        row: Any = stack[waiting]
        walk = Walk(row[0], row[1], row[2], row[3], row[4], row[5], row[6])
        for i in range(ground.ends[walk.leaf], ground.ends[walk.leaf + 1]):
            many = arrive(edges, many, ground.token[i], walk, ground)
        for i in range(graph.start[walk.node], graph.start[walk.node + 1]):
            byte = graph.byte[i]
            leaf = trie_child(
                ground.children, ground.child, ground.follows, ground.before, walk.leaf, byte
            )
            if leaf >= 0:
                legal, after = read(
                    walk, leaf, byte, graph.node[i], graph.event[i], ground.parts, ground.limits
                )
                push(stack, waiting, after)
                waiting += legal
    return many


@native_inline
def push(stack: np.ndarray, at: int | np.int64, walk: Walk) -> None:
    """Has a walk wait at a place on a stack."""
    row: Any = stack[at]
    row[0], row[1], row[2], row[3] = walk.leaf, walk.node, walk.length, walk.fresh
    row[4], row[5], row[6] = walk.need, walk.reach, walk.begins


@native
def read_quotes(ground: Ground, found: Found, start: np.ndarray, node: int) -> int:
    """Reads all tokens from nodes inside quotes, for as long as there is room for their edges.

    Args:
      ground: what to go along.
      found: gets the edges, those of one node after those of another.
      start: of each node's edges; gets those of the nodes that are read, and of the next.
      node: the first.

    Returns:
      The node after the last.
    """
    # Parts of tuples are taken out once: each time costs as much as a step.
    graph, edges, inside, closing = ground.edges, found.edges, found.inside, found.closing
    begins, bytes_, nodes, events = graph.start, graph.byte, graph.node, graph.event
    children, child, follows, before = ground.children, ground.child, ground.follows, ground.before
    ends, token, pending = ground.ends, ground.token, ground.pending
    first: Any = np.int64(start[node])
    many: Any = np.int64(0)  # of one type throughout: a literal would be compiled for, too
    while node < begins.shape[0] - 1 and many + ends[-1] < edges.shape[1]:
        waiting: Any = np.int64(0)
        size = 1
        inside[0, 0], inside[0, 1], inside[0, 2] = 0, node, 0
        while size:
            size -= 1
            leaf, at, count = inside[size, 0], inside[size, 1], inside[size, 2]
            for i in range(ends[leaf], ends[leaf + 1]):
                edges[0, many], edges[1, many], edges[2, many] = token[i], at, count
                edges[3, many], edges[4, many], edges[5, many] = 0, count - pending[at], 0
                many += 1
            for i in range(begins[at], begins[at + 1]):
                byte, event = bytes_[i], events[i]
                after = trie_child(children, child, follows, before, leaf, byte)
                if after < 0:
                    continue
                if event == 0:
                    inside[size, 0], inside[size, 1] = after, nodes[i]
                    inside[size, 2] = count + ((byte & 0xC0) != 0x80)
                    size += 1
                elif event == CLOSES:
                    if closing[after, 0] < 0:
                        _close(ground, found, after)
                    many = _append_closings(
                        found.closings, closing[after], edges, many, count, ground.limits
                    )
                else:
                    walk = Walk(leaf, at, count, 0, 0, NO_REACH, 0)
                    legal, arrived = read(
                        walk, after, byte, nodes[i], event, ground.parts, ground.limits
                    )
                    push(found.stack, waiting, arrived)
                    waiting += legal
        if waiting:
            many = read_tokens(ground, found.stack, waiting, edges, many)
        node += 1
        start[node] = first + many
    return node


@native
def _close(ground: Ground, found: Found, leaf: int) -> None:
    """Reads what may follow in a token whose "]", at a node of the trie, has ended a run."""
    stack = np.empty_like(found.stack)
    bracket: Any = np.int64(ground.parts.start + AFTER_BRACKET)
    push(stack, 0, Walk(np.int64(leaf), bracket, 0, 1, 0, 0, 0))
    first: Any = found.closed[0]
    found.closed[0] = read_tokens(ground, stack, np.int64(1), found.closings, first)
    found.closing[leaf, 0], found.closing[leaf, 1] = first, found.closed[0]


@native
def _append_closings(
    closings: np.ndarray,
    which: np.ndarray,
    edges: np.ndarray,
    many: int,
    count: int,
    limits: Limits,
) -> int:
    """Writes the edges of tokens that end a run of which they have so many characters.

    Returns:
      The number of edges found so far.
    """
    for i in range(which[0], which[1]):
        edges[0, many], edges[1, many] = closings[0, i], closings[1, i]
        edges[2, many], edges[3, many] = closings[2, i], limits.minimum_quote - count
        edges[4, many], edges[5, many] = count, closings[5, i]
        many += 1
    return many

"""Walks tokens byte by byte along a prompt's graph: where each leads, and what it requires.

A walk descends the vocabulary's trie and the graph together, as long as some token continues as the
graph does. Nearly all walks stay inside a run of a quote, or end it with "]", after which the
continuations are the same for all runs. These walks have their own loop, which keeps less state.
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
NO_REACH = -UNLIMITED  # the reach of a token that fits within any maximum

_AT_ONCE = 8192  # approximate number of edges found before they are sorted: fits the CPU cache

# These are summed in `TokenEdges.begins`.
A_TRIPLE, AN_OMISSION = 1, 2
MOST_OMISSIONS = 60  # so that their sum fits the dtype


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
    """The data that walks run on.

    Attributes:
      edges: the edges of the prompt's graph.
      parts: where the graph's parts begin.
      pending: see `QuoteGraph`.
      content: see `ClaimAutomaton`.
      children, child, follows, before, ends, token: the vocabulary, see `TokenTrie`.
      limits: limits on lengths.
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
    """Buffers for the edges that walks find, and for walks still to be continued.

    Attributes:
      edges: token, node, characters, need, reach, begins (see `TokenEdges`) of the latest edges
        found; their number is kept elsewhere.
      inside: stack of walks inside a run: trie node, graph node, characters.
      stack: stack of the other walks, with the fields of `Walk`.
      closings: edges of tokens that contain the "]" that ends a run, as in `edges`, without the
        fields that depend on the run.
      closing: range of each trie node's entries in `closings`; -1 if not computed yet.
      closed: number of entries in `closings`.
    """

    edges: np.ndarray
    inside: np.ndarray
    stack: np.ndarray
    closings: np.ndarray
    closing: np.ndarray
    closed: np.ndarray


class Walk(NamedTuple):
    """The state of a walk along a token's bytes.

    Attributes:
      leaf: the node in the trie.
      node: the node in the graph.
      length: number of characters of the current run that are within the token.
      fresh: whether the run began within the token.
      need: see `TokenEdges`, also for the next two.
      reach: characters.
      begins: see `TokenEdges`.
    """

    leaf: Any  # 64 bits, like `node`: a compiled function needs one type for each
    node: Any
    length: int
    fresh: int
    need: int
    reach: int
    begins: int


def nothing_found(nodes: int, most: int) -> Found:
    """Allocates the buffers.

    Args:
      nodes: number of nodes in the trie.
      most: maximum number of edges per node.
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
    """Moves a walk along a byte edge; returns False if the token's text would not be legal."""
    node, count, fresh, need = walk.node, walk.length, walk.fresh, walk.need
    reach, begins = walk.reach, walk.begins
    legal = True
    if event >= OPENS:
        # A token that begins a triple and then an omission or another triple is left out, because
        # `begins` could not count both.
        legal = begins & A_TRIPLE == 0 and begins <= AN_OMISSION * limits.maximum_omissions
        begins += A_TRIPLE if event == OPENS else AN_OMISSION
    if event != 0 and event != OPENS:
        # The last characters were not part of the run.
        back = event - OMITS if event >= OMITS else 1 if event == CLOSED_BEFORE else 0
        length = count - back
        if fresh == 0:
            need, reach = limits.minimum_quote - length, length
        else:
            legal = legal and limits.minimum_quote <= length <= limits.maximum_quote
    elif node < parts.prefix <= after:
        length = count - 2  # the last two, ">%", were not part of the claim
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
    """Writes the edge of a token that ends at the walk's position, unless a length is exceeded.

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
    elif node < ground.parts.prefix:  # a claim that began in the token; other claims have no edges
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
    """Completes the walks on a stack.

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
    """Stores a walk at a position on a stack."""
    row: Any = stack[at]
    row[0], row[1], row[2], row[3] = walk.leaf, walk.node, walk.length, walk.fresh
    row[4], row[5], row[6] = walk.need, walk.reach, walk.begins


@native
def read_quotes(ground: Ground, found: Found, start: np.ndarray, node: int) -> int:
    """Walks all tokens from nodes inside quotes, as long as there is room for their edges.

    Args:
      ground: the data to walk on.
      found: receives the edges, node by node.
      start: index of each node's first edge; filled in for the nodes read here and for the next
        one.
      node: the first node to read.

    Returns:
      The node after the last one read.
    """
    # Unpack the tuples once: each access costs as much as a step.
    graph, edges, inside, closing = ground.edges, found.edges, found.inside, found.closing
    begins, bytes_, nodes, events = graph.start, graph.byte, graph.node, graph.event
    children, child, follows, before = ground.children, ground.child, ground.follows, ground.before
    ends, token, pending = ground.ends, ground.token, ground.pending
    first: Any = np.int64(start[node])
    many: Any = np.int64(0)  # one type throughout: a literal would cause a second compilation
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
    """Walks the rest of the tokens below a trie node, where a "]" has just ended a run."""
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
    """Writes the edges of tokens that end a run with `count` of its characters in the token.

    Returns:
      The number of edges found so far.
    """
    for i in range(which[0], which[1]):
        edges[0, many], edges[1, many] = closings[0, i], closings[1, i]
        edges[2, many], edges[3, many] = closings[2, i], limits.minimum_quote - count
        edges[4, many], edges[5, many] = count, closings[5, i]
        many += 1
    return many

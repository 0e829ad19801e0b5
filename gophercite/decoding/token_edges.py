"""From bytes to tokens: which tokens each node of a prompt's graph allows, and where they lead."""

from typing import Any, NamedTuple

import numba
import numpy as np
from jaxtyping import Int, Int8, Int16, Int32

from gophercite.decoding.byte_edges import (
    CLOSED_BEFORE,
    DONE,
    ENDED,
    OMITS,
    OPENS,
    ByteEdges,
    Parts,
)
from gophercite.decoding.claims import ClaimAutomaton
from gophercite.decoding.quote_graph import QuoteGraph
from gophercite.decoding.token_trie import ClaimTokens, TokenTrie, trie_child

UNLIMITED = 30_000  # characters: a maximum that forbids nothing
NO_REACH = -UNLIMITED  # the reach of a token that no maximum forbids


class Limits(NamedTuple):
    """How long quotes and claims may be, in characters; maxima may be `UNLIMITED`.

    With omissions, a quote's limits are those of each of its runs.
    """

    minimum_quote: int
    maximum_quote: int
    minimum_claim: int
    maximum_claim: int
    maximum_omissions: int


# Added up in `TokenEdges.begins`.
A_TRIPLE, AN_OMISSION = 1, 2
MOST_OMISSIONS = 60  # so that their sum fits


class TokenEdges(NamedTuple):
    """Tokens from node to node, sorted by node, then token.

    Attributes:
      start: of each node's edges; one more entry than nodes.
      token: read along the edge.
      node: where it leads.
      characters: of the run (of a quote, or a claim) after it: n adds n to those before; ~n says
        that the run began within the token and has n.
      need: characters that the run must have before the token, because it ends within it.
      reach: characters that the run must have room for, beside those before the token.
      begins: `A_TRIPLE` where a further one begins within it, and `AN_OMISSION` for each that
        does before.
    """

    start: Int32[np.ndarray, " nodes_and_one"]
    token: Int32[np.ndarray, " edges"]
    node: Int32[np.ndarray, " edges"]
    characters: Int16[np.ndarray, " edges"]
    need: Int16[np.ndarray, " edges"]
    reach: Int16[np.ndarray, " edges"]
    begins: Int8[np.ndarray, " edges"]


class _Claims(NamedTuple):
    """What of `ClaimAutomaton`, `TokenTrie` and `ClaimTokens` tells how claims end."""

    content: np.ndarray
    added: Int[np.ndarray, "states vocab"]
    leaving: Int[np.ndarray, " states_and_one"]
    leaving_token: Int[np.ndarray, " leaving"]
    leaving_read: Int[np.ndarray, " leaving"]
    spelled: Int[np.ndarray, " size_and_one"]
    spelling: Int[np.ndarray, " bytes"]


def token_edges(
    graph: QuoteGraph,
    claim: ClaimAutomaton,
    trie: TokenTrie,
    claim_tokens: ClaimTokens,
    limits: Limits,
    eos_id: int,
) -> TokenEdges:
    """Reads every token from every node.

    Tokens that stay within a claim are not among the edges: `claim_tokens` has them.

    Args:
      graph: a prompt's byte graph.
      claim: the automaton of claims.
      trie: the vocabulary.
      claim_tokens: what its tokens do in a claim.
      limits: of lengths.
      eos_id: the token that ends an answer.

    Returns:
      The edges. Whether one may be taken still depends on the run's length so far, the triples so
      far and the tokens left.
    """
    return _collect(
        graph.edges,
        graph.parts,
        graph.pending,
        (trie.children, trie.child, trie.follows, trie.before),
        (trie.ends, trie.token),
        _Claims(
            claim.content,
            claim_tokens.added,
            claim_tokens.leaving,
            claim_tokens.leaving_token,
            claim_tokens.leaving_read,
            trie.spelled,
            trie.spelling,
        ),
        limits,
        eos_id,
    )


class _Walk(NamedTuple):
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


@numba.njit(cache=True)
def _read(
    walk: _Walk, leaf: int, byte: int, after: int, event: int, parts: Parts, limits: Limits
) -> tuple[bool, _Walk]:
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
    arrived = _Walk(np.int64(leaf), np.int64(after), count, fresh, need, reach, begins)
    return legal, arrived


@numba.njit(cache=True, inline="always")
def _arrive(
    found: np.ndarray,
    size: int,
    token: int,
    walk: _Walk,
    parts: Parts,
    pending: np.ndarray,
    content: np.ndarray,
    limits: Limits,
) -> int:
    """Writes the edge of a token that ends where a walk has come, unless it is too long.

    Returns:
      The number of edges found so far.
    """
    node, count, reach = walk.node, walk.length, walk.reach
    characters = -1  # ~0
    if node >= parts.quote:
        length = count - pending[node]
        if walk.fresh == 0:
            characters, reach = count, length
        elif length > limits.maximum_quote:
            return size
        else:
            characters = ~count
    elif node < parts.prefix:  # a claim that began within the token: others are no edges
        count -= pending[node]
        if count + (not content[node]) > limits.maximum_claim:
            return size
        characters = ~count
    edge = found[size]
    edge[0], edge[1], edge[2] = token, node, characters
    edge[3], edge[4], edge[5] = walk.need, reach, walk.begins
    return size + 1


@numba.njit(cache=True)
def _collect(
    edges: ByteEdges,
    parts: Parts,
    pending: np.ndarray,
    trie: tuple[np.ndarray, ...],
    tokens: tuple[np.ndarray, np.ndarray],
    claims: _Claims,
    limits: Limits,
    eos_id: int,
) -> TokenEdges:
    """Walks the trie and the graph together, from each node."""
    children, child, follows, before = trie
    ends, trie_token = tokens
    content = claims.content
    count, most = edges.start.shape[0] - 1, ends[-1] + 1  # a node has each token once at most
    start = np.zeros(count + 1, np.int32)
    columns = _room(start, 8 * count + most)
    found = np.empty((most, 6), np.int32)
    order = np.empty(most, np.int64)
    stack = np.empty((children.shape[0] + 256, 7), np.int64)
    size: Any = np.int64(0)  # of one type throughout: a literal would be compiled for, too
    for node in range(count):
        start[node] = size
        if node < parts.prefix:
            many = _leave_claim(node, edges, parts, pending, claims, limits, found)
        else:
            many = 0
            if node == parts.start + ENDED:
                last = _Walk(0, parts.start + DONE, 0, 1, 0, NO_REACH, 0)
                many = _arrive(found, many, eos_id, last, parts, pending, content, limits)
            stack[0] = 0
            stack[0, 1], stack[0, 5] = node, NO_REACH  # see `_Walk`
            waiting = 1
            while waiting:
                waiting -= 1
                row: Any = stack[waiting]
                walk = _Walk(row[0], row[1], row[2], row[3], row[4], row[5], row[6])
                for i in range(ends[walk.leaf], ends[walk.leaf + 1]):
                    many = _arrive(
                        found, many, trie_token[i], walk, parts, pending, content, limits
                    )
                for i in range(edges.start[walk.node], edges.start[walk.node + 1]):
                    byte = edges.byte[i]
                    leaf = trie_child(children, child, follows, before, walk.leaf, byte)
                    if leaf >= 0:
                        legal, after = _read(
                            walk, leaf, byte, edges.node[i], edges.event[i], parts, limits
                        )
                        row = stack[waiting]
                        row[0], row[1], row[2] = after.leaf, after.node, after.length
                        row[3], row[4], row[5] = after.fresh, after.need, after.reach
                        row[6] = after.begins
                        waiting += legal
        if size + many > columns.token.shape[0]:
            columns = _grown(columns, size + many)
        _append(columns, size, found[:many], order[:many])
        size += many
    start[count] = size
    return TokenEdges(
        start,
        columns.token[:size],
        columns.node[:size],
        columns.characters[:size],
        columns.need[:size],
        columns.reach[:size],
        columns.begins[:size],
    )


@numba.njit(cache=True)
def _room(start: np.ndarray, size: int) -> TokenEdges:
    """Columns for so many edges."""
    return TokenEdges(
        start,
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int16),
        np.empty(size, np.int16),
        np.empty(size, np.int16),
        np.empty(size, np.int8),
    )


@numba.njit(cache=True)
def _grown(columns: TokenEdges, needed: int) -> TokenEdges:
    """The same columns with more room."""
    size = columns.token.shape[0]
    larger = _room(columns.start, 2 * needed)
    for i in range(size):  # one by one: slices take seconds to compile
        larger.token[i], larger.node[i] = columns.token[i], columns.node[i]
        larger.characters[i], larger.need[i] = columns.characters[i], columns.need[i]
        larger.reach[i], larger.begins[i] = columns.reach[i], columns.begins[i]
    return larger


@numba.njit(cache=True)
def _append(columns: TokenEdges, at: int, found: np.ndarray, order: np.ndarray) -> None:
    """Writes a node's edges by rising token. Nearly all nodes have a few."""
    count = found.shape[0]
    for i in range(count):
        token: Any = np.int64(found[i, 0])
        order[i] = token << 32 | i
    gap = 1
    while gap < count // 9:
        gap = 3 * gap + 1
    while gap > 0:  # Shell's sort: its insertions for the few, and NumPy's takes long to compile
        for i in range(gap, count):
            key, j = order[i], i
            while j >= gap and order[j - gap] > key:
                order[j] = order[j - gap]
                j -= gap
            order[j] = key
        gap //= 3
    for key in order:
        edge = found[key & 0xFFFFFFFF]
        columns.token[at], columns.node[at], columns.characters[at] = edge[0], edge[1], edge[2]
        columns.need[at], columns.reach[at], columns.begins[at] = edge[3], edge[4], edge[5]
        at += 1


@numba.njit(cache=True)
def _leave_claim(
    node: int,
    edges: ByteEdges,
    parts: Parts,
    pending: np.ndarray,
    claims: _Claims,
    limits: Limits,
    found: np.ndarray,
) -> int:
    """Finds the edges of the tokens that end a claim; returns their number."""
    many = 0
    for i in range(claims.leaving[node], claims.leaving[node + 1]):
        token = claims.leaving_token[i]
        added: Any = np.int64(claims.added[node, token])
        walk = _Walk(np.int64(0), parts.prefix, 0, 1, limits.minimum_claim - added, added, 0)
        legal = True
        begin = claims.spelled[token] + claims.leaving_read[i]
        for place in range(begin, claims.spelled[token + 1]):
            byte = claims.spelling[place]
            legal = False
            for j in range(edges.start[walk.node], edges.start[walk.node + 1]):
                if edges.byte[j] == byte:
                    legal, walk = _read(
                        walk, walk.leaf, byte, edges.node[j], edges.event[j], parts, limits
                    )
                    break
            if not legal:
                break
        # A token that would hold a whole answer and the next one's beginning is left out: how many
        # answers there are is not looked at in claims.
        if legal and walk.begins & A_TRIPLE == 0:
            many = _arrive(found, many, token, walk, parts, pending, claims.content, limits)
    return many

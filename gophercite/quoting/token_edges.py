"""From bytes to tokens: which tokens a prompt's graph allows at each node, and where they lead."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int8, Int16, Int32

from gophercite.native import native
from gophercite.quoting.byte_edges import DONE, ENDED
from gophercite.quoting.claims import ClaimAutomaton
from gophercite.quoting.quote_graph import QuoteGraph
from gophercite.quoting.token_trie import ClaimTokens, TokenTrie
from gophercite.quoting.token_walks import (
    A_TRIPLE,
    NO_REACH,
    Found,
    Ground,
    Limits,
    Walk,
    arrive,
    nothing_found,
    push,
    read,
    read_quotes,
    read_tokens,
)

_FEW = 64  # up to this many edges of a node are sorted by counting smaller ones


class TokenEdges(NamedTuple):
    """Edges between nodes, each labelled with a token; sorted by node, then token.

    Attributes:
      start: index of each node's first edge; one more entry than nodes.
      token: the token of each edge.
      node: the node that each edge leads to.
      characters: number of characters in the run (of a quote, or a claim) after the token. n means
        n more than before the token; ~n means that the run began within the token and has n.
      need: characters that the run must have before the token, because it ends within the token.
      reach: characters that the run must have room for, in addition to those before the token.
      begins: `A_TRIPLE` if a further triple begins within the token, plus `AN_OMISSION` for each
        omission that begins before it.
    """

    start: Int32[np.ndarray, " nodes_and_one"]
    token: Int32[np.ndarray, " edges"]
    node: Int32[np.ndarray, " edges"]
    characters: Int16[np.ndarray, " edges"]
    need: Int16[np.ndarray, " edges"]
    reach: Int16[np.ndarray, " edges"]
    begins: Int8[np.ndarray, " edges"]


class _Claims(NamedTuple):
    """The parts of `TokenTrie` and `ClaimTokens` that say how claims end."""

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
    """Walks every token from every node.

    Tokens that stay within a claim are not edges; they are in `claim_tokens`.

    Args:
      graph: a prompt's byte graph.
      claim: the automaton of claims.
      trie: the vocabulary.
      claim_tokens: the vocabulary's tokens inside claims.
      limits: limits on lengths.
      eos_id: the token that ends an answer.

    Returns:
      The edges. Whether an edge may be taken also depends on the run's length so far, the triples
      so far and the tokens left.
    """
    ground = Ground(
        graph.edges,
        graph.parts,
        graph.pending,
        claim.content,
        trie.children,
        trie.child,
        trie.follows,
        trie.before,
        trie.ends,
        trie.token,
        limits,
    )
    # A node has each token at most once, and the end of sequence.
    found = nothing_found(len(trie.children), len(trie.token) + 1)
    return _collect(
        ground,
        found,
        _Claims(
            claim_tokens.added,
            claim_tokens.leaving,
            claim_tokens.leaving_token,
            claim_tokens.leaving_read,
            trie.spelled,
            trie.spelling,
        ),
        eos_id,
    )


@native
def _collect(ground: Ground, found: Found, claims: _Claims, eos_id: int) -> TokenEdges:
    """Walks the trie and the graph together, from each node."""
    parts, count, most = ground.parts, ground.edges.start.shape[0] - 1, found.closings.shape[1]
    start = np.zeros(count + 1, np.int32)
    columns = _room(start, 8 * count + most)
    rank = np.empty(most, np.int32)
    node: Any = np.int64(0)  # one type throughout: a literal would cause a second compilation
    while node < count:
        if node >= parts.quote:
            after = read_quotes(ground, found, start, node)
        else:
            many: Any = np.int64(0)
            if node < parts.prefix:
                many = _leave_claim(node, ground, claims, found.edges)
            else:
                if node == parts.start + ENDED:
                    last = Walk(np.int64(0), parts.start + DONE, 0, 1, 0, NO_REACH, 0)
                    many = arrive(found.edges, many, eos_id, last, ground)
                push(found.stack, 0, Walk(np.int64(0), node, 0, 0, 0, NO_REACH, 0))
                many = read_tokens(ground, found.stack, np.int64(1), found.edges, many)
            after = node + 1
            start[after] = start[node] + many
        if start[after] > columns.token.shape[0]:
            columns = _grown(columns, start[node], start[after])
        _append(columns, node, after, found.edges, rank)
        node = after
    size = start[count]
    return TokenEdges(
        start,
        columns.token[:size],
        columns.node[:size],
        columns.characters[:size],
        columns.need[:size],
        columns.reach[:size],
        columns.begins[:size],
    )


@native
def _room(start: np.ndarray, size: int) -> TokenEdges:
    """Allocates columns for `size` edges."""
    return TokenEdges(
        start,
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int16),
        np.empty(size, np.int16),
        np.empty(size, np.int16),
        np.empty(size, np.int8),
    )


@native
def _grown(columns: TokenEdges, size: int, needed: int) -> TokenEdges:
    """The first `size` edges, copied to columns with room for twice the number needed."""
    larger = _room(columns.start, 2 * needed)
    for i in range(size):  # one by one: slices take seconds to compile
        larger.token[i], larger.node[i] = columns.token[i], columns.node[i]
        larger.characters[i], larger.need[i] = columns.characters[i], columns.need[i]
        larger.reach[i], larger.begins[i] = columns.reach[i], columns.begins[i]
    return larger


@native
def _append(
    columns: TokenEdges, first: int, last: int, found: np.ndarray, rank: np.ndarray
) -> None:
    """Writes the edges of some nodes, sorted by token within each node; most nodes have few."""
    start, token, node, characters = columns.start, columns.token, columns.node, columns.characters
    need, reach, begins = columns.need, columns.reach, columns.begins
    tokens = found[0]
    for at in range(first, last):
        begin, end = start[at] - start[first], start[at + 1] - start[first]
        if end - begin <= _FEW:
            for i in range(begin, end):
                lesser = 0
                for j in range(begin, end):
                    lesser += tokens[j] < tokens[i]
                rank[i - begin] = lesser
        else:
            _sort(tokens[begin:end], rank)
        for i in range(begin, end):
            to = start[at] + rank[i - begin]
            token[to], node[to], characters[to] = found[0, i], found[1, i], found[2, i]
            need[to], reach[to], begins[to] = found[3, i], found[4, i], found[5, i]


@native
def _sort(tokens: np.ndarray, rank: np.ndarray) -> None:
    """Finds each token's rank (Shell sort, because NumPy's sort takes long to compile)."""
    count = tokens.shape[0]
    keys = np.empty(count, np.int64)
    for i in range(count):
        token: Any = np.int64(tokens[i])
        keys[i] = token << 32 | i
    gap = 1
    while gap < count // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            key, j = keys[i], i
            while j >= gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap //= 3
    for i in range(count):
        rank[keys[i] & 0xFFFFFFFF] = i


@native
def _leave_claim(node: int, ground: Ground, claims: _Claims, found: np.ndarray) -> int:
    """Finds the edges of the tokens that end a claim; returns their number."""
    edges, parts, limits = ground.edges, ground.parts, ground.limits
    many: Any = np.int64(0)
    for i in range(claims.leaving[node], claims.leaving[node + 1]):
        token = claims.leaving_token[i]
        added: Any = np.int64(claims.added[node, token])
        walk = Walk(np.int64(0), parts.prefix, 0, 1, limits.minimum_claim - added, added, 0)
        legal = True
        begin = claims.spelled[token] + claims.leaving_read[i]
        for place in range(begin, claims.spelled[token + 1]):
            byte = claims.spelling[place]
            legal = False
            for j in range(edges.start[walk.node], edges.start[walk.node + 1]):
                if edges.byte[j] == byte:
                    legal, walk = read(
                        walk, walk.leaf, byte, edges.node[j], edges.event[j], parts, limits
                    )
                    break
            if not legal:
                break
        # A token that would hold the rest of a triple and the beginning of the next is left out,
        # because claims don't check the number of triples.
        if legal and walk.begins & A_TRIPLE == 0:
            many = arrive(found, many, token, walk, ground)
    return many

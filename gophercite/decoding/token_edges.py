"""From bytes to tokens: which tokens each node of a prompt's graph allows, and where they lead."""

from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Int

from gophercite.decoding.claims import ClaimAutomaton
from gophercite.decoding.quote_graph import (
    CLOSED_BEFORE,
    CLOSES,
    DONE,
    ENDED,
    OPENS,
    ByteEdges,
    QuoteGraph,
)
from gophercite.decoding.token_trie import ClaimTokens, TokenTrie

ANYWHERE = -30_000  # the reach of a token that no length forbids


class Limits(NamedTuple):
    """How long quotes and claims may be, in characters."""

    minimum_quote: int
    maximum_quote: int
    maximum_claim: int


class TokenEdges(NamedTuple):
    """Tokens from node to node, sorted by node, then token.

    Attributes:
      start: of each node's edges; one more entry than nodes.
      token: read along the edge.
      node: where it leads.
      characters: of the run (claim or quote) after it: n adds n to those before; ~n says that the
        run began within the token and has n.
      need: characters that the quote must have before the token, because it ends within it.
      reach: characters that the run must have room for, beside those before the token.
      opens: 1 where a further triple begins within it.
    """

    start: Int[np.ndarray, " nodes_and_one"]
    token: Int[np.ndarray, " edges"]
    node: Int[np.ndarray, " edges"]
    characters: Int[np.ndarray, " edges"]
    need: Int[np.ndarray, " edges"]
    reach: Int[np.ndarray, " edges"]
    opens: Int[np.ndarray, " edges"]


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
    start, rows = _collect(
        graph.edges,
        np.array([graph.prefix, graph.start, graph.quote]),
        graph.bracket,
        claim.pending,
        claim.content,
        (trie.children, trie.byte, trie.child, trie.ends, trie.token, trie.root),
        (trie.spelled, trie.spelling),
        (claim_tokens.leaving, claim_tokens.leaving_token, claim_tokens.leaving_read),
        claim_tokens.added,
        limits,
        eos_id,
    )
    return TokenEdges(start, *rows)


# A walk along a token's bytes remembers (trie node, graph node, characters of the present run
# within the token, whether it began there, need, reach, opens).
_LEAF, _NODE, _COUNT, _FRESH, _NEED, _REACH, _OPENED, _FIELDS = 0, 1, 2, 3, 4, 5, 6, 7


@numba.njit(cache=True)
def _read(
    walk: np.ndarray, byte: int, after: int, event: int, first: np.ndarray, limits: Limits
) -> bool:
    """Moves a walk along a byte edge; False where a quote's length within the token forbids it."""
    prefix, _, quote = first
    node = walk[_NODE]
    if event in (CLOSES, CLOSED_BEFORE):
        bracket = 1 if event == CLOSED_BEFORE else 0  # the last character was not the quote's
        length = walk[_COUNT] - bracket
        if walk[_FRESH] == 0:
            walk[_NEED] = limits.minimum_quote - length
            walk[_REACH] = length
        elif length < limits.minimum_quote or length > limits.maximum_quote:
            return False
    elif event == OPENS:
        walk[_OPENED] = 1
    if (node < prefix and after < prefix) or (node >= quote and after >= quote):
        walk[_COUNT] += (byte & 0xC0) != 0x80
    else:
        walk[_COUNT], walk[_FRESH] = 0, 1
    walk[_NODE] = after
    return True


@numba.njit(cache=True)
def _arrive(
    edge: np.ndarray,
    token: int,
    walk: np.ndarray,
    first: np.ndarray,
    bracket: np.ndarray,
    pending: np.ndarray,
    content: np.ndarray,
    limits: Limits,
) -> bool:
    """Writes the edge of a token that ends where a walk has come; False where it is too long."""
    prefix, _, quote = first
    node, count, fresh = walk[_NODE], walk[_COUNT], walk[_FRESH] != 0
    edge[0], edge[1], edge[3], edge[4], edge[5] = (
        token, node, walk[_NEED], walk[_REACH], walk[_OPENED],
    )  # fmt: skip
    if node < prefix:  # a claim that began within the token: others are no edges
        count -= pending[node]
        edge[2] = ~count
        return count + (not content[node]) <= limits.maximum_claim
    if node < quote:
        edge[2] = -1  # ~0
        return True
    length = count - bracket[node - quote]
    edge[2] = ~count if fresh else count
    if not fresh:
        edge[4] = length
    return not fresh or length <= limits.maximum_quote


@numba.njit(cache=True)
def _collect(
    edges: ByteEdges,
    first: np.ndarray,
    bracket: np.ndarray,
    pending: np.ndarray,
    content: np.ndarray,
    trie: tuple[np.ndarray, ...],
    spelled: tuple[np.ndarray, np.ndarray],
    leaving: tuple[np.ndarray, np.ndarray, np.ndarray],
    added: np.ndarray,
    limits: Limits,
    eos_id: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Walks the trie and the graph together, from each node."""
    begins, bytes_, nodes, events = edges.start, edges.byte, edges.node, edges.event
    children, trie_byte, trie_child, ends, trie_token, root = trie
    prefix, start = first[0], first[1]
    count = begins.shape[0] - 1
    row_start = np.zeros(count + 1, np.int32)
    rows = np.empty((8 * count + 1024, 6), np.int32)
    size = 0
    stack = np.empty((children.shape[0] + 256, _FIELDS), np.int32)
    walk = np.empty(_FIELDS, np.int32)
    for node in range(count):
        row_start[node] = size
        if size + ends[-1] + 1 > rows.shape[0]:  # a node has each token once at most
            rows = np.concatenate((rows, np.empty((size + ends[-1], 6), np.int32)))
        if node < prefix:
            size = _leave_claim(
                node, edges, first, bracket, pending, content, spelled, leaving, added, limits,
                rows, size, walk,
            )  # fmt: skip
            continue
        if node == start + ENDED:
            edge = rows[size]
            edge[0], edge[1], edge[2], edge[3], edge[4], edge[5] = (
                eos_id, start + DONE, -1, 0, ANYWHERE, 0,
            )  # fmt: skip
            size += 1
        walk[:] = 0
        walk[_NODE], walk[_REACH] = node, ANYWHERE
        stack[0] = walk
        top = 1
        while top:
            top -= 1
            walk[:] = stack[top]
            leaf, at = walk[_LEAF], walk[_NODE]
            for i in range(ends[leaf], ends[leaf + 1]):
                size += _arrive(
                    rows[size], trie_token[i], walk, first, bracket, pending, content, limits
                )
            for i in range(begins[at], begins[at + 1]):
                byte = bytes_[i]
                if leaf == 0:
                    child = root[byte]
                else:
                    low, high = children[leaf], children[leaf + 1]
                    child = _child(trie_byte, trie_child, low, high, byte)
                if child >= 0:
                    stack[top] = walk
                    stack[top, _LEAF] = child
                    top += _read(stack[top], byte, nodes[i], events[i], first, limits)
        _sort_by_token(rows[row_start[node] : size])
    row_start[count] = size
    return row_start, rows[:size].T.copy()


@numba.njit(cache=True)
def _child(byte: np.ndarray, child: np.ndarray, low: int, high: int, wanted: int) -> int:
    """The child for a byte among a trie node's, by bisection; -1 for none."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if byte[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return child[low] if low < end and byte[low] == wanted else -1


@numba.njit(cache=True)
def _leave_claim(
    node: int,
    edges: ByteEdges,
    first: np.ndarray,
    bracket: np.ndarray,
    pending: np.ndarray,
    content: np.ndarray,
    spelled: tuple[np.ndarray, np.ndarray],
    leaving: tuple[np.ndarray, np.ndarray, np.ndarray],
    added: np.ndarray,
    limits: Limits,
    rows: np.ndarray,
    size: int,
    walk: np.ndarray,
) -> int:
    """The edges of the tokens that end a claim; returns the number of edges so far."""
    token_start, spelling = spelled
    leave_start, leave_token, leave_read = leaving
    begin = size
    for i in range(leave_start[node], leave_start[node + 1]):
        token = leave_token[i]
        walk[:] = 0
        walk[_NODE], walk[_FRESH], walk[_REACH] = first[0], 1, added[node, token]
        legal = True
        for place in range(token_start[token] + leave_read[i], token_start[token + 1]):
            legal = False
            for j in range(edges.start[walk[_NODE]], edges.start[walk[_NODE] + 1]):
                if edges.byte[j] == spelling[place]:
                    legal = _read(
                        walk, spelling[place], edges.node[j], edges.event[j], first, limits
                    )
                    break
            if not legal:
                break
        # A token that would hold a whole answer and the next one's beginning is left out: how many
        # answers there are is not looked at in claims.
        if legal and walk[_OPENED] == 0:
            size += _arrive(rows[size], token, walk, first, bracket, pending, content, limits)
    _sort_by_token(rows[begin:size])
    return size


@numba.njit(cache=True)
def _sort_by_token(rows: np.ndarray) -> None:
    """Sorts a node's edges in place. Nearly all nodes have a few; the trie gives them mixed up."""
    if rows.shape[0] > 64:
        rows[:] = rows[np.argsort(rows[:, 0])]
        return
    for i in range(1, rows.shape[0]):
        j = i
        while j > 0 and rows[j - 1, 0] > rows[j, 0]:
            for column in range(rows.shape[1]):
                rows[j - 1, column], rows[j, column] = rows[j, column], rows[j - 1, column]
            j -= 1

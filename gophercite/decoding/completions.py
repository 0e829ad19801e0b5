"""How many tokens an answer needs at least from where it is: what keeps every sample finishable.

Backward over token edges: the rest of the title, the shortest quote, the closing marks, the end of
sequence. Within a quote it depends on how many characters the run has, up to one more than the
minimum: from there on it may end by "]%" anywhere, and by "%" alone after a "]" of its own.
"""

import numba
import numpy as np
from jaxtyping import Int

from gophercite.decoding.claims import ClaimAutomaton
from gophercite.decoding.quote_graph import AFTER_BRACKET, DONE, ENDED, QuoteGraph
from gophercite.decoding.token_edges import Limits, TokenEdges
from gophercite.decoding.token_trie import ClaimTokens

NEVER = 30_000  # tokens: no budget is so large


def shortest_completions(
    graph: QuoteGraph,
    edges: TokenEdges,
    claim: ClaimAutomaton,
    claim_tokens: ClaimTokens,
    limits: Limits,
) -> Int[np.ndarray, "nodes missing"]:
    """Tokens to the end of a legal answer, its end of sequence included.

    Args:
      graph: a prompt's graph.
      edges: its tokens.
      claim: the automaton of claims.
      claim_tokens: the tokens that stay in a claim.
      limits: of lengths.

    Returns:
      For each node, and for each number m of characters that a quote there lacks to have one more
      than the minimum (0: it has them), the fewest tokens; `NEVER` where there is no end. Nodes
      outside quotes have the same in all columns.
    """
    cost = np.full((graph.nodes, limits.minimum_quote + 2), NEVER, np.int16)
    quotes = graph.quote + np.argsort(graph.longest, kind="stable")[::-1]
    prefixes = np.arange(graph.start - 1, graph.prefix - 1, -1)
    start = graph.start
    cost[start + DONE] = 0
    order = np.concatenate([[start + ENDED, start + AFTER_BRACKET], quotes, prefixes])
    first = np.array([graph.prefix, graph.start, graph.quote])
    _relax(cost, edges, order.astype(np.int64), first, limits, claim.content)
    links = claim_tokens.links[int(limits.maximum_claim < NEVER)]
    _relax_claims(cost, edges, links, first, limits, claim.content)
    _relax(cost, edges, np.array([start + 2, start + 1, start]), first, limits, claim.content)
    return cost


@numba.njit(cache=True)
def _relax(
    cost: np.ndarray,
    edges: TokenEdges,
    order: np.ndarray,
    first: np.ndarray,
    limits: Limits,
    content: np.ndarray,
) -> None:
    """Sets the costs of nodes whose edges lead to nodes that have theirs already."""
    quote, enough = first[2], cost.shape[1] - 1
    for node in order:
        for missing in range(enough + 1 if node >= quote else 1):
            had = enough - missing if node >= quote else 0
            best = NEVER
            for i in range(edges.start[node], edges.start[node + 1]):
                if edges.opens[i] or (missing and had < edges.need[i]):
                    continue
                # With `enough` characters or more the run may be as long as it is allowed to be.
                if (missing or node < quote) and had + edges.reach[i] > limits.maximum_quote:
                    continue
                if (
                    not missing
                    and node >= quote
                    and limits.maximum_quote < NEVER
                    and edges.reach[i] > 0
                ):
                    continue
                best = min(best, 1 + _after(cost, edges, i, had, missing, quote))
            if node >= quote:
                cost[node, missing] = best
            else:
                cost[node] = best


@numba.njit(cache=True)
def _after(cost: np.ndarray, edges: TokenEdges, i: int, had: int, missing: int, quote: int) -> int:
    """The cost of the node that an edge leads to."""
    node, characters, enough = edges.node[i], edges.characters[i], cost.shape[1] - 1
    if node < quote:
        return cost[node, 0]
    if characters < 0:
        return cost[node, max(0, enough - ~characters)]
    return cost[node, max(0, enough - had - characters) if missing else 0]


@numba.njit(cache=True)
def _relax_claims(
    cost: np.ndarray,
    edges: TokenEdges,
    links: np.ndarray,
    first: np.ndarray,
    limits: Limits,
    content: np.ndarray,
) -> None:
    """Sets the costs of claims' states, which lead to each other in circles."""
    states, quote = first[0], first[2]
    for state in range(states):
        for i in range(edges.start[state], edges.start[state + 1]):
            if limits.maximum_claim < NEVER and edges.reach[i] > (not content[state]):
                continue
            after = 1 + _after(cost, edges, i, 0, 0, quote)
            if after < cost[state, 0]:
                cost[state] = after
    changed = True
    while changed:
        changed = False
        for state in range(states):
            for after in range(states):
                if links[state, after] and 1 + cost[after, 0] < cost[state, 0]:
                    cost[state] = 1 + cost[after, 0]
                    changed = True

"""The minimum number of tokens that finish an answer, so that no sample runs out of tokens.

It is computed backwards over token edges: the rest of the claim and title, the shortest quote, the
closing marks, the end of sequence. Within a claim, it depends on the number of characters so far,
up to the minimum. Within a quote, it depends on them up to one more than the minimum: from there
on, the quote may end with "]%" wherever a run may end, and with "%" alone after its own "]". If
quotes have a maximum length and may end only at certain positions, it depends on the number of
characters up to that maximum.
"""

import numpy as np
from jaxtyping import Int, Int16

from gophercite.native import native
from gophercite.quoting.byte_edges import (
    AFTER_BRACKET,
    AFTER_PERCENT,
    AFTER_SPACE,
    DONE,
    ENDED,
    Parts,
)
from gophercite.quoting.claims import ClaimAutomaton
from gophercite.quoting.quote_graph import QuoteGraph
from gophercite.quoting.token_edges import TokenEdges
from gophercite.quoting.token_trie import ClaimTokens
from gophercite.quoting.token_walks import UNLIMITED, Limits

NO_END = 30_000  # the cost in tokens of what cannot be finished; larger than any token limit


def longest_steps(
    claim: ClaimAutomaton, claim_tokens: ClaimTokens, limits: Limits
) -> Int16[np.ndarray, "missing states states"]:
    """The most characters that a token adds to a claim on its way between two states.

    Args:
      claim: the automaton of claims.
      claim_tokens: a vocabulary's tokens in claims.
      limits: limits on lengths.

    Returns:
      For each number of characters that the claim lacks (see `shortest_completions`), the longest
      step that leaves room for what the claim still needs; -1 if there is none.
    """
    states, enough = len(claim.next), _enough(limits)
    steps = np.full((enough + 1, states, states), -1, np.int16)
    before, token = np.nonzero(claim_tokens.next < states)
    added = claim_tokens.added[before, token]
    # Of several values for one index, NumPy keeps the last: here the longest step.
    order = np.argsort(added, kind="stable")
    before, token, added = before[order], token[order], added[order]
    after = claim_tokens.next[before, token]
    between = before * states + after  # NumPy is ten times as fast with one index as with two
    for missing in range(enough + 1):
        fits = np.ones(len(added), bool)
        if limits.maximum_claim < UNLIMITED and missing:
            # A claim of white space alone must leave room for one more character.
            had = enough - missing
            fits = had + added + ~claim.content[after] <= limits.maximum_claim
        elif limits.maximum_claim < UNLIMITED:  # the claim may already have its maximum length
            fits = added <= ~claim.content[before]
        steps[missing].reshape(-1)[between[fits]] = added[fits]
    return steps


def _enough(limits: Limits) -> int:
    """The number of characters from which a run's length no longer matters."""
    enough = max(limits.minimum_quote + 1, limits.minimum_claim)
    if limits.maximum_quote < UNLIMITED and not limits.anywhere:
        # A run that may end here can do so; any other needs room up to a place where it may end.
        return max(enough, limits.maximum_quote)
    return enough


def shortest_completions(
    graph: QuoteGraph,
    edges: TokenEdges,
    claim: ClaimAutomaton,
    steps: Int[np.ndarray, "missing states states"],
    limits: Limits,
) -> Int16[np.ndarray, "nodes missing"]:
    """The minimum number of tokens to the end of a legal answer, including its end of sequence.

    Args:
      graph: a prompt's graph.
      edges: its token edges.
      claim: the automaton of claims.
      steps: the result of `longest_steps`.
      limits: limits on lengths.

    Returns:
      The fewest tokens, by node and by the number of characters that the claim or quote still
      lacks: column 0 if it has as many as can matter (`_enough`), column 1 if it lacks one, and so
      on. `NO_END` if the answer can't be finished. Nodes outside claims and quotes have the same
      number in all columns.
    """
    parts = graph.parts
    cost = np.full((graph.nodes, _enough(limits) + 1), NO_END, np.int16)
    cost[parts.start + DONE] = 0
    _relax(cost, edges, parts.start + np.array([ENDED, AFTER_BRACKET]), limits)
    order = _by_length(graph.longest, int(graph.longest.max()))
    _relax_quotes(cost, edges, order, parts.quote, limits)
    _relax(cost, edges, np.arange(parts.quote - 1, parts.start + DONE, -1), limits)
    _relax(cost, edges, np.arange(parts.start - 1, parts.prefix - 1, -1), limits)
    _relax_claims(cost, edges, steps, parts, limits, claim.content)
    start = parts.start + np.array([AFTER_PERCENT, AFTER_SPACE, 0])
    _relax(cost, edges, start, limits)
    return cost


@native
def _by_length(longest: np.ndarray, most: int) -> np.ndarray:
    """Indices sorted by descending length (counting sort); `most` is the greatest length."""
    begins = np.zeros(most + 2, np.int64)
    for length in longest:
        begins[length] += 1
    total = 0
    for length in range(begins.shape[0] - 1, -1, -1):
        begins[length], total = total, total + begins[length]
    order = np.empty(longest.shape[0], np.int64)
    for place, length in enumerate(longest):
        order[begins[length]] = place
        begins[length] += 1
    return order


@native
def _relax(cost: np.ndarray, edges: TokenEdges, order: np.ndarray, limits: Limits) -> None:
    """Sets the costs of nodes outside runs, in an order that visits each after its successors."""
    for node in order:
        best = NO_END
        for i in range(edges.start[node], edges.start[node + 1]):
            if not edges.begins[i] and edges.reach[i] <= limits.maximum_quote:
                best = min(best, 1 + _after(cost, edges, i))
        cost[node] = best


@native
def _after(cost: np.ndarray, edges: TokenEdges, i: int) -> int:
    """The cost after an edge that begins a run, or that leads to a node outside runs."""
    return cost[edges.node[i], max(0, cost.shape[1] - 1 - ~edges.characters[i])]


@native
def _relax_quotes(
    cost: np.ndarray, edges: TokenEdges, order: np.ndarray, quote: int, limits: Limits
) -> None:
    """Sets the costs of quotes' nodes, in order of descending run length."""
    enough = cost.shape[1] - 1
    limited = limits.maximum_quote < UNLIMITED
    best = np.empty(enough + 1, np.int64)
    for place in order:
        best[:] = NO_END
        for i in range(edges.start[quote + place], edges.start[quote + place + 1]):
            if edges.begins[i]:
                continue
            after, need, reach = cost[edges.node[i]], edges.need[i], edges.reach[i]
            characters = max(0, edges.characters[i]) if edges.node[i] >= quote else enough
            # With `enough` characters or more, the run may already have its maximum length.
            if not (limited and reach > 0):
                best[0] = min(best[0], 1 + after[0])
            most = min(enough, enough - need)
            least = max(1, enough + reach - limits.maximum_quote) if limited else 1
            for missing in range(least, most + 1):
                best[missing] = min(best[missing], 1 + after[max(0, missing - characters)])
        for missing in range(enough + 1):  # assigning the entire row takes seconds to compile
            cost[quote + place, missing] = best[missing]


@native
def _relax_claims(
    cost: np.ndarray,
    edges: TokenEdges,
    steps: np.ndarray,
    parts: Parts,
    limits: Limits,
    content: np.ndarray,
) -> None:
    """Sets the costs of claims' states, whose edges form cycles."""
    states, enough = parts.prefix, cost.shape[1] - 1
    limited = limits.maximum_claim < UNLIMITED
    for missing in range(enough + 1):
        had = enough - missing
        for state in range(states):
            for i in range(edges.start[state], edges.start[state + 1]):
                if missing and (had < edges.need[i] or had + edges.reach[i] > limits.maximum_claim):
                    continue
                if not missing and limited and edges.reach[i] > (not content[state]):
                    continue
                cost[state, missing] = min(cost[state, missing], 1 + _after(cost, edges, i))
        changed = True
        while changed:
            changed = False
            for state in range(states):
                for after in range(states):
                    added = steps[missing, state, after]
                    if added >= 0:
                        found = 1 + cost[after, max(0, missing - added)]
                        if found < cost[state, missing]:
                            cost[state, missing] = found
                            changed = True

"""How many tokens each text of a grammar still needs, and the reach of each token in a run.

These make sure that every text can be ended: the counterpart of `completions` for quotes, for any
skeleton, with runs of a page and quotes by start and end.
"""

import numpy as np

from gophercite.commands.long_quotes import LONGEST_START, LongQuotes
from gophercite.native import native
from gophercite.quoting.completions import NO_END
from gophercite.quoting.token_edges import TokenEdges
from gophercite.quoting.token_walks import UNLIMITED

LONGEST_RUN = 20_000  # characters: the maximum length that the tables count

# An end after a start may need this many tokens more than the shortest end in its window.
_MORE = 2


@native
def complete(
    edges: TokenEdges,
    reach: np.ndarray,
    cost: np.ndarray,
    order: np.ndarray,
    begun: np.ndarray,
    first_run: int,
    steps: np.ndarray,
    used: int,
) -> None:
    """Computes the fewest tokens from each node to the end, and each edge's reach in a run.

    An edge's reach counts the characters that the run must still have to end from the edge's
    target, along the path of the fewest tokens. So a run is only continued while that path stays
    within its limit.

    Args:
      edges: all tokens.
      reach: [edges] in place: gets the reach of edges in runs.
      cost: [nodes] in place: gets the fewest tokens, except for the ends of quotes, which must be
        filled in already.
      order: the runs' nodes, counted from the first; nodes of longer runs before those that lead to
        them.
      begun: for each of these nodes, whether a mark has begun there (`LongQuotes.begun`): such runs
        have other ways to end.
      first_run: the first of these nodes.
      steps: whether some token leads from one state of a free text to another.
      used: added to each reach in a run, which lowers the limit for all.
    """
    texts = steps.shape[0]
    rest = np.zeros(cost.shape[0], np.int32)  # characters
    last_run = first_run + order.shape[0]
    for place in order:
        node = first_run + place
        for i in range(edges.start[node], edges.start[node + 1]):
            after = edges.node[i]
            characters = 0
            if after >= last_run or (after >= first_run and begun[after - first_run] >= 0):
                if begun[place] < 0 or reach[i] > LONGEST_RUN:
                    continue
            elif after >= first_run:
                characters = edges.characters[i] + rest[after]
                reach[i] = min(characters + used, UNLIMITED)
            found = 1 + cost[after]
            if found < cost[node] or (found == cost[node] and characters < rest[node]):
                cost[node], rest[node] = found, characters
    for node in range(first_run):
        for i in range(edges.start[node], edges.start[node + 1]):
            after = edges.node[i]
            if after >= first_run and reach[i] < UNLIMITED:
                reach[i] = min(~edges.characters[i] + rest[after] + used, UNLIMITED)
    changed = True
    while changed:
        changed = False
        for node in range(first_run - 1, -1, -1):
            best = cost[node]
            for i in range(edges.start[node], edges.start[node + 1]):
                if reach[i] <= LONGEST_RUN:
                    best = min(best, 1 + cost[edges.node[i]])
            if node < texts:
                for after in range(texts):
                    if steps[node, after]:
                        best = min(best, 1 + cost[after])
            if best < cost[node]:
                cost[node] = best
                changed = True


def with_marks(
    edges: TokenEdges,
    reach: np.ndarray,
    cost: np.ndarray,
    quotes: LongQuotes,
    order: np.ndarray,
    first: int,
) -> TokenEdges:
    """Leads tokens across the mark between a quote's start and end, and computes the ends' costs.

    Args:
      edges: all tokens.
      reach: [edges] in place: gets the reach of tokens that begin or end a mark, and of ends.
      cost: [nodes] in place: gets the costs of ends.
      quotes: starts and ends.
      order: all of their nodes, by falling `quotes.longest`.
      first: the node that they are counted from.

    Returns:
      The tokens.
    """
    node, need = edges.node.copy(), edges.need.copy()
    characters = edges.characters.astype(np.int64)
    source = np.repeat(np.arange(len(edges.start) - 1), np.diff(edges.start)) - first
    after = node.astype(np.int64) - first
    inside = np.flatnonzero((source >= quotes.first_end) & (after >= quotes.first_end))
    reach[inside] = characters[inside] + LONGEST_RUN - quotes.last[after[inside]]
    ends = order[(order >= quotes.first_end) & ~np.isin(order, quotes.roots)]
    _complete_ends(edges, cost, ends, quotes.last, first)

    # The ends after a start must not need more tokens than their window's root says.
    fits = np.zeros(len(quotes.after), bool)
    for number, root in enumerate(quotes.roots):
        span = slice(edges.start[first + root], edges.start[first + root + 1])
        at = after[span]
        latest = quotes.last[at] - characters[span]
        tokens = 1 + cost[node[span]].astype(np.int64)
        can_end = tokens < NO_END
        if not can_end.any():
            continue
        limit = int(tokens[can_end].min()) + _MORE
        cost[first + root] = limit
        furthest = int(latest[can_end & (tokens <= limit)].max())
        fits |= (quotes.window == number) & (quotes.place <= furthest)

    begun = np.full(len(after), -1)
    begun[after >= 0] = quotes.begun[after[after >= 0]]
    (over,) = np.nonzero(begun >= 0)
    start = begun[over]
    run = characters[over] - 1  # of the run before the mark
    need[over] = np.maximum(0, quotes.least[start] - run)
    reach[over] = np.where(
        fits[start] & (source[over] >= 0), run + LONGEST_RUN - LONGEST_START, UNLIMITED
    )
    whole = over[after[over] >= quotes.after[0]]
    which = begun[whole]
    node[whole] = first + quotes.roots[quotes.window[which]]
    characters[whole] = ~quotes.place[which]
    return edges._replace(
        node=node, need=need, characters=characters.astype(edges.characters.dtype)
    )


@native
def _complete_ends(
    edges: TokenEdges, cost: np.ndarray, order: np.ndarray, last: np.ndarray, first: int
) -> None:
    """The fewest tokens from each node of a quote's end, along the path that keeps its last place.

    That path stays behind the start if the last place does.
    """
    for place in order:
        node = first + place
        for i in range(edges.start[node], edges.start[node + 1]):
            after = edges.node[i]
            if after >= first and last[after - first] - edges.characters[i] < last[place]:
                continue
            cost[node] = min(cost[node], 1 + cost[after])

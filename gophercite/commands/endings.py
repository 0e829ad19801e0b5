"""How many tokens the texts of a grammar still need, and what each token reaches in a run.

So every text can be ended: as `completions` has it for quotes, for any skeleton, runs of a page and
quotes by their start and end.
"""

import numpy as np

from gophercite.commands.long_quotes import LONGEST_START, LongQuotes
from gophercite.native import native
from gophercite.quoting.completions import NO_END
from gophercite.quoting.token_edges import TokenEdges
from gophercite.quoting.token_walks import UNLIMITED

LONGEST_RUN = 20_000  # characters: what the tables' lengths are counted up to

# Tokens more than the shortest end of a window needs that an end may need behind a start.
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
    """Finds the fewest tokens from each node to the end, and what each edge reaches in a run.

    An edge's reach counts the characters that the run still must have to end where it leads, on the
    way of the fewest tokens: so a run is only gone on with as long as that way stays within its
    limit.

    Args:
      edges: all tokens.
      reach: of each; gets those of edges in runs.
      cost: of each node; gets those of all but the ends of quotes, which are there already.
      order: the runs' nodes from the first on, those of longer runs before those that lead to them.
      begun: of each of them, whether a mark has begun there (`LongQuotes.begun`): a run has other
        ways to its end.
      first_run: the first of these nodes.
      steps: whether some token leads from a state of a free text to another.
      used: added to each reach in a run, which lowers the limit of all.
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
    """Leads tokens over the mark between a quote's start and end, and finds the ends' costs.

    Args:
      edges: all tokens.
      reach: of each; gets those of tokens that begin or end a mark, and of ends.
      cost: of each node; gets those of ends.
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

    # The ends behind a start must not need more tokens than their window's root says.
    fits = np.zeros(len(quotes.after), bool)
    for number, root in enumerate(quotes.roots):
        span = slice(edges.start[first + root], edges.start[first + root + 1])
        at = after[span]
        latest = quotes.last[at] - characters[span]
        tokens = 1 + cost[node[span]].astype(np.int64)
        some = tokens < NO_END
        if not some.any():
            continue
        limit = int(tokens[some].min()) + _MORE
        cost[first + root] = limit
        furthest = int(latest[some & (tokens <= limit)].max())
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
    """The fewest tokens from within each end of a quote, on the way that its last place goes on.

    That way stays behind the start if the place does.
    """
    for place in order:
        node = first + place
        for i in range(edges.start[node], edges.start[node + 1]):
            after = edges.node[i]
            if after >= first and last[after - first] - edges.characters[i] < last[place]:
                continue
            cost[node] = min(cost[node], 1 + cost[after])

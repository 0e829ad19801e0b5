"""Constrained sampling (GopherCite, appendix J): only answers whose quotes are verbatim.

On the host, once a prompt, its documents become a graph of nodes and tokens (`QuoteConstraint`); on
the device each sample is at a node, and `allowed` and `advance` are a few gathers inside the
sampling loop. The guarantee is about text, not tokens: every spelling of every legal answer is
allowed, and nothing else (see `quote_graph` for what is legal). No step is allowed after which the
answer could not be finished in the tokens that are left, so every sample is legal.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from gophercite.decoding.claims import claim_automaton
from gophercite.decoding.completions import NEVER, shortest_completions
from gophercite.decoding.quote_graph import QuoteGraph, quotable_pieces
from gophercite.decoding.token_edges import Limits, TokenEdges, token_edges
from gophercite.decoding.token_trie import ClaimTokens, TokenTrie
from gophercite.documents import Document, Window
from gophercite.evidence import MINIMUM_QUOTE_LENGTH
from gophercite.vocabularies import Vocabulary

# Nearly all nodes have so few edges that one look takes in all; the others' are taken by the load.
THIN, LOAD = 16, 512


class NoLegalAnswer(ValueError):  # noqa: N818 (the name in the project's contracts)
    """Nothing can be quoted from a prompt's documents, or not in so few tokens."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class QuoteSettings:
    """What answers may look like.

    Attributes:
      minimum_quote: characters of the shortest quote.
      maximum_quote: characters of the longest; None for no limit. With a limit, a quote has fewer
        than `minimum_quote` characters of white space before its first other one.
      maximum_claim: characters of the longest claim; None for no limit.
      maximum_triples: claims, each with its quote, in one answer.
    """

    minimum_quote: int = MINIMUM_QUOTE_LENGTH
    maximum_quote: int | None = None
    maximum_claim: int | None = None
    maximum_triples: int = 1

    def __post_init__(self) -> None:
        """Refuses settings that allow no answer, naming the field.

        Raises:
          ValueError: a field is out of range.
        """
        for name in ("minimum_quote", "maximum_claim", "maximum_triples"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < NEVER:
                raise ValueError(f"{name} = {value}: must be at least 1 and under {NEVER}")
        longest = self.maximum_quote
        if longest is not None and not self.minimum_quote <= longest < NEVER:
            raise ValueError(
                f"maximum_quote = {longest}: must be at least minimum_quote ({self.minimum_quote}) "
                f"and under {NEVER}"
            )

    @property
    def limits(self) -> Limits:
        """The lengths as plain numbers."""
        return Limits(self.minimum_quote, self.maximum_quote or NEVER, self.maximum_claim or NEVER)


class QuoteTables(NamedTuple):
    """The graphs of a batch of prompts, one after the other, on the device.

    Attributes:
      start: of each node's edges; one more entry than nodes.
      claim: each node's state in a claim; -1 outside of claims.
      cost: tokens to the end, by node and by characters that a quote lacks (see
        `shortest_completions`).
      token: along each edge, rising within a node.
      node: where it leads.
      characters: see `TokenEdges`, as are the next three.
      need: characters that the quote must have.
      reach: characters that the run must have room for.
      opens: whether a further triple begins.
      claim_next: state after each token in a claim, the same for all prompts.
      claim_added: characters that it adds.
      claim_content: whether a claim's state has anything but white space.
      first: the node where each prompt's answers begin.
      settings: what answers may look like; part of the program, not of its input.
    """

    start: Int[Array, " nodes_and_one"]
    claim: Int[Array, " nodes"]
    cost: Int[Array, "nodes missing"]
    token: Int[Array, " edges"]
    node: Int[Array, " edges"]
    characters: Int[Array, " edges"]
    need: Int[Array, " edges"]
    reach: Int[Array, " edges"]
    opens: Int[Array, " edges"]
    claim_next: Int[Array, "states vocab"]
    claim_added: Int[Array, "states vocab"]
    claim_content: Bool[Array, " states"]
    first: Int[Array, " prompts"]
    settings: QuoteSettings


class QuoteState(NamedTuple):
    """Where each sample is in its prompt's graph.

    Attributes:
      node: its node.
      characters: of the present claim or quote.
      triples: begun so far.
    """

    node: Int[Array, " samples"]
    characters: Int[Array, " samples"]
    triples: Int[Array, " samples"]


@dataclasses.dataclass(frozen=True)
class PromptGraph:
    """One prompt's graph, on the host.

    Attributes:
      start: the node where an answer begins.
      edges: its tokens.
      cost: tokens to the end of an answer.
    """

    start: int
    edges: TokenEdges
    cost: Int[np.ndarray, "nodes missing"]

    @property
    def shortest_answer(self) -> int:
        """Tokens of the shortest legal answer, its end of sequence included."""
        return int(self.cost[self.start, 0])


class QuoteConstraint:
    """Makes the tables of prompts, for one vocabulary.

    Attributes:
      settings: what answers may look like.
    """

    def __init__(self, vocabulary: Vocabulary, settings: QuoteSettings | None = None) -> None:
        """Reads the vocabulary once; takes a moment for a large one."""
        self.settings = settings or QuoteSettings()
        self._eos_id = vocabulary.eos_id
        self._trie = TokenTrie.build(vocabulary)
        self._claim = claim_automaton()
        self._claim_tokens = ClaimTokens.build(self._claim, self._trie)

    def graph(self, sources: Sequence[Document | Window]) -> PromptGraph:
        """The graph of a prompt that shows `sources`.

        Raises:
          NoLegalAnswer: no source has anything that can be quoted.
        """
        limits = self.settings.limits
        pieces = quotable_pieces(sources, limits.minimum_quote)
        if not pieces:
            raise NoLegalAnswer(
                f"nothing can be quoted from the {len(sources)} documents: each is shorter than "
                f"{limits.minimum_quote} characters, blank, or only reserved marks, or its title "
                "holds one"
            )
        graph = QuoteGraph.build(pieces)
        edges = token_edges(
            graph, self._claim, self._trie, self._claim_tokens, limits, self._eos_id
        )
        cost = shortest_completions(graph, edges, self._claim, self._claim_tokens, limits)
        return PromptGraph(graph.start, edges, cost)

    def tables(self, graphs: Sequence[PromptGraph], max_tokens: int) -> QuoteTables:
        """Puts graphs together for a batch.

        Their sizes are rounded up to powers of two, so that few programs serve all batches.

        Args:
          graphs: one a prompt.
          max_tokens: that a sample may have, its end of sequence included.

        Returns:
          The tables.

        Raises:
          NoLegalAnswer: some prompt's shortest answer has more tokens than that.
        """
        for i, graph in enumerate(graphs):
            if graph.shortest_answer > max_tokens:
                raise NoLegalAnswer(
                    f"prompt {i}: the shortest legal answer has {graph.shortest_answer} tokens, "
                    f"but samples may have {max_tokens}"
                )
        sizes = np.array([len(graph.cost) for graph in graphs])
        counts = np.array([len(graph.edges.token) for graph in graphs])
        node, edge = np.cumsum(sizes) - sizes, np.cumsum(counts) - counts
        nodes, edges = _bucket(int(sizes.sum())), _bucket(int(counts.sum()))
        together = list(zip(graphs, node, edge, strict=True))
        states = np.arange(len(self._claim.next))
        claim = np.full(nodes, -1, np.int8)
        claim[node[:, None] + states] = states

        def column(name: str) -> Array:
            parts = [getattr(graph.edges, name) for graph in graphs]
            return jnp.asarray(_padded(np.concatenate(parts), edges, 0))

        return QuoteTables(
            start=jnp.asarray(
                _padded(
                    np.concatenate([g.edges.start[:-1] + at for g, _, at in together]),
                    nodes + 1,
                    counts.sum(),
                )
            ),
            claim=jnp.asarray(claim),
            cost=jnp.asarray(_padded(np.concatenate([g.cost for g in graphs]), nodes, NEVER)),
            token=column("token"),
            node=jnp.asarray(
                _padded(np.concatenate([g.edges.node + at for g, at, _ in together]), edges, 0)
            ),
            characters=column("characters"),
            need=column("need"),
            reach=column("reach"),
            opens=column("opens"),
            claim_next=jnp.asarray(self._claim_tokens.next),
            claim_added=jnp.asarray(self._claim_tokens.added),
            claim_content=jnp.asarray(self._claim.content),
            first=jnp.asarray(node + [graph.start for graph in graphs], jnp.int32),
            settings=self.settings,
        )


def _bucket(size: int) -> int:
    return 1 << max(10, (size - 1).bit_length())


def _padded(array: np.ndarray, size: int, value: int) -> np.ndarray:
    room = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, room])


def initial(tables: QuoteTables, prompts: Int[Array, " samples"]) -> QuoteState:
    """The state of samples that have no token yet.

    Args:
      tables: of the batch.
      prompts: which of the tables' prompts each sample answers.

    Returns:
      One state a sample.
    """
    zeros = jnp.zeros(prompts.shape, jnp.int32)
    return QuoteState(tables.first[prompts], zeros, zeros + 1)


def degrees(tables: QuoteTables, state: QuoteState) -> Int[Array, " samples"]:
    """How many edges each sample's node has; in a claim there are more tokens than edges."""
    return tables.start[state.node + 1] - tables.start[state.node]


def edges_allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
    offset: int | Int[Array, ""],
    count: int,
) -> tuple[Int[Array, "samples count"], Bool[Array, "samples count"]]:
    """Some of the tokens along the edges of each sample's node, and which are allowed.

    Args:
      tables: of the batch.
      state: of each sample.
      tokens_left: that each sample may still have, the next included.
      offset: edges before these at each node.
      count: how many.

    Returns:
      The tokens, in rising order, and whether each may come next. Past a node's edges there are
      tokens of other nodes, which are not allowed.
    """
    settings, limits = tables.settings, tables.settings.limits
    had = state.characters[:, None]
    place = offset + jnp.arange(count)
    edge = jnp.minimum(tables.start[state.node][:, None] + place, tables.token.shape[0] - 1)
    characters = tables.characters[edge].astype(jnp.int32)
    characters = jnp.where(characters < 0, ~characters, had + characters)
    enough = tables.cost.shape[1] - 1
    missing = jnp.clip(enough - characters, 0, enough)
    legal = place < degrees(tables, state)[:, None]
    legal &= tables.need[edge] <= had
    legal &= tables.cost[tables.node[edge], missing] < tokens_left[:, None]
    if settings.maximum_triples > 1:
        legal &= state.triples[:, None] + tables.opens[edge] <= settings.maximum_triples
    else:
        legal &= tables.opens[edge] == 0
    if settings.maximum_quote is not None or settings.maximum_claim is not None:
        in_claim = (tables.claim[state.node] >= 0)[:, None]
        longest = jnp.where(in_claim, limits.maximum_claim, limits.maximum_quote)
        legal &= had + tables.reach[edge] <= longest
    return tables.token[edge], legal


def claims_allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
) -> Bool[Array, "samples vocab"]:
    """Which tokens keep each sample within its claim; none outside of claims."""
    settings = tables.settings
    claim = tables.claim[state.node].astype(jnp.int32)
    states = tables.claim_next.shape[0]
    # One bit for each state that leaves tokens enough: a shift instead of a gather a token.
    first = state.node - claim
    after = first[:, None] + jnp.arange(states)
    affordable = tables.cost[after, 0] < tokens_left[:, None]
    affordable &= claim[:, None] >= 0
    bits = jnp.sum(affordable.astype(jnp.uint32) << jnp.arange(states, dtype=jnp.uint32), axis=1)
    following = tables.claim_next[jnp.maximum(claim, 0)]
    shift = jnp.minimum(following, 31).astype(jnp.uint32)
    legal = ((bits[:, None] >> shift) & 1).astype(bool)
    if settings.maximum_claim is not None:
        length = state.characters[:, None] + tables.claim_added[jnp.maximum(claim, 0)]
        # White space alone must leave room for one character more.
        content = jnp.append(tables.claim_content, jnp.ones(256 - states, bool))
        legal &= length + ~content[following] <= settings.maximum_claim
    return legal


def allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
) -> Bool[Array, "samples vocab"]:
    """Which tokens may come next.

    Args:
      tables: of the batch.
      state: of each sample.
      tokens_left: that each sample may still have, the next included.

    Returns:
      A mask; a sample that has ended has no token.
    """
    mask = claims_allowed(tables, state, tokens_left)
    rows = jnp.arange(state.node.shape[0])[:, None]

    def add(mask: Array, offset: int | Array, count: int) -> Array:
        tokens, legal = edges_allowed(tables, state, tokens_left, offset, count)
        return mask.at[rows, tokens].max(legal)

    mask = add(mask, 0, THIN)
    widest = jnp.max(degrees(tables, state))

    def more(carry: tuple[Array, Array]) -> Array:
        return carry[1] < widest

    def load(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        mask, offset = carry
        return add(mask, offset, LOAD), offset + LOAD

    return jax.lax.while_loop(more, load, (mask, jnp.asarray(THIN)))[0]


def advance(tables: QuoteTables, state: QuoteState, token: Int[Array, " samples"]) -> QuoteState:
    """The states after a token each.

    Args:
      tables: of the batch.
      state: before it.
      token: one that is allowed; any other leaves the sample where it is, as does the padding
        after its end.

    Returns:
      The states after it.
    """
    claim = tables.claim[state.node].astype(jnp.int32)
    inside = jnp.maximum(claim, 0)
    following = tables.claim_next[inside, token].astype(jnp.int32)
    stays = (claim >= 0) & (following < tables.claim_next.shape[0])
    added = tables.claim_added[inside, token].astype(jnp.int32)

    low, end = tables.start[state.node], tables.start[state.node + 1]
    high = end
    last = tables.token.shape[0] - 1
    for _ in range(int(last).bit_length()):
        middle = (low + high) // 2
        before = (tables.token[jnp.minimum(middle, last)] < token) & (low < high)
        low, high = jnp.where(before, middle + 1, low), jnp.where(before, high, middle)
    edge = jnp.minimum(low, last)
    found = (low < end) & (tables.token[edge] == token)
    characters = tables.characters[edge].astype(jnp.int32)
    along = jnp.where(characters < 0, ~characters, state.characters + characters)
    return QuoteState(
        node=jnp.where(
            stays,
            state.node - claim + following,
            jnp.where(found, tables.node[edge], state.node),
        ),
        characters=jnp.where(
            stays, state.characters + added, jnp.where(found, along, state.characters)
        ),
        triples=state.triples + jnp.where(found & ~stays, tables.opens[edge], 0),
    )

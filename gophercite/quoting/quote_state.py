"""The quote constraint on the device: each sample's state, and which tokens may come next.

It takes a few gathers per step inside the sampling loop. Nothing is copied to the host.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gophercite.quoting.look_ups import first_not_less, look_up
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.token_walks import AN_OMISSION

# Nearly all nodes have at most THIN edges, read in one gather; others are read LOAD at a time.
THIN, LOAD = 16, 512


class QuoteTables(NamedTuple):
    """The graphs of a batch of prompts, one after the other, on the device.

    Attributes:
      start: index of each node's first edge; one more entry than nodes.
      claim: each node's claim state; -1 outside claims.
      cost: minimum number of tokens to the end, by node and by characters that the quote or claim
        still lacks (see `shortest_completions`).
      token: the token of each edge, in rising order within a node.
      node: the node that each edge leads to.
      characters: see `TokenEdges`, also for the next three.
      need: characters that the quote must have.
      reach: characters that the run must have room for.
      begins: which triples and omissions begin.
      claim_next: the claim state after each token, the same for all prompts.
      claim_added: number of characters that each token adds to the claim.
      claim_content: whether a claim in each state has anything but white space.
      size: number of bytes in each token's text; 0 if tokenizers use another token for this text.
      first: the start node of each prompt, or of each of its samples.
      settings: what answers may look like; static, so that it is compiled into the program.
    """

    start: Int[Array, " nodes_and_one"]
    claim: Int[Array, " nodes"]
    cost: Int[Array, "nodes missing"]
    token: Int[Array, " edges"]
    node: Int[Array, " edges"]
    characters: Int[Array, " edges"]
    need: Int[Array, " edges"]
    reach: Int[Array, " edges"]
    begins: Int[Array, " edges"]
    claim_next: Int[Array, "states vocab"]
    claim_added: Int[Array, "states vocab"]
    claim_content: Bool[Array, " states"]
    size: Int[Array, " vocab"]
    first: Int[Array, " prompts *samples"]
    settings: QuoteSettings


# Tokens on edges, and whether each may come next.
Edges = tuple[Int[Array, "samples count"], Bool[Array, "samples count"]]


class QuoteState(NamedTuple):
    """Each sample's state in its prompt's graph.

    Attributes:
      node: its node.
      characters: number of characters in the current claim or run.
      triples: number of triples begun so far.
      omissions: number of omissions so far in the current triple's quote.
    """

    node: Int[Array, " samples"]
    characters: Int[Array, " samples"]
    triples: Int[Array, " samples"]
    omissions: Int[Array, " samples"]


def initial(
    tables: QuoteTables,
    prompts: Int[Array, " samples"],
    numbers: Int[Array, " samples"] | None = None,
) -> QuoteState:
    """The state of samples that have no token yet.

    Args:
      tables: the batch's tables.
      prompts: which of the tables' prompts each sample answers.
      numbers: index of each sample within its prompt; needed if each sample has its own start node.

    Returns:
      One state per sample.
    """
    zeros = jnp.zeros(prompts.shape, jnp.int32)
    first = tables.first[prompts]
    if first.ndim == 2:
        assert numbers is not None
        first = jnp.take_along_axis(first, numbers[:, None], axis=1, mode="clip")[:, 0]
    return QuoteState(first, zeros, zeros + 1, zeros)


def degrees(tables: QuoteTables, state: QuoteState) -> Int[Array, " samples"]:
    """The number of edges of each sample's node.

    Args:
      tables: the batch's tables.
      state: each sample's state.

    Returns:
      Number of edges. In a claim, further tokens are allowed that are not edges (`claims_allowed`).
    """
    return look_up(tables.start, state.node + 1) - look_up(tables.start, state.node)


def edges_allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
    offset: int | Int[Array, ""],
    count: int,
) -> Edges:
    """Some of the tokens on the edges of each sample's node, and which are allowed.

    Args:
      tables: the batch's tables.
      state: each sample's state.
      tokens_left: number of tokens that each sample may still have, including the next.
      offset: number of edges to skip at each node.
      count: number of edges to return.

    Returns:
      The tokens, in rising order, and whether each may come next. Past a node's edges the tokens
      belong to other nodes and are not allowed.
    """
    settings, limits = tables.settings, tables.settings.limits
    had = state.characters[:, None]
    place = offset + jnp.arange(count)
    edge = look_up(tables.start, state.node)[:, None] + place
    characters = look_up(tables.characters, edge).astype(jnp.int32)
    characters = jnp.where(characters < 0, ~characters, had + characters)
    enough = tables.cost.shape[1] - 1
    missing = jnp.clip(enough - characters, 0, enough)
    legal = place < degrees(tables, state)[:, None]
    legal &= look_up(tables.need, edge) <= had
    legal &= look_up(tables.cost, look_up(tables.node, edge), missing) < tokens_left[:, None]
    triples, omissions = _begun(tables, edge)
    if settings.maximum_triples > 1:
        legal &= state.triples[:, None] + triples <= settings.maximum_triples
    else:
        legal &= triples == 0
    if settings.maximum_omissions:
        legal &= state.omissions[:, None] + omissions <= settings.maximum_omissions
    if settings.maximum_quote is not None or settings.maximum_claim is not None:
        in_claim = (look_up(tables.claim, state.node) >= 0)[:, None]
        longest = jnp.where(in_claim, limits.maximum_claim, limits.maximum_quote)
        legal &= had + look_up(tables.reach, edge) <= longest
    return look_up(tables.token, edge), legal


def claims_allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
) -> Bool[Array, "samples vocab"]:
    """Which tokens keep each sample within its claim.

    Args:
      tables: the batch's tables.
      state: each sample's state.
      tokens_left: number of tokens that each sample may still have, including the next.

    Returns:
      A mask; all False for samples outside claims.
    """
    settings = tables.settings
    claim = look_up(tables.claim, state.node).astype(jnp.int32)
    states = tables.claim_next.shape[0]
    inside = jnp.maximum(claim, 0)
    # Tokens to the end from each claim state, by characters that the claim lacks.
    costs = look_up(tables.cost, (state.node - claim)[:, None] + jnp.arange(states))
    following = look_up(tables.claim_next, inside)
    if settings.minimum_claim == 1 and settings.maximum_claim is None:
        # Here the cost does not depend on the characters. One bit per state says whether enough
        # tokens are left, so that each token needs a shift instead of a gather.
        affordable = (costs[:, :, 0] < tokens_left[:, None]) & (claim[:, None] >= 0)
        bits = _as_bits(affordable)
        shift = jnp.minimum(following, 31).astype(jnp.uint32)
        if len(bits) == 1:
            return ((bits[0][:, None] >> shift) & 1).astype(bool)
        # Texts of browsing commands have more states; the last bit stands for no state.
        shift = jnp.where(following < 63, following & 31, 31).astype(jnp.uint32)
        word = jnp.where(following < 32, bits[0][:, None], bits[1][:, None])
        return ((word >> shift) & 1).astype(bool)
    length = state.characters[:, None] + look_up(tables.claim_added, inside)
    enough = costs.shape[2] - 1
    after = jnp.minimum(following, states - 1).astype(jnp.int32)
    place = after * (enough + 1) + jnp.clip(enough - length, 0, enough)
    cost = jnp.take_along_axis(costs.reshape(len(claim), -1), place, axis=1)
    # A claim of white space alone must leave room for one more character.
    most = settings.limits.maximum_claim - ~look_up(tables.claim_content, after)
    legal = (cost < tokens_left[:, None]) & (length <= most)
    return legal & (following < states) & (claim[:, None] >= 0)


def _as_bits(states: Bool[Array, "samples states"]) -> list[Int[Array, " samples"]]:
    """One bit for each of at most 63 states, 32 per word; the last bit stands for no state."""
    count = states.shape[1]
    words = [states] if count < 32 else [states[:, :32], states[:, 32:]]
    assert count < 64
    return [
        jnp.sum(word.astype(jnp.uint32) << jnp.arange(word.shape[1], dtype=jnp.uint32), 1)
        for word in words
    ]


def allowed(
    tables: QuoteTables,
    state: QuoteState,
    tokens_left: Int[Array, " samples"],
    first: Edges | None = None,
) -> Bool[Array, "samples vocab"]:
    """Which tokens may come next.

    Args:
      tables: the batch's tables.
      state: each sample's state.
      tokens_left: number of tokens that each sample may still have, including the next.
      first: what `edges_allowed` returns for the first `THIN` edges, if it is known already.

    Returns:
      A mask; all False for samples that have ended.
    """
    mask = claims_allowed(tables, state, tokens_left)
    rows = jnp.arange(state.node.shape[0])[:, None]

    def add(mask: Array, edges: Edges) -> Array:
        tokens, legal = edges
        return mask.at[rows, tokens].max(legal, wrap_negative_indices=False)

    mask = add(mask, first or edges_allowed(tables, state, tokens_left, 0, THIN))
    widest = jnp.max(degrees(tables, state))

    def more(carry: tuple[Array, Array]) -> Array:
        return carry[1] < widest

    def load(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        mask, offset = carry
        edges = edges_allowed(tables, state, tokens_left, offset, LOAD)
        return add(mask, edges), offset + LOAD

    return jax.lax.while_loop(more, load, (mask, jnp.asarray(THIN)))[0]


def advance(tables: QuoteTables, state: QuoteState, token: Int[Array, " samples"]) -> QuoteState:
    """Advances each sample's state by one token.

    Args:
      tables: the batch's tables.
      state: the states before the token.
      token: an allowed token; any other leaves the state unchanged, as does padding after the end.

    Returns:
      The states after the token.
    """
    claim = look_up(tables.claim, state.node).astype(jnp.int32)
    inside = jnp.maximum(claim, 0)
    following = look_up(tables.claim_next, inside, token).astype(jnp.int32)
    stays = (claim >= 0) & (following < tables.claim_next.shape[0])
    added = look_up(tables.claim_added, inside, token).astype(jnp.int32)
    in_claim = state._replace(
        node=state.node - claim + following, characters=state.characters + added
    )
    edge, found = _edge_of(tables, state, token)
    moved = jax.tree.map(partial(jnp.where, found), along(tables, state, edge), state)
    return jax.tree.map(partial(jnp.where, stays), in_claim, moved)


def along(tables: QuoteTables, state: QuoteState, edge: Int[Array, " samples"]) -> QuoteState:
    """Moves each sample along an edge of its node.

    Args:
      tables: the batch's tables.
      state: the states before the edge's token.
      edge: index of an edge of each sample's node. After another node's edge, the state means
        nothing.

    Returns:
      The states after the edge's token.
    """
    characters = look_up(tables.characters, edge).astype(jnp.int32)
    triples, begun = _begun(tables, edge)
    omissions = state.omissions
    if tables.settings.maximum_omissions:
        omissions = jnp.where(triples > 0, 0, omissions + begun)
    return QuoteState(
        node=look_up(tables.node, edge),
        characters=jnp.where(characters < 0, ~characters, state.characters + characters),
        triples=state.triples + triples,
        omissions=omissions,
    )


def _begun(tables: QuoteTables, edge: Int[Array, "..."]) -> tuple[Array, Array | int]:
    """The numbers of triples and omissions that begin on some edges."""
    begins = look_up(tables.begins, edge)
    if not tables.settings.maximum_omissions:
        return begins, 0
    return begins % AN_OMISSION, begins // AN_OMISSION


def _edge_of(
    tables: QuoteTables, state: QuoteState, token: Int[Array, " samples"]
) -> tuple[Int[Array, " samples"], Bool[Array, " samples"]]:
    """The edge of each sample's node for a token, and whether there is one."""
    first, end = look_up(tables.start, state.node), look_up(tables.start, state.node + 1)

    def look() -> tuple[Array, Array]:
        edge = first[:, None] + jnp.arange(THIN)
        same = (look_up(tables.token, edge) == token[:, None]) & (edge < end[:, None])
        return first + jnp.argmax(same, axis=1), jnp.any(same, axis=1)

    def halve() -> tuple[Array, Array]:
        halvings = (tables.token.shape[0] - 1).bit_length()
        edge = first_not_less(tables.token, token, first, end, halvings)
        return edge, (edge < end) & (look_up(tables.token, edge) == token)

    # One gather if all nodes are thin; else a binary search, whose steps are sequential.
    return jax.lax.cond(jnp.max(end - first) > THIN, halve, look)

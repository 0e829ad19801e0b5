"""Exact speculation inside titles and quotes: the document's own words as a draft.

Inside a quote, a sample is likely to continue as its document does. So in the pass for a newly
drawn token, the model also reads a few drafted tokens. Each of their positions is then drawn as it
would have been without the draft: from that pass's logits, with that position's own random number.
The draft is accepted up to the first token that differs from the one drawn. So the samples are
those of plain sampling, in fewer passes. (Leviathan et al. 2023 accept as often; drawing with the
same random number makes their rejection step unnecessary.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gophercite.quoting.quote_state import (
    THIN,
    QuoteState,
    QuoteTables,
    advance,
    degrees,
    edges_allowed,
)


class Draft(NamedTuple):
    """The next tokens of each sample, if it continues as its document does.

    Attributes:
      tokens: the drafted tokens, in order.
      made: whether each position has a drafted token; the first False ends the draft.
      states: each sample's state before each drafted token and after the last, [samples, drafts +
        1].
    """

    tokens: Int[Array, "samples drafts"]
    made: Bool[Array, "samples drafts"]
    states: QuoteState

    @property
    def before(self) -> QuoteState:
        """The states before each token, those of one sample adjacent, [samples * drafts]."""
        return jax.tree.map(lambda leaf: leaf[:, :-1].reshape(-1), self.states)

    def state_after(self, accepted: Int[Array, " samples"]) -> QuoteState:
        """The states after this many accepted tokens."""
        return jax.tree.map(
            lambda leaf: jnp.take_along_axis(leaf, accepted[:, None], axis=1)[:, 0], self.states
        )


def draft(
    tables: QuoteTables,
    state: QuoteState,
    wanted: Bool[Array, " samples"],
    left: Int[Array, " samples"],
    count: int,
    eos_id: int,
) -> Draft:
    """Drafts tokens: where only a few are allowed, the longest that continues the run.

    Tokenizers nearly always choose the longest token, too.

    Args:
      tables: what may be quoted.
      state: each sample's state.
      wanted: the samples to draft for.
      left: number of tokens that each sample may still have.
      count: number of tokens to draft.
      eos_id: never drafted, so that no sample ends with a draft.

    Returns:
      The draft; empty in claims and where quotes begin.
    """

    def step(carry: tuple[QuoteState, Array], place: Array) -> tuple[Any, Any]:
        state, going = carry
        going &= (tables.claim[state.node] < 0) & (degrees(tables, state) <= THIN)
        tokens, legal = edges_allowed(tables, state, left - place, 0, THIN)
        edge = tables.start[state.node][:, None] + jnp.arange(THIN)
        closes = tables.need[jnp.minimum(edge, tables.need.shape[0] - 1)] > 0
        rank = jnp.where(closes, 1, 1 + tables.size[tokens])
        rank = jnp.where(legal & (tokens != eos_id), rank, 0)
        token = jnp.take_along_axis(tokens, jnp.argmax(rank, axis=1, keepdims=True), axis=1)[:, 0]
        going &= jnp.max(rank, axis=1) > 0
        state = advance(tables, state, token)
        return (state, going), (token, going, state)

    (_, _), (tokens, made, after) = jax.lax.scan(step, (state, wanted), jnp.arange(count))
    states = jax.tree.map(lambda a, b: jnp.concatenate([a[:, None], b.T], axis=1), state, after)
    return Draft(tokens.T, made.T, states)


def accepted(plan: Draft, drawn: Int[Array, "samples drafts"]) -> Int[Array, " samples"]:
    """The number of each sample's drafted tokens before the first that was not drawn."""
    same = plan.made & (plan.tokens == drawn)
    return jnp.sum(jnp.cumprod(same.astype(jnp.int32), axis=1), axis=1)

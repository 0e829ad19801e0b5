"""Drafts of titles and quotes: the tokens by which a sample goes on if it follows its page."""

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


def draft(
    tables: QuoteTables,
    state: QuoteState,
    left: Int[Array, " branches"],
    count: Int[Array, ""],
    most: int,
) -> tuple[Int[Array, "branches most"], Bool[Array, "branches most"]]:
    """Drafts tokens: where only a few are allowed, the longest that continues the title or quote.

    Tokenizers nearly always choose the longest token, too.

    Args:
      tables: what may be quoted.
      state: each branch's state.
      left: number of tokens that each branch may still have.
      count: number of tokens to draft.
      most: number of tokens that there is room for, at least `count`.

    Returns:
      The tokens, and whether there is one; the first False ends a draft. There are none in claims,
      nor where more than `THIN` tokens are allowed, as where quotes from most pages begin.
    """

    def step(i: Array, drafted: tuple[QuoteState, Array, Array]) -> tuple[QuoteState, Array, Array]:
        state, tokens, made = drafted
        few = (tables.claim[state.node] < 0) & (degrees(tables, state) <= THIN)
        next_tokens, legal = edges_allowed(tables, state, left - i, 0, THIN)
        edge = tables.start[state.node][:, None] + jnp.arange(THIN)
        closes = tables.need[jnp.minimum(edge, tables.need.shape[0] - 1)] > 0
        rank = jnp.where(closes, 1, 1 + tables.size[next_tokens])
        rank = jnp.where(legal, rank, 0)
        best = jnp.argmax(rank, axis=1, keepdims=True)
        token = jnp.take_along_axis(next_tokens, best, axis=1)[:, 0]
        goes_on = few & (jnp.max(rank, axis=1) > 0) & ((i == 0) | made[:, jnp.maximum(i - 1, 0)])
        put = lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, i, 1)  # noqa: E731
        return advance(tables, state, token), put(tokens, token), put(made, goes_on)

    shape = (len(left), most)
    nothing = state, jnp.zeros(shape, tables.token.dtype), jnp.zeros(shape, bool)
    _, tokens, made = jax.lax.fori_loop(0, count, step, nothing)
    return tokens.astype(jnp.int32), made

"""Drafts of titles and quotes: the tokens by which a sample goes on if it follows its page."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gophercite.quoting.look_ups import look_up, look_up_by_row
from gophercite.quoting.quote_state import (
    THIN,
    QuoteState,
    QuoteTables,
    along,
    degrees,
    edges_allowed,
)

# The branches' states, whether their drafts go on, the tokens so far, and whether there is one.
_Drafted = tuple[QuoteState, Array, Array, Array]


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

    def step(i: Array, drafted: _Drafted) -> _Drafted:
        state, goes_on, tokens, made = drafted
        few = (look_up(tables.claim, state.node) < 0) & (degrees(tables, state) <= THIN)
        next_tokens, legal = edges_allowed(tables, state, left - i, 0, THIN)
        first = look_up(tables.start, state.node)
        closes = look_up(tables.need, first[:, None] + jnp.arange(THIN)) > 0
        rank = jnp.where(closes, 1, 1 + look_up(tables.size, next_tokens))
        rank = jnp.where(legal, rank, 0)
        best = jnp.argmax(rank, axis=1)
        token = look_up_by_row(next_tokens, best[:, None])[:, 0]
        goes_on &= few & (jnp.max(rank, axis=1) > 0)
        put = lambda old, new: jax.lax.dynamic_update_index_in_dim(old, new, i, 1)  # noqa: E731
        state = along(tables, state, first + best)
        return state, goes_on, put(tokens, token), put(made, goes_on)

    shape = (len(left), most)
    tokens, made = jnp.zeros(shape, tables.token.dtype), jnp.zeros(shape, bool)
    begun = state, jnp.ones(len(left), bool), tokens, made
    *_, tokens, made = jax.lax.fori_loop(0, count, step, begun)
    return tokens.astype(jnp.int32), made

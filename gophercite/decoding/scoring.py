"""How likely given texts are: the sampler's log-probabilities for existing texts."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling import log_prob_of
from gophercite.models.attention import MASKED
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_state import QuoteTables, advance, allowed, initial


class Scores(NamedTuple):
    """Log-probabilities of texts after their prompts, in nats.

    Attributes:
      log_probs: log-probability of each token under the model itself (temperature 1, all tokens); 0
        after the end of the text.
      constrained_log_probs: the same, renormalised over the tokens that the quote constraint
        allows; -inf for a token that it forbids and for all tokens after it. None without a
        constraint.
    """

    log_probs: Float[np.ndarray, "texts longest"]
    constrained_log_probs: Float[np.ndarray, "texts longest"] | None


def score(
    transformer: Transformer,
    params: Params,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[Sequence[int]]],
    *,
    pad_id: int,
    quotes: QuoteTables | None = None,
    max_tokens: int | None = None,
    vocabulary_size: int | None = None,
) -> Scores:
    """Scores texts as continuations of prompts; each prompt is prefilled once.

    Args:
      transformer: the model.
      params: its parameters.
      prompts: token ids; lengths may differ but must not be 0.
      texts: for each prompt the token ids of its continuations, the same number for each, with the
        end of sequence if they have one.
      pad_id: any id; fills the positions after prompts and texts.
      quotes: the prompts' tables (`QuoteConstraint.tables`), in order.
      max_tokens: the sampling limit in tokens, which decides what the constraint allows; the length
        of the longest text when None.
      vocabulary_size: ids from here on are unused rows of the model's embedding and get no
        probability, as in `sampler.sample`; when None, all ids are in use.

    Returns:
      One row per text; those of one prompt are adjacent.

    Raises:
      ValueError: there is no prompt or no text, one of them is empty, or prompts have different
        numbers of texts.
    """
    each = {len(of_prompt) for of_prompt in texts}
    if len(texts) != len(prompts) or len(each) != 1:
        raise ValueError(
            f"scoring needs the same number of texts for each prompt; {len(prompts)} prompts came "
            f"with {[len(of_prompt) for of_prompt in texts]}"
        )
    after = [text for of_prompt in texts for text in of_prompt]
    longest = max(map(len, after), default=0)
    positions = transformer.config.max_positions
    room = None if positions is None else positions - longest
    shown, lengths = padded_rows(prompts, pad_id, "prompt", most=room)
    room = None if positions is None else positions - shown.shape[1]
    rows, sizes = padded_rows(after, pad_id, "text", most=room)
    limit = longest if max_tokens is None else max_tokens
    found = _score(transformer, vocabulary_size, limit, params, shown, lengths, rows, sizes, quotes)
    return Scores(*(np.asarray(part)[:, :longest] if part is not None else None for part in found))  # type: ignore[arg-type]


@partial(jax.jit, static_argnums=(0, 1))
def _score(
    transformer: Transformer,
    vocabulary_size: int | None,
    max_tokens: Int[Array, ""] | int,
    params: Params,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
    texts: Int[Array, "batch longest"],
    sizes: Int[Array, " batch"],
    quotes: QuoteTables | None,
) -> tuple[Array, Array | None]:
    """Reads each text in one pass; computes logits one position at a time."""
    count, longest = texts.shape
    each = count // prompts.shape[0]
    hidden, cache, _ = transformer.prefill(params, prompts, lengths, longest, each)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    places = jnp.arange(longest)
    real = places < sizes[:, None]
    positions = jnp.repeat(lengths, each)[:, None] + places
    inside = transformer.decode(params, texts, positions, real, cache).hidden
    # A token is predicted from the representation of the token before it.
    before = jnp.concatenate([jnp.repeat(last, each, axis=0), inside[:, :-1]], axis=1)
    start = None
    if quotes is not None:
        start = (
            initial(quotes, *jnp.divmod(jnp.arange(count), each)),
            jnp.ones(count, bool),
        )

    def place(carry: tuple | None, now: tuple[Array, Array, Array]) -> tuple:
        at, hidden, token = now
        logits = transformer.logits(params, hidden[:, None])[:, 0, :vocabulary_size]
        free = log_prob_of(logits, token)
        if carry is None or quotes is None:
            return None, (free, None)
        state, legal = carry
        mask = allowed(quotes, state, jnp.full((count,), max_tokens - at))
        known = jnp.minimum(token, mask.shape[1] - 1)
        legal &= jnp.take_along_axis(mask, known[:, None], axis=1)[:, 0] & (known == token)
        among = log_prob_of(jnp.where(mask, logits[:, : mask.shape[1]], MASKED), token)
        return (advance(quotes, state, token), legal), (free, jnp.where(legal, among, -jnp.inf))

    by_place = (places, jnp.moveaxis(before, 1, 0), texts.T)
    found: tuple[Array, Array | None] = jax.lax.scan(place, start, by_place)[1]
    return jax.tree.map(lambda part: jnp.where(real, part.T, 0.0), found)

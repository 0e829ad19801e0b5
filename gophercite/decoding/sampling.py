"""Draws one token per row by inverting the cumulative distribution over all or allowed tokens.

This needs one uniform number per row; Gumbel noise needs one for each token of the vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.attention import MASKED
from gophercite.quoting.look_ups import look_up, look_up_by_row
from gophercite.quoting.quote_state import (
    THIN,
    QuoteState,
    QuoteTables,
    allowed,
    degrees,
    edges_allowed,
)

# The cumulative sum is taken over blocks of this size, and then within one block, instead of over
# the whole vocabulary.
_BLOCK = 128
# Fewer rows take as long as this many: the time goes into reading the embedding, and a TPU's tiles
# have eight rows. Each further size makes the program larger.
_FEWEST_ROWS = 8
# No sound model has logits this large. `MASKED` is ten times as far from 0.
_LARGEST = -MASKED / 10


class Drawn(NamedTuple):
    """One drawn token per row.

    Attributes:
      token: token ids.
      log_prob: log-probability of the token among all choices at temperature 1, in nats. NaN if
        the model's logits are not numbers, or if no token is allowed.
    """

    token: Int[Array, " samples"]
    log_prob: Float[Array, " samples"]


def draw(
    logits: Float[Array, "samples choices"],
    uniforms: Float[Array, " samples"],
    settings: SamplingSettings,
) -> Drawn:
    """Draws one choice per row.

    Args:
      logits: unnormalised log-probabilities; `MASKED` where a choice can't be taken.
      uniforms: one uniform number in [0, 1) per row.
      settings: temperature, top-k and top-p.

    Returns:
      The indices of the choices. Greedy ties go to the first.
    """
    peak = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - peak)
    if settings.temperature == 0:
        choice = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    else:
        kept = weights
        if settings.temperature != 1:
            kept = jnp.exp((logits - peak) / settings.temperature)
        if settings.top_k is not None and settings.top_k < logits.shape[-1]:
            least = jax.lax.top_k(logits, settings.top_k)[0][:, -1:]
            kept = jnp.where(logits >= least, kept, 0.0)
        if settings.top_p < 1:
            kept = _nucleus(kept, settings.top_p)
        choice = _invert(kept, uniforms)
    chosen = look_up_by_row(logits, choice[:, None])
    chosen = jnp.where(jnp.abs(chosen) < _LARGEST, chosen, jnp.nan)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return Drawn(choice, (chosen - peak - jnp.log(total))[:, 0])


def _among(
    legal: Bool[Array, "samples choices"], logits: Float[Array, "samples choices"]
) -> Float[Array, "samples choices"]:
    """Masks tokens that are not legal, so that none is drawn whatever the logits are.

    A damaged model may have logits that are NaN or infinite. If a legal token's logit is NaN,
    infinite or far too large, it is set to the largest value. That token is then drawn, and `draw`
    reports its log-probability as NaN.
    """
    numbers = jnp.where(logits < _LARGEST, jnp.maximum(logits, -_LARGEST), _LARGEST)
    return jnp.where(legal, numbers, MASKED)


def log_prob_of(
    logits: Float[Array, "samples choices"], token: Int[Array, " samples"]
) -> Float[Array, " samples"]:
    """The log-probability of one choice per row at temperature 1, in nats."""
    chosen = jnp.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def _invert(
    weights: Float[Array, "samples choices"], uniforms: Float[Array, " samples"]
) -> Int[Array, " samples"]:
    """The first choice whose cumulative weight exceeds the uniform number times the total."""
    rows, choices = weights.shape
    if choices <= _BLOCK:
        upto = jnp.cumsum(weights, axis=-1)
        return _first_above(weights, upto, uniforms * upto[:, -1])
    blocks = jnp.pad(weights, ((0, 0), (0, -choices % _BLOCK))).reshape(rows, -1, _BLOCK)
    sums = jnp.sum(blocks, axis=-1)
    upto = jnp.cumsum(sums, axis=-1)
    threshold = uniforms * upto[:, -1]
    block = _first_above(sums, upto, threshold)[:, None]
    inside = look_up_by_row(blocks, block)[:, 0]
    before = look_up_by_row(upto - sums, block)[:, 0]
    within = _first_above(inside, jnp.cumsum(inside, axis=-1), threshold - before)
    return block[:, 0] * _BLOCK + within


def _first_above(
    weights: Float[Array, "samples choices"],
    upto: Float[Array, "samples choices"],
    thresholds: Float[Array, " samples"],
) -> Int[Array, " samples"]:
    """The first choice with positive weight whose cumulative sum exceeds the threshold.

    If rounding puts the threshold past all sums, the first choice with the greatest sum.
    """
    upto = jnp.where(weights > 0, upto, -1.0)
    highest = jnp.nextafter(jnp.max(upto, axis=-1), -1.0)
    above = upto > jnp.minimum(thresholds, highest)[:, None]
    return jnp.argmax(above, axis=-1).astype(jnp.int32)


def _nucleus(weights: Float[Array, "samples choices"], top_p: float) -> Array:
    """Zeroes all but the largest weights that together reach `top_p` of the total, with ties."""
    falling = jnp.flip(jnp.sort(weights, axis=-1), -1)
    before = jnp.cumsum(falling, axis=-1) - falling
    inside = before < top_p * jnp.sum(falling, axis=-1, keepdims=True)
    least = jnp.min(jnp.where(inside, falling, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(weights >= least, weights, 0.0)


class LogitsOf(NamedTuple):
    """Logits on demand: only those that are needed are computed.

    Attributes:
      rows: returns all logits of the rows with the given indices, [rows, vocab].
      tokens: returns the logits of the given tokens for every row, [samples, tokens].
    """

    rows: Callable[[Int[Array, " rows"]], Float[Array, "rows vocab"]]
    tokens: Callable[[Int[Array, "samples tokens"]], Float[Array, "samples tokens"]]


class Logits(NamedTuple):
    """What rows draw from.

    Attributes:
      of: logits on demand.
      by_row: returns all logits of all rows, [batch, vocab].
      totals: the logarithm of the sum of their exponentials; None if it isn't wanted.
    """

    of: LogitsOf
    by_row: Callable[[], Float[Array, "batch vocab"]]
    totals: Float[Array, " batch"] | None


def given(logits: Float[Array, "samples vocab"]) -> LogitsOf:
    """Wraps logits that have been computed already."""
    return LogitsOf(
        lambda rows: look_up(logits, rows), lambda tokens: look_up_by_row(logits, tokens)
    )


def draw_allowed(
    logits: LogitsOf,
    uniforms: Float[Array, " samples"],
    settings: SamplingSettings,
    done: Bool[Array, " samples"],
    tables: QuoteTables,
    state: QuoteState,
    left: Int[Array, " samples"],
) -> Drawn:
    """Draws one allowed token per row.

    Inside titles and quotes, few tokens are allowed, and only their logits are computed. Rows that
    allow more tokens, mostly those in claims, are gathered and drawn separately, so that the other
    rows need neither all logits nor a softmax over the vocabulary. They are gathered into one of
    a few sizes: an eighth, a quarter, half or all of the batch, but at least eight rows if there
    are so many.

    Args:
      logits: the model's logits.
      uniforms: one uniform number in [0, 1) per row.
      settings: temperature, top-k and top-p, which apply to the allowed tokens.
      done: rows that have ended; their draws are ignored.
      tables: what may be quoted.
      state: each row's state in its graph.
      left: number of tokens that each row may still have, including this one.

    Returns:
      Token ids, with log-probabilities renormalised over the allowed tokens.
    """
    samples = uniforms.shape[0]
    tokens, legal = edges = edges_allowed(tables, state, left, 0, THIN)
    few = draw(_among(legal, logits.tokens(tokens)), uniforms, settings)
    thin = Drawn(look_up_by_row(tokens, few.token[:, None])[:, 0], few.log_prob)
    wide = ((look_up(tables.claim, state.node) >= 0) | (degrees(tables, state) > THIN)) & ~done
    parts = (-(-samples // part) for part in (8, 4, 2, 1))
    sizes = sorted({0, *(min(samples, max(_FEWEST_ROWS, part)) for part in parts)})

    def draw_rows(size: int) -> Callable[[], Drawn]:
        def run() -> Drawn:
            # Padding repeats row 0, whose draw is ignored unless it is wide (see the last line).
            chosen = jnp.nonzero(wide, size=size, fill_value=0)[0]
            of_all = state, left, uniforms, edges
            of_chosen = jax.tree.map(lambda leaf: look_up(leaf, chosen), of_all)
            # Models may have more logits than the vocabulary has tokens.
            all_logits = logits.rows(chosen)[:, : tables.claim_next.shape[1]]
            its_state, its_left, its_uniforms, its_edges = of_chosen
            mask = allowed(tables, its_state, its_left, its_edges)
            drawn = draw(_among(mask, all_logits), its_uniforms, settings)
            put = lambda old, new: old.at[chosen].set(new, wrap_negative_indices=False)  # noqa: E731
            return jax.tree.map(put, thin, drawn)

        return run if size else lambda: thin

    bucket = jnp.sum(jnp.sum(wide) > jnp.asarray(sizes[:-1]))
    drawn = jax.lax.switch(bucket, [draw_rows(size) for size in sizes])
    return jax.tree.map(lambda a, b: jnp.where(wide, a, b), drawn, thin)

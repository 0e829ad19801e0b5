"""Sampling continuations of prompts with a key-value cache, in one compiled program."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding.quote_state import (
    THIN,
    QuoteState,
    QuoteTables,
    advance,
    allowed,
    degrees,
    edges_allowed,
    initial,
)
from gophercite.models.attention import MASKED
from gophercite.models.transformer import Cache, Params, Transformer

# Prompts are padded to a multiple of this, so that few programs serve all lengths.
_BUCKET = 64


@dataclasses.dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn.

    Attributes:
      max_tokens: tokens a sample may have, its end-of-sequence among them.
      temperature: divides logits before the draw; 0 takes the likeliest token.
      top_p: draw from the smallest set of tokens with this much probability (Holtzman et al. 2020).
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuses settings outside their range, naming the field.

        Raises:
          ValueError: a field is out of range.
        """
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens = {self.max_tokens}: must be at least 1")
        if not self.temperature >= 0:
            raise ValueError(f"temperature = {self.temperature}: must be 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: must be in (0, 1]")


class Samples(NamedTuple):
    """Continuations, one a prompt.

    Attributes:
      tokens: sampled ids, the end-of-sequence included; padding after it.
      lengths: tokens of each sample, the end-of-sequence included.
      log_probs: log-probability of each token under the model itself (temperature 1, all tokens),
        in nats; 0 on padding.
      constrained_log_probs: the same among the tokens that the quotes' constraint allowed; None
        where there was none.
    """

    tokens: Int[np.ndarray, "samples max_tokens"]
    lengths: Int[np.ndarray, " samples"]
    log_probs: Float[np.ndarray, "samples max_tokens"]
    constrained_log_probs: Float[np.ndarray, "samples max_tokens"] | None


class _Progress(NamedTuple):
    """What the loop carries: everything about the samples so far."""

    step: Int[Array, ""]
    tokens: Int[Array, "samples max_tokens"]
    log_probs: Float[Array, "samples max_tokens"]
    constrained_log_probs: Float[Array, "samples max_tokens"] | None
    done: Bool[Array, " samples"]
    logits: Float[Array, "samples vocab"]
    cache: Cache
    quote: QuoteState | None


def sample(
    transformer: Transformer,
    params: Params,
    prompts: Sequence[Sequence[int]],
    key: Key[Array, ""],
    settings: SamplingSettings,
    *,
    eos_id: int,
    pad_id: int,
    quotes: QuoteTables | None = None,
) -> Samples:
    """Continues each prompt until its end-of-sequence or `settings.max_tokens`.

    Args:
      transformer: the model.
      params: its parameters.
      prompts: token ids, of any lengths but none.
      key: of the draws; row i's depend on it and on i alone, not on the rows beside it.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills what lies after it.
      quotes: the prompts' tables (`QuoteConstraint.tables`), in their order, to sample answers with
        verbatim quotes alone; temperature and top-p then apply to the tokens that are allowed.

    Returns:
      One sample a prompt, on the host.

    Raises:
      ValueError: there is no prompt, or one is empty.
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    if lengths.size == 0 or lengths.min() == 0:
        raise ValueError("sampling needs at least one prompt, and at least one token in each")
    width = -(-int(lengths.max()) // _BUCKET) * _BUCKET
    tokens = np.full((len(prompts), width), pad_id, np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    rows = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(prompts)))
    ids, sizes, log_probs, constrained = _decode(
        transformer, settings, eos_id, pad_id, params, tokens, lengths, rows, quotes
    )
    return Samples(
        np.asarray(ids),
        np.asarray(sizes),
        np.asarray(log_probs),
        np.asarray(constrained) if constrained is not None else None,
    )


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _decode(
    transformer: Transformer,
    settings: SamplingSettings,
    eos_id: int,
    pad_id: int,
    params: Params,
    prompts: Int[Array, "samples length"],
    lengths: Int[Array, " samples"],
    keys: Key[Array, " samples"],
    quotes: QuoteTables | None,
) -> tuple[Array, Array, Array, Array | None]:
    """Prefill, then one token a turn until all samples have ended."""
    count, width = prompts.shape
    slots = width + settings.max_tokens
    hidden, cache = transformer.prefill(params, prompts, lengths, slots)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    zeros = jnp.zeros((count, settings.max_tokens), jnp.float32)
    start = _Progress(
        step=jnp.zeros((), jnp.int32),
        tokens=jnp.full((count, settings.max_tokens), pad_id, jnp.int32),
        log_probs=zeros,
        constrained_log_probs=zeros if quotes is not None else None,
        done=jnp.zeros(count, bool),
        logits=transformer.logits(params, last)[:, 0],
        cache=cache,
        quote=initial(quotes, jnp.arange(count)) if quotes is not None else None,
    )

    def unfinished(now: _Progress) -> Array:
        return (now.step < settings.max_tokens) & ~jnp.all(now.done)

    def turn(now: _Progress) -> _Progress:
        put: Any = partial(jax.lax.dynamic_update_index_in_dim, index=now.step, axis=1)
        draws = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, now.step)))(keys)
        constrained = now.constrained_log_probs
        quote = now.quote
        if quotes is None or quote is None:
            drawn = draw(now.logits, draws, settings)
        else:
            left = jnp.full((count,), settings.max_tokens - now.step)
            drawn, log_prob = draw_allowed(
                now.logits, draws, settings, now.done, quotes, quote, left
            )
            constrained = put(constrained, jnp.where(now.done, 0.0, log_prob))
            quote = advance(quotes, quote, drawn)
        token = jnp.where(now.done, pad_id, drawn)
        log_prob = _log_prob(now.logits, drawn)
        positions = (lengths + now.step)[:, None]
        alive = ~now.done[:, None]
        hidden, cache = transformer.decode(params, token[:, None], positions, alive, now.cache)
        return _Progress(
            step=now.step + 1,
            tokens=put(now.tokens, token),
            log_probs=put(now.log_probs, jnp.where(now.done, 0.0, log_prob)),
            constrained_log_probs=constrained,
            done=now.done | (token == eos_id),
            logits=transformer.logits(params, hidden)[:, 0],
            cache=cache,
            quote=quote,
        )

    end = jax.lax.while_loop(unfinished, turn, start)
    # A sample ends with its first end-of-sequence, or at the limit.
    ended = end.tokens == eos_id
    full = jnp.full((count,), settings.max_tokens, jnp.int32)
    sizes = jnp.where(ended.any(axis=1), jnp.argmax(ended, axis=1).astype(jnp.int32) + 1, full)
    return end.tokens, sizes, end.log_probs, end.constrained_log_probs


def _log_prob(
    logits: Float[Array, "samples vocab"], token: Int[Array, " samples"]
) -> Float[Array, " samples"]:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=1)[:, 0]


def draw_allowed(
    logits: Float[Array, "samples vocab"],
    uniforms: Float[Array, " samples"],
    settings: SamplingSettings,
    done: Bool[Array, " samples"],
    tables: QuoteTables,
    state: QuoteState,
    left: Int[Array, " samples"],
) -> tuple[Int[Array, " samples"], Float[Array, " samples"]]:
    """One allowed token a row, and its log-probability among the allowed ones.

    Inside titles and quotes few tokens are allowed. When no row has more, only their logits are
    looked at: neither a softmax over the vocabulary nor its cumulative sum is made.

    Args:
      logits: the model's.
      uniforms: one draw from [0, 1) a row.
      settings: temperature and top-p, which apply to the allowed tokens.
      done: rows that have ended; what they draw means nothing.
      tables: what may be quoted.
      state: of each row.
      left: tokens that each row may still have, this one included.

    Returns:
      Token ids; log-probabilities in nats, at temperature 1.
    """
    logits = logits[:, : tables.claim_next.shape[1]]  # models may have rows to spare

    def among_few() -> tuple[Array, Array]:
        tokens, legal = edges_allowed(tables, state, left, 0, THIN)
        few = jnp.where(legal, jnp.take_along_axis(logits, tokens, axis=1), MASKED)
        place = draw(few, uniforms, settings)
        return jnp.take_along_axis(tokens, place[:, None], axis=1)[:, 0], _log_prob(few, place)

    def among_all() -> tuple[Array, Array]:
        masked = jnp.where(allowed(tables, state, left), logits, MASKED)
        token = draw(masked, uniforms, settings)
        return token, _log_prob(masked, token)

    wide = (tables.claim[state.node] >= 0) | (degrees(tables, state) > THIN)
    return jax.lax.cond(jnp.any(wide & ~done), among_all, among_few)


def draw(
    logits: Float[Array, "samples vocab"],
    uniforms: Float[Array, " samples"],
    settings: SamplingSettings,
) -> Int[Array, " samples"]:
    """One token a row by inverting the cumulative distribution.

    One uniform number a row is enough, where Gumbel noise needs one for each token of the
    vocabulary.

    Args:
      logits: unnormalised log-probabilities.
      uniforms: one draw from [0, 1) a row.
      settings: temperature and top-p.

    Returns:
      Token ids. Greedy ties go to the smaller id.
    """
    if settings.temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    probabilities = jax.nn.softmax(logits / settings.temperature, axis=-1)
    if settings.top_p < 1:
        probabilities = _nucleus(probabilities, settings.top_p)
    cumulative = jnp.cumsum(probabilities, axis=-1)
    threshold = uniforms[:, None] * cumulative[:, -1:]
    token = jnp.sum(cumulative <= threshold, axis=-1)
    # Rounding may carry a threshold to the very top, past the last token that can be drawn.
    last = probabilities.shape[-1] - 1 - jnp.argmax(jnp.flip(probabilities > 0, -1), axis=-1)
    return jnp.minimum(token, last).astype(jnp.int32)


def _nucleus(
    probabilities: Float[Array, "samples vocab"], top_p: float
) -> Float[Array, "samples vocab"]:
    """Zeroes all but the smallest set of likeliest tokens that holds `top_p` of the probability."""
    falling = jnp.flip(jnp.sort(probabilities, axis=-1), -1)
    before = jnp.cumsum(falling, axis=-1) - falling
    kept = jnp.where(before < top_p, falling, jnp.inf)
    return jnp.where(probabilities >= jnp.min(kept, axis=-1, keepdims=True), probabilities, 0.0)

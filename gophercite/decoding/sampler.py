"""Sampling continuations of prompts with a key-value cache, in one compiled program.

Each prompt is read once, and its samples share its keys and values. There are as many rows in
flight as memory is meant to hold; a row whose sample has ended goes on with its prompt's next one,
so that the rows are busy until the prompt's last samples.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import watching
from gophercite.decoding.drawing import Drawn, LogitsOf, draw, draw_allowed, given, log_prob_of
from gophercite.decoding.quote_state import QuoteState, QuoteTables, advance, initial
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.cache import Cache, forget_rows
from gophercite.models.transformer import Params, Transformer, unstack_layers


class Samples(NamedTuple):
    """Continuations; those of one prompt are neighbours.

    Attributes:
      tokens: sampled ids, the end-of-sequence included; padding after it.
      lengths: tokens of each sample, the end-of-sequence included.
      log_probs: log-probability of each token under the model itself (temperature 1, all tokens),
        in nats; 0 on padding. None where the settings left it out.
      constrained_log_probs: the same among the tokens that the quotes' constraint allowed; None
        where there was none.
      faults: what is wrong with each sample, as sets of bits (`response_automaton.faults_of`); None
        where nobody watched.
    """

    tokens: Int[np.ndarray, "samples max_tokens"]
    lengths: Int[np.ndarray, " samples"]
    log_probs: Float[np.ndarray, "samples max_tokens"] | None
    constrained_log_probs: Float[np.ndarray, "samples max_tokens"] | None
    faults: Int[np.ndarray, " samples"] | None


def sample(
    transformer: Transformer,
    params: Params,
    prompts: Sequence[Sequence[int]],
    key: Key[Array, ""] | Key[Array, " prompts"],
    settings: SamplingSettings,
    *,
    eos_id: int,
    pad_id: int,
    quotes: QuoteTables | None = None,
    watch: watching.WatchTables | None = None,
    samples_per_prompt: int = 1,
    rows_per_prompt: int | None = None,
    vocabulary_size: int | None = None,
) -> Samples:
    """Continues each prompt until its end-of-sequence or `settings.max_tokens`.

    Args:
      transformer: the model.
      params: its parameters.
      prompts: token ids, of any lengths but none.
      key: of the draws, or one for each prompt. Sample j of prompt i draws by (key i, j, place of
        the token) and by nothing else: not by what is sampled beside it. A single key is folded
        with i.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills what lies after it.
      quotes: the prompts' tables (`QuoteConstraint.tables`), in their order, to sample answers with
        verbatim quotes alone; temperature, top-k and top-p then apply to the tokens that are
        allowed.
      watch: the prompts' tables (`FaultWatch.tables`), in their order, to learn samples' faults.
      samples_per_prompt: how many samples each prompt gets.
      rows_per_prompt: samples of a prompt that are in flight at a time, which bounds the memory of
        keys and values; all when None.
      vocabulary_size: the model's ids from here on are rows to spare, and never drawn; it has none
        when None.

    Returns:
      The samples, on the host.

    Raises:
      ValueError: there is no prompt, or one is empty; or there are no samples to make.
    """
    tokens, lengths = padded_rows(prompts, pad_id, "prompt")
    rows = samples_per_prompt if rows_per_prompt is None else rows_per_prompt
    if samples_per_prompt < 1 or rows < 1:
        raise ValueError(
            f"samples_per_prompt = {samples_per_prompt} and rows_per_prompt = {rows_per_prompt}: "
            "both must be at least 1"
        )
    keys = (
        jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(prompts)))
        if key.ndim == 0
        else key
    )
    plan = _Plan(
        transformer,
        settings,
        eos_id,
        pad_id,
        vocabulary_size or transformer.config.vocab_size,
        samples_per_prompt,
        min(rows, samples_per_prompt),
    )
    made = _decode(plan, params, tokens, lengths, keys, quotes, watch)
    return Samples(*(np.asarray(part) if part is not None else None for part in made))  # type: ignore[arg-type]


class _Made(NamedTuple):
    """What has been sampled, by prompt and sample."""

    tokens: Int[Array, "prompts samples max_tokens"]
    lengths: Int[Array, "prompts samples"]
    log_probs: Float[Array, "prompts samples max_tokens"] | None
    constrained_log_probs: Float[Array, "prompts samples max_tokens"] | None
    faults: Int[Array, "prompts samples"] | None


class _Progress(NamedTuple):
    """What the loop carries.

    Attributes:
      made: the samples so far.
      sample: which of its prompt's samples each row is at; none any more where there are no such.
      place: of the next token in it.
      hidden: the representation that the next token is drawn from.
      cache: keys and values.
      quote: where each row is in its prompt's graph.
      watch: what is wrong with each row's sample so far.
    """

    made: _Made
    sample: Int[Array, "prompts rows"]
    place: Int[Array, "prompts rows"]
    hidden: Float[Array, "batch d_model"]
    cache: Cache
    quote: QuoteState | None
    watch: watching.WatchState | None


@dataclasses.dataclass(frozen=True)
class _Plan:
    """What a program is compiled for, beside shapes; `sample` says what the parts are."""

    transformer: Transformer
    settings: SamplingSettings
    eos_id: int
    pad_id: int
    vocabulary_size: int
    samples: int
    rows: int


@partial(jax.jit, static_argnums=0)
def _decode(
    plan: _Plan,
    params: Params,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
    keys: Key[Array, " prompts"],
    quotes: QuoteTables | None,
    watch: watching.WatchTables | None,
) -> _Made:
    """Prefill, then one token a row and turn until all samples have ended."""
    transformer, samples, rows = plan.transformer, plan.samples, plan.rows
    count, longest = prompts.shape[0], plan.settings.max_tokens
    hidden, cache = transformer.prefill(params, prompts, lengths, longest, rows)
    if not transformer.config.scan_layers:
        params = unstack_layers(params)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    from_prompts = jnp.repeat(last[:, 0], rows, axis=0)
    of_row = jnp.repeat(jnp.arange(count), rows)
    first = initial(quotes, of_row) if quotes is not None else None
    unread = watching.initial(watch, of_row) if watch is not None else None
    shape = (count, samples, longest)
    zeros = jnp.zeros(shape, jnp.float32)
    start = _Progress(
        made=_Made(
            jnp.full(shape, plan.pad_id, jnp.int32),
            jnp.zeros(shape[:2], jnp.int32),
            zeros if quotes is None or plan.settings.free_log_probs else None,
            zeros if quotes is not None else None,
            jnp.zeros(shape[:2], jnp.int32) if watch is not None else None,
        ),
        sample=jnp.broadcast_to(jnp.arange(rows), (count, rows)),
        place=jnp.zeros((count, rows), jnp.int32),
        hidden=from_prompts,
        cache=cache,
        quote=first,
        watch=unread,
    )

    def turn(now: _Progress) -> _Progress:
        alive = now.sample < samples
        drawn, free = _draw(plan, params, keys, quotes, now, alive)
        token = jnp.where(alive, drawn.token.reshape(alive.shape), plan.pad_id)
        seen = faults = None
        if watch is not None and now.watch is not None:
            seen = watching.advance(watch, now.watch, token.reshape(-1))
            faults = watching.faults(watch, seen)
        constrained = drawn.log_prob if quotes is not None else None
        made = _written(now, alive, token, free, constrained, faults)

        ended = alive & ((token == plan.eos_id) | (now.place == longest - 1))
        # The prompt's next samples, dealt out to the rows that are free now.
        dealt = jnp.max(now.sample, axis=1, keepdims=True) + jnp.cumsum(ended, axis=1)
        following = jnp.where(ended, dealt, now.sample)
        goes_on = alive & ~ended
        hidden, cache = transformer.decode(
            params,
            token.reshape(-1, 1),
            (lengths[:, None] + now.place).reshape(-1, 1),
            goes_on.reshape(-1, 1),
            now.cache,
        )
        fresh = ended.reshape(-1)
        quote = now.quote
        if quotes is not None and quote is not None:
            quote = advance(quotes, quote, token.reshape(-1))
        return _Progress(
            made,
            following,
            jnp.where(ended, 0, now.place + 1),
            jnp.where(fresh[:, None], from_prompts, hidden[:, 0]),
            forget_rows(cache, ended),
            jax.tree.map(partial(jnp.where, fresh), first, quote),
            jax.tree.map(partial(jnp.where, fresh), unread, seen),
        )

    end = jax.lax.while_loop(lambda now: jnp.any(now.sample < samples), turn, start)
    return jax.tree.map(lambda part: part.reshape(count * samples, *part.shape[2:]), end.made)


def _draw(
    plan: _Plan,
    params: Params,
    keys: Key[Array, " prompts"],
    quotes: QuoteTables | None,
    now: _Progress,
    alive: Bool[Array, "prompts rows"],
) -> tuple[Drawn, Float[Array, " batch"] | None]:
    """A token a row, and what the model itself thinks of it where that is wanted."""
    settings = plan.settings

    def uniform(key: Array, sample: Array, place: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, sample), place))

    def all_logits(hidden: Array) -> Array:
        logits = plan.transformer.logits(params, hidden[:, None])[:, 0]
        return logits[:, : plan.vocabulary_size]

    by_row = jax.vmap(jax.vmap(uniform, in_axes=(None, 0, 0)))
    uniforms = by_row(keys, now.sample, now.place).reshape(-1)
    if quotes is None or now.quote is None:
        drawn = draw(all_logits(now.hidden), uniforms, settings)
        return drawn, drawn.log_prob
    everything = all_logits(now.hidden) if settings.free_log_probs else None
    if everything is not None:
        logits = given(everything)
    else:
        logits = LogitsOf(
            lambda rows: all_logits(now.hidden[rows]),
            lambda tokens: plan.transformer.logits_of(params, now.hidden, tokens),
        )
    left = (settings.max_tokens - now.place).reshape(-1)
    drawn = draw_allowed(logits, uniforms, settings, ~alive.reshape(-1), quotes, now.quote, left)
    free = log_prob_of(everything, drawn.token) if everything is not None else None
    return drawn, free


def _written(
    now: _Progress,
    alive: Bool[Array, "prompts rows"],
    token: Int[Array, "prompts rows"],
    free: Float[Array, " batch"] | None,
    constrained: Float[Array, " batch"] | None,
    faults: Int[Array, " batch"] | None,
) -> _Made:
    """The samples with a token more; rows that have nothing left to do write nowhere."""
    prompt = jnp.broadcast_to(jnp.arange(alive.shape[0])[:, None], alive.shape)
    at = (prompt, now.sample)

    def put(old: Array | None, place: tuple[Array, ...], new: Array | None) -> Array | None:
        if old is None or new is None:
            return None
        return old.at[place].set(new.reshape(alive.shape), mode="drop")

    made = now.made
    return _Made(
        made.tokens.at[*at, now.place].set(token, mode="drop"),
        made.lengths.at[at].set(now.place + 1, mode="drop"),
        put(made.log_probs, (*at, now.place), free),
        put(made.constrained_log_probs, (*at, now.place), constrained),
        put(made.faults, at, faults),
    )

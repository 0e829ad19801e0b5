"""The compiled program that samples: prefill, then a few tokens a row and turn.

`decode` is pure and stays on the device; `sampler.sample` prepares its input and takes the samples
to the host.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import watching
from gophercite.decoding.decoded import Decoded, nothing_yet, with_boundary
from gophercite.decoding.drawing import (
    Drawn,
    LogitsOf,
    draw,
    draw_allowed,
    draw_thin,
    given,
    log_prob_of,
)
from gophercite.decoding.in_flight import rooms
from gophercite.decoding.quote_state import QuoteState, QuoteTables, advance, initial
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.speculation import accepted, draft
from gophercite.models.cache import Cache, compact, forget_rows, keep_first, with_room
from gophercite.models.parameters import Params, join_projections, unstack_layers
from gophercite.models.transformer import Reading, Transformer

# Drafted tokens that were not drawn leave empty slots in the cache; after so many turns at the
# least are the rest moved together.
_TURNS_WITHOUT_MOVING = 4


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a program is compiled for, beside shapes.

    Attributes:
      transformer: the model.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills what lies after it.
      vocabulary_size: ids from here on are never drawn.
      samples: of each prompt, at most.
      rows: of each prompt that are in flight at a time.
      boundary: whether what the trained stack read is wanted too.
      other_eos_ids: tokens that end a sample as well; no constraint allows them.
    """

    transformer: Transformer
    settings: SamplingSettings
    eos_id: int
    pad_id: int
    vocabulary_size: int
    samples: int
    rows: int
    boundary: bool = False
    other_eos_ids: tuple[int, ...] = ()


class _Rows(NamedTuple):
    """What stays as it is while rows are at work.

    Attributes:
      params: the model's, taken apart where that is faster.
      lengths: tokens of each prompt.
      counts: samples of each prompt.
      keys: of each prompt.
      hidden: the representation that each row's samples begin from.
      quotes: what may be quoted.
      quote: where samples begin in it.
      watch: what to find fault with.
      unread: the watch's state before a sample.
    """

    params: Params
    lengths: Int[Array, " prompts"]
    counts: Int[Array, " prompts"]
    keys: Key[Array, " prompts"]
    hidden: Float[Array, "batch d_model"]
    quotes: QuoteTables | None
    quote: QuoteState | None
    watch: watching.WatchTables | None
    unread: watching.WatchState | None


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

    made: Decoded
    sample: Int[Array, "prompts rows"]
    place: Int[Array, "prompts rows"]
    hidden: Float[Array, "batch d_model"]
    cache: Cache
    quote: QuoteState | None
    watch: watching.WatchState | None


@partial(jax.jit, static_argnums=0)
def decode(
    plan: Plan,
    params: Params,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
    keys: Key[Array, " prompts"],
    quotes: QuoteTables | None,
    watch: watching.WatchTables | None,
    counts: Int[Array, " prompts"] | None = None,
) -> Decoded:
    """Samples until all samples have ended.

    Args:
      plan: what for.
      params: the model's parameters.
      prompts: token ids, padded on the right.
      lengths: how many of them are real.
      keys: of the draws.
      quotes: the prompts' tables, for answers with verbatim quotes alone.
      watch: the prompts' tables, for what is wrong with each sample.
      counts: samples of each prompt, 0 for one that only fills the batch up; all have
        `plan.samples` when None.

    Returns:
      The samples; those that a prompt does not have are empty.
    """
    transformer, settings = plan.transformer, plan.settings
    drafts = settings.draft_tokens if quotes is not None else 0
    room = settings.max_tokens + (_TURNS_WITHOUT_MOVING * (drafts + 1) if drafts else 0)
    first, *larger = rooms(transformer.config, len(prompts) * plan.rows, room)
    hidden, cache, boundary = transformer.prefill(params, prompts, lengths, room, plan.rows, first)
    last = jnp.take_along_axis(hidden, (lengths - 1)[:, None, None], axis=1)
    of_row = jnp.repeat(jnp.arange(len(prompts)), plan.rows)
    rows = _Rows(
        params if transformer.config.scan_layers else join_projections(unstack_layers(params)),
        lengths,
        jnp.full_like(lengths, plan.samples) if counts is None else counts,
        keys,
        jnp.repeat(last[:, 0], plan.rows, axis=0),
        quotes,
        initial(quotes, of_row) if quotes is not None else None,
        watch,
        watching.initial(watch, of_row) if watch is not None else None,
    )
    now = _beginning(plan, rows, cache, boundary)

    def at_work(now: _Progress) -> Bool[Array, ""]:
        return jnp.any(_alive(rows, now))

    def fits(cache: Cache) -> Bool[Array, ""]:
        return cache.slots.next + drafts + 1 <= cache.slots.filled.shape[2]

    def turns(now: _Progress) -> _Progress:
        if not drafts:
            return _turn(plan, rows, 0, now)
        # Loops, not branches: what they carry is rewritten in place.
        for drafted, where in ((0, False), (drafts, True)):
            goes_on = lambda now, where=where: (  # noqa: E731
                at_work(now) & fits(now.cache) & (_mostly_outside_claims(rows, now) == where)
            )
            now = jax.lax.while_loop(goes_on, partial(_turn, plan, rows, drafted), now)
        return now

    def turns_and_moving(now: _Progress) -> _Progress:
        now = turns(now)
        return now._replace(cache=jax.lax.while_loop(lambda x: ~fits(x), compact, now.cache))

    for more in larger:
        now = jax.lax.while_loop(lambda now: at_work(now) & fits(now.cache), turns, now)
        now = now._replace(cache=with_room(now.cache, more))
    # In the end there is room for the longest sample, and slots are taken anew.
    return jax.lax.while_loop(at_work, turns_and_moving if drafts else turns, now).made


def _alive(rows: _Rows, now: _Progress) -> Bool[Array, "prompts rows"]:
    """Which rows have a sample to draw."""
    return now.sample < rows.counts[:, None]


def _mostly_outside_claims(rows: _Rows, now: _Progress) -> Bool[Array, ""]:
    """Whether most rows are in titles and quotes, where tokens can be drafted."""
    assert rows.quotes is not None
    assert now.quote is not None
    alive = _alive(rows, now).reshape(-1)
    outside = alive & (rows.quotes.claim[now.quote.node] < 0)
    return 2 * jnp.sum(outside) > jnp.sum(alive)


def _beginning(
    plan: Plan, rows: _Rows, cache: Cache, boundary: Float[Array, "prompts length d_model"]
) -> _Progress:
    """Before the first turn."""
    count = rows.lengths.shape[0]
    constrained = rows.quotes is not None
    return _Progress(
        made=nothing_yet(
            (count, plan.samples, plan.settings.max_tokens),
            plan.pad_id,
            free=not constrained or plan.settings.free_log_probs,
            constrained=constrained,
            watched=rows.watch is not None,
            boundary=boundary if plan.boundary else None,
        ),
        sample=jnp.broadcast_to(jnp.arange(plan.rows), (count, plan.rows)),
        place=jnp.zeros((count, plan.rows), jnp.int32),
        hidden=rows.hidden,
        cache=cache,
        quote=rows.quote,
        watch=rows.unread,
    )


def _turn(plan: Plan, rows: _Rows, drafts: int, now: _Progress) -> _Progress:
    """A token for each row, then those of its draft that are drawn in their places."""
    alive = _alive(rows, now)
    logits, everything = _logits(plan, rows, now.hidden)
    uniforms = _uniforms(rows.keys, now.sample, now.place).reshape(-1)
    quote = now.quote
    if rows.quotes is not None and quote is not None:
        left = (plan.settings.max_tokens - now.place).reshape(-1)
        dead = ~alive.reshape(-1)
        drawn = draw_allowed(logits, uniforms, plan.settings, dead, rows.quotes, quote, left)
        quote = advance(rows.quotes, quote, drawn.token)
    elif everything is not None:
        drawn = draw(everything, uniforms, plan.settings)
    token = jnp.where(alive, drawn.token.reshape(alive.shape), plan.pad_id)
    now = _with_tokens(rows, now, token[..., None], alive[..., None], drawn, everything)
    now = now._replace(quote=quote)
    ended = now.place == plan.settings.max_tokens
    for id in (plan.eos_id, *plan.other_eos_ids):
        ended |= token == id
    ended &= alive
    if drafts:
        now = _with_draft(plan, rows, drafts, now, token, alive & ~ended)
    else:
        goes_on = (alive & ~ended)[..., None]
        hidden, cache, boundary = _pass(plan, rows, now, token[..., None], goes_on)
        made = with_boundary(now.made, now.sample, now.place - 1, boundary, goes_on)
        now = now._replace(made=made, hidden=hidden[:, 0], cache=cache)

    # The prompt's next samples, dealt out to the rows that are free now.
    dealt = jnp.max(now.sample, axis=1, keepdims=True) + jnp.cumsum(ended, axis=1)
    fresh = ended.reshape(-1)
    return _Progress(
        now.made._replace(passes=now.made.passes + 1),
        jnp.where(ended, dealt, now.sample),
        jnp.where(ended, 0, now.place),
        jnp.where(fresh[:, None], rows.hidden, now.hidden),
        forget_rows(now.cache, ended),
        jax.tree.map(partial(jnp.where, fresh), rows.quote, now.quote),
        jax.tree.map(partial(jnp.where, fresh), rows.unread, now.watch),
    )


def _with_draft(
    plan: Plan,
    rows: _Rows,
    drafts: int,
    now: _Progress,
    token: Int[Array, "prompts rows"],
    goes_on: Bool[Array, "prompts rows"],
) -> _Progress:
    """Reads the token and a draft in one pass, and keeps of the draft what is drawn."""
    assert rows.quotes is not None
    assert now.quote is not None
    after = jnp.arange(drafts)
    left = (plan.settings.max_tokens - now.place).reshape(-1, 1)
    planned = draft(rows.quotes, now.quote, goes_on.reshape(-1), left[:, 0], drafts, plan.eos_id)
    by_row = lambda x: x.reshape(*token.shape, -1)  # noqa: E731
    tokens = jnp.concatenate([token[..., None], by_row(planned.tokens)], axis=2)
    real = jnp.concatenate([goes_on[..., None], by_row(planned.made)], axis=2)
    hidden, cache, boundary = _pass(plan, rows, now, tokens, real)

    logits, everything = _logits(plan, rows, hidden[:, :-1].reshape(-1, hidden.shape[-1]))
    uniforms = _uniforms(rows.keys, now.sample[..., None], now.place[..., None] + after)
    drawn = draw_thin(
        logits,
        uniforms.reshape(-1),
        plan.settings,
        rows.quotes,
        planned.before,
        (left - after).reshape(-1),
    )
    count = accepted(planned, drawn.token.reshape(planned.tokens.shape))
    kept = by_row(after < count[:, None])
    was_read = jnp.concatenate([goes_on[..., None], kept], axis=2)
    made = with_boundary(now.made, now.sample, now.place - 1, boundary, was_read)
    now = now._replace(made=made)
    now = _with_tokens(rows, now, tokens[..., 1:], kept, drawn, everything)
    return now._replace(
        hidden=jnp.take_along_axis(hidden, count[:, None, None], axis=1)[:, 0],
        cache=keep_first(cache, by_row(1 + count)[..., 0], drafts + 1),
        quote=planned.state_after(count),
    )


def _pass(
    plan: Plan,
    rows: _Rows,
    now: _Progress,
    tokens: Int[Array, "prompts rows length"],
    real: Bool[Array, "prompts rows length"],
) -> Reading:
    """Reads tokens, the first of them the last that was drawn."""
    length = tokens.shape[2]
    positions = (rows.lengths[:, None] + now.place - 1)[..., None] + jnp.arange(length)
    flat = tuple(x.reshape(-1, length) for x in (tokens, positions, real))
    return plan.transformer.decode(rows.params, flat[0], flat[1], flat[2], now.cache)


def _uniforms(
    keys: Key[Array, " prompts"],
    sample: Int[Array, "prompts *rows"],
    place: Int[Array, "prompts *rows"],
) -> Float[Array, "prompts *rows"]:
    """The number that each place of each sample is drawn by."""
    sample, place = jnp.broadcast_arrays(sample, place)

    def of_prompt(key: Array, sample: Array, place: Array) -> Array:
        def one(sample: Array, place: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, sample), place))

        return jax.vmap(one)(sample.reshape(-1), place.reshape(-1)).reshape(sample.shape)

    return jax.vmap(of_prompt)(keys, sample, place)


def _logits(
    plan: Plan, rows: _Rows, hidden: Float[Array, "batch d_model"]
) -> tuple[LogitsOf, Float[Array, "batch vocab"] | None]:
    """Where logits come from, and all of them where they are wanted anyway."""

    def of_all(hidden: Array) -> Array:
        logits = plan.transformer.logits(rows.params, hidden[:, None])[:, 0]
        return logits[:, : plan.vocabulary_size]

    if rows.quotes is None or plan.settings.free_log_probs:
        everything = of_all(hidden)
        return given(everything), everything
    some = LogitsOf(
        lambda chosen: of_all(hidden[chosen]),
        lambda tokens: plan.transformer.logits_of(rows.params, hidden, tokens),
    )
    return some, None


def _with_tokens(
    rows: _Rows,
    now: _Progress,
    tokens: Int[Array, "prompts rows length"],
    kept: Bool[Array, "prompts rows length"],
    drawn: Drawn,
    everything: Float[Array, "batch vocab"] | None,
) -> _Progress:
    """The samples with some tokens more: of each row the first ones, those that are kept."""
    made, free, constrained = now.made, None, None
    if rows.quotes is None:
        free = drawn.log_prob
    else:
        constrained = drawn.log_prob
        free = log_prob_of(everything, drawn.token) if everything is not None else None
    prompt = jnp.arange(len(tokens))[:, None, None]
    # What is not kept is written past the last sample, which is nowhere.
    sample = jnp.where(kept, now.sample[..., None], made.tokens.shape[1])
    place = now.place[..., None] + jnp.arange(tokens.shape[2])

    def put(old: Array, new: Array) -> Array:
        return old.at[prompt, sample, place].set(new.reshape(tokens.shape), mode="drop")

    def put_some(old: Array | None, new: Array | None) -> Array | None:
        return put(old, new) if old is not None and new is not None else None

    faults, seen = made.faults, now.watch
    if rows.watch is not None and seen is not None and faults is not None:
        for i in range(tokens.shape[2]):
            read = watching.advance(rows.watch, seen, tokens[..., i].reshape(-1))
            seen = jax.tree.map(partial(jnp.where, kept[..., i].reshape(-1)), read, seen)
        found = watching.faults(rows.watch, seen).reshape(kept.shape[:2])
        faults = faults.at[prompt[..., 0], sample[..., 0]].set(found, mode="drop")
    return now._replace(
        made=Decoded(
            put(made.tokens, tokens),
            made.lengths.at[prompt, sample].max(place + 1, mode="drop"),
            put_some(made.log_probs, free),
            put_some(made.constrained_log_probs, constrained),
            faults,
            made.passes,
            made.boundary,
        ),
        place=now.place + jnp.sum(kept, axis=2),
        watch=seen,
    )

"""The compiled program that samples: prefill, then a few tokens a row and turn.

`decode` is pure and stays on the device; `sampler.sample` prepares its input and takes the samples
to the host.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import watching
from gophercite.decoding.decode_state import Plan, Progress, Work, alive, begin_samples
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
from gophercite.decoding.speculation import accepted, draft
from gophercite.decoding.waiting_prompts import (
    ReadPrompts,
    any_waiting,
    can_be_seated,
    seat_next,
)
from gophercite.models.cache import Cache, compact, keep_first, with_room
from gophercite.models.parameters import Params, join_projections, unstack_layers
from gophercite.models.transformer import Reading
from gophercite.quoting.quote_state import QuoteTables, advance, initial

# Drafted tokens that were not drawn leave empty slots in the cache; after so many turns at the
# least are the rest moved together.
_TURNS_WITHOUT_MOVING = 4


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
    drafts = plan.settings.draft_tokens if quotes is not None else 0
    room = plan.settings.max_tokens + (_TURNS_WITHOUT_MOVING * (drafts + 1) if drafts else 0)
    scanned = plan.transformer.config.scan_layers
    work = Work(
        params if scanned else join_projections(unstack_layers(params)),
        jnp.full_like(lengths, plan.samples) if counts is None else counts,
        keys,
        quotes,
        watch,
    )
    seats = min(len(prompts), plan.seats or len(prompts))
    some_wait = seats < len(prompts)
    if some_wait and plan.boundary:
        raise ValueError(f"boundary = True needs a seat for each of {len(prompts)} prompts")
    # Rows that begin anew, again and again, need all their room.
    first, *larger = (
        (room,) if some_wait else rooms(plan.transformer.config, len(prompts) * plan.rows, room)
    )
    read = partial(_read, plan, params, room, first)
    now = _beginning(plan, work, read(prompts[:seats], lengths[:seats]), some_wait)

    def to_seat(now: Progress) -> Bool[Array, ""]:
        return can_be_seated(work, now) if some_wait else jnp.zeros((), bool)

    def at_work(now: Progress) -> Bool[Array, ""]:
        return jnp.any(alive(work, now)) & ~to_seat(now)

    def fits(cache: Cache) -> Bool[Array, ""]:
        return cache.slots.next + drafts + 1 <= cache.slots.filled.shape[2]

    def turns(now: Progress) -> Progress:
        if not drafts:
            return _turn(plan, work, 0, now)
        # Loops, not branches: what they carry is rewritten in place.
        for drafted, where in ((0, False), (drafts, True)):
            goes_on = lambda now, where=where: (  # noqa: E731
                at_work(now) & fits(now.cache) & (_mostly_outside_claims(work, now) == where)
            )
            now = jax.lax.while_loop(goes_on, partial(_turn, plan, work, drafted), now)
        return now

    def turns_and_moving(now: Progress) -> Progress:
        now = turns(now)
        return now._replace(cache=jax.lax.while_loop(lambda x: ~fits(x), compact, now.cache))

    for more in larger:
        now = jax.lax.while_loop(lambda now: at_work(now) & fits(now.cache), turns, now)
        now = now._replace(cache=with_room(now.cache, more))
    # In the end there is room for the longest sample, and slots are taken anew.
    to_the_end = partial(jax.lax.while_loop, at_work, turns_and_moving if drafts else turns)
    if not some_wait:
        return to_the_end(now).made

    def seat(now: Progress) -> Progress:
        return seat_next(lambda some: read(prompts[some], lengths[some]), work, now)

    return jax.lax.while_loop(
        lambda now: jnp.any(alive(work, now)) | any_waiting(work, now),
        lambda now: to_the_end(jax.lax.while_loop(to_seat, seat, now)),
        now,
    ).made


def _read(
    plan: Plan,
    params: Params,
    room: int,
    slots: int,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
) -> ReadPrompts:
    reading = plan.transformer.prefill(params, prompts, lengths, room, plan.rows, slots)
    last = jnp.take_along_axis(reading.hidden, (lengths - 1)[:, None, None], axis=1)
    return ReadPrompts(last[:, 0], reading.cache, reading.boundary)


def _mostly_outside_claims(work: Work, now: Progress) -> Bool[Array, ""]:
    """Whether most rows are in titles and quotes, where tokens can be drafted."""
    assert work.quotes is not None
    assert now.quote is not None
    at_work = alive(work, now).reshape(-1)
    outside = at_work & (work.quotes.claim[now.quote.node] < 0)
    return 2 * jnp.sum(outside) > jnp.sum(at_work)


def _beginning(plan: Plan, work: Work, read: ReadPrompts, some_wait: bool) -> Progress:
    """Before the first turn."""
    seats, prompts = read.last.shape[0], work.counts.shape[0]
    of_row = jnp.repeat(jnp.arange(seats), plan.rows)
    constrained = work.quotes is not None
    sample = jnp.broadcast_to(jnp.arange(plan.rows), (seats, plan.rows))
    return Progress(
        made=nothing_yet(
            (prompts, plan.samples, plan.settings.max_tokens),
            plan.pad_id,
            free=not constrained or plan.settings.free_log_probs,
            constrained=constrained,
            watched=work.watch is not None,
            boundary=read.boundary if plan.boundary else None,
        ),
        prompt=jnp.arange(seats) if some_wait else None,
        waiting=jnp.asarray(seats),
        last=read.last,
        sample=sample,
        place=jnp.zeros((seats, plan.rows), jnp.int32),
        hidden=jnp.repeat(read.last, plan.rows, axis=0),
        cache=read.cache,
        quote=initial(work.quotes, of_row, sample.reshape(-1)) if work.quotes is not None else None,
        watch=watching.initial(work.watch, of_row) if work.watch is not None else None,
    )


def _turn(plan: Plan, work: Work, drafts: int, now: Progress) -> Progress:
    """A token for each row, then those of its draft that are drawn in their places."""
    at_work = alive(work, now)
    logits, everything = _logits(plan, work, now.hidden)
    uniforms = _uniforms(work.keys[now.seated], now.sample, now.place).reshape(-1)
    quote = now.quote
    if work.quotes is not None and quote is not None:
        left = (plan.settings.max_tokens - now.place).reshape(-1)
        dead = ~at_work.reshape(-1)
        drawn = draw_allowed(logits, uniforms, plan.settings, dead, work.quotes, quote, left)
        quote = advance(work.quotes, quote, drawn.token)
    elif everything is not None:
        drawn = draw(everything, uniforms, plan.settings)
    token = jnp.where(at_work, drawn.token.reshape(at_work.shape), plan.pad_id)
    now = _with_tokens(work, now, token[..., None], at_work[..., None], drawn, everything)
    now = now._replace(quote=quote)
    ended = now.place == plan.settings.max_tokens
    for id in (plan.eos_id, *plan.other_eos_ids):
        ended |= token == id
    ended &= at_work
    if drafts:
        now = _with_draft(plan, work, drafts, now, token, at_work & ~ended)
    else:
        goes_on = (at_work & ~ended)[..., None]
        hidden, cache, boundary = _pass(plan, work, now, token[..., None], goes_on)
        made = with_boundary(now.made, now.sample, now.place - 1, boundary, goes_on)
        now = now._replace(made=made, hidden=hidden[:, 0], cache=cache)

    # The prompt's next samples, dealt out to the rows that are free now.
    dealt = jnp.max(now.sample, axis=1, keepdims=True) + jnp.cumsum(ended, axis=1)
    now = now._replace(
        made=now.made._replace(passes=now.made.passes + 1),
        sample=jnp.where(ended, dealt, now.sample),
    )
    return begin_samples(work, now, ended)


def _with_draft(
    plan: Plan,
    work: Work,
    drafts: int,
    now: Progress,
    token: Int[Array, "seats rows"],
    goes_on: Bool[Array, "seats rows"],
) -> Progress:
    """Reads the token and a draft in one pass, and keeps of the draft what is drawn."""
    assert work.quotes is not None
    assert now.quote is not None
    after = jnp.arange(drafts)
    left = (plan.settings.max_tokens - now.place).reshape(-1, 1)
    planned = draft(work.quotes, now.quote, goes_on.reshape(-1), left[:, 0], drafts, plan.eos_id)
    by_row = lambda x: x.reshape(*token.shape, -1)  # noqa: E731
    tokens = jnp.concatenate([token[..., None], by_row(planned.tokens)], axis=2)
    real = jnp.concatenate([goes_on[..., None], by_row(planned.made)], axis=2)
    hidden, cache, boundary = _pass(plan, work, now, tokens, real)

    logits, everything = _logits(plan, work, hidden[:, :-1].reshape(-1, hidden.shape[-1]))
    uniforms = _uniforms(work.keys[now.seated], now.sample[..., None], now.place[..., None] + after)
    drawn = draw_thin(
        logits,
        uniforms.reshape(-1),
        plan.settings,
        work.quotes,
        planned.before,
        (left - after).reshape(-1),
    )
    count = accepted(planned, drawn.token.reshape(planned.tokens.shape))
    kept = by_row(after < count[:, None])
    was_read = jnp.concatenate([goes_on[..., None], kept], axis=2)
    made = with_boundary(now.made, now.sample, now.place - 1, boundary, was_read)
    now = now._replace(made=made)
    now = _with_tokens(work, now, tokens[..., 1:], kept, drawn, everything)
    return now._replace(
        hidden=jnp.take_along_axis(hidden, count[:, None, None], axis=1)[:, 0],
        cache=keep_first(cache, by_row(1 + count)[..., 0], drafts + 1),
        quote=planned.state_after(count),
    )


def _pass(
    plan: Plan,
    work: Work,
    now: Progress,
    tokens: Int[Array, "seats rows length"],
    real: Bool[Array, "seats rows length"],
) -> Reading:
    """Reads tokens, the first of them the last that was drawn."""
    length = tokens.shape[2]
    positions = (now.cache.slots.lengths[:, None] + now.place - 1)[..., None] + jnp.arange(length)
    flat = tuple(x.reshape(-1, length) for x in (tokens, positions, real))
    return plan.transformer.decode(work.params, flat[0], flat[1], flat[2], now.cache)


def _uniforms(
    keys: Key[Array, " seats"],
    sample: Int[Array, "seats *rows"],
    place: Int[Array, "seats *rows"],
) -> Float[Array, "seats *rows"]:
    """The number that each place of each sample is drawn by."""
    sample, place = jnp.broadcast_arrays(sample, place)

    def of_prompt(key: Array, sample: Array, place: Array) -> Array:
        def one(sample: Array, place: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, sample), place))

        return jax.vmap(one)(sample.reshape(-1), place.reshape(-1)).reshape(sample.shape)

    return jax.vmap(of_prompt)(keys, sample, place)


def _logits(
    plan: Plan, work: Work, hidden: Float[Array, "batch d_model"]
) -> tuple[LogitsOf, Float[Array, "batch vocab"] | None]:
    """Where logits come from, and all of them where they are wanted anyway."""

    def of_all(hidden: Array) -> Array:
        logits = plan.transformer.logits(work.params, hidden[:, None])[:, 0]
        return logits[:, : plan.vocabulary_size]

    if work.quotes is None or plan.settings.free_log_probs:
        everything = of_all(hidden)
        return given(everything), everything
    some = LogitsOf(
        lambda chosen: of_all(hidden[chosen]),
        lambda tokens: plan.transformer.logits_of(work.params, hidden, tokens),
    )
    return some, None


def _with_tokens(
    work: Work,
    now: Progress,
    tokens: Int[Array, "seats rows length"],
    kept: Bool[Array, "seats rows length"],
    drawn: Drawn,
    everything: Float[Array, "batch vocab"] | None,
) -> Progress:
    """The samples with some tokens more: of each row the first ones, those that are kept."""
    made, free, constrained = now.made, None, None
    if work.quotes is None:
        free = drawn.log_prob
    else:
        constrained = drawn.log_prob
        free = log_prob_of(everything, drawn.token) if everything is not None else None
    prompt = now.seated[:, None, None]
    # What is not kept is written past the last sample, which is nowhere.
    sample = jnp.where(kept, now.sample[..., None], made.tokens.shape[1])
    place = now.place[..., None] + jnp.arange(tokens.shape[2])

    def put(old: Array, new: Array) -> Array:
        return old.at[prompt, sample, place].set(new.reshape(tokens.shape), mode="drop")

    def put_some(old: Array | None, new: Array | None) -> Array | None:
        return put(old, new) if old is not None and new is not None else None

    faults, seen = made.faults, now.watch
    if work.watch is not None and seen is not None and faults is not None:
        for i in range(tokens.shape[2]):
            read = watching.advance(work.watch, seen, tokens[..., i].reshape(-1))
            seen = jax.tree.map(partial(jnp.where, kept[..., i].reshape(-1)), read, seen)
        found = watching.faults(work.watch, seen).reshape(kept.shape[:2])
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

"""The compiled sampling program: prefill, then decode steps of one or a few tokens per row.

`decode` is pure and stays on the device; `sampler.sample` prepares its input and copies the samples
to the host.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import fault_tracking
from gophercite.decoding.decode_state import DecodeState, Plan, Work, alive, begin_samples
from gophercite.decoding.decoded import Decoded, nothing_yet, with_frozen_activations
from gophercite.decoding.in_flight import capacities
from gophercite.decoding.sampling import (
    Drawn,
    LogitsOf,
    draw,
    draw_allowed,
    draw_thin,
    given,
    log_prob_of,
)
from gophercite.decoding.speculation import accepted, draft
from gophercite.decoding.waiting_prompts import (
    ReadPrompts,
    any_waiting,
    is_refill_due,
    refill,
)
from gophercite.models.cache import Cache, compact, keep_first, with_capacity
from gophercite.models.parameters import Params, join_projections, unstack_layers
from gophercite.models.transformer import Reading
from gophercite.quoting.quote_state import QuoteTables, advance, initial

# Drafted tokens that were not drawn leave empty entries in the cache, which is compacted at most
# once in this many steps.
_STEPS_BETWEEN_COMPACTIONS = 4


@partial(jax.jit, static_argnums=0)
def decode(
    plan: Plan,
    params: Params,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
    keys: Key[Array, " prompts"],
    quotes: QuoteTables | None,
    fault_tables: fault_tracking.FaultTables | None,
    counts: Int[Array, " prompts"] | None = None,
) -> Decoded:
    """Runs the model until all samples have ended.

    Args:
      plan: what the program is compiled for.
      params: the model's parameters.
      prompts: token ids, padded on the right.
      lengths: number of tokens in each prompt, without padding.
      keys: random key for each prompt's draws.
      quotes: the prompts' quote tables; None to sample without the quote constraint.
      fault_tables: the prompts' fault tables; None to sample without tracking faults.
      counts: number of samples per prompt, 0 for a prompt that only pads the batch; `plan.samples`
        for every prompt when None.

    Returns:
      The samples. Where a prompt has fewer than `plan.samples`, the rest are empty.
    """
    drafts = plan.settings.draft_tokens if quotes is not None else 0
    capacity = plan.settings.max_tokens
    capacity += _STEPS_BETWEEN_COMPACTIONS * (drafts + 1) if drafts else 0
    scanned = plan.transformer.config.scan_layers
    work = Work(
        params if scanned else join_projections(unstack_layers(params)),
        jnp.full_like(lengths, plan.samples) if counts is None else counts,
        keys,
        quotes,
        fault_tables,
    )
    slots = min(len(prompts), plan.slots or len(prompts))
    some_wait = slots < len(prompts)
    if some_wait and plan.frozen_activations:
        raise ValueError(
            f"frozen_activations = True needs a slot for each of {len(prompts)} prompts"
        )
    # A slot that is refilled may hold a sample of full length at any step: no growing in stages.
    first, *larger = (
        (capacity,)
        if some_wait
        else capacities(plan.transformer.config, len(prompts) * plan.rows, capacity)
    )
    prefill = partial(_read, plan, params, capacity, first)
    loop = _Loop(plan, work, drafts, some_wait)
    state = _beginning(plan, work, prefill(prompts[:slots], lengths[:slots]), some_wait)
    for larger_capacity in larger:
        state = jax.lax.while_loop(loop.decodes_without_growing, loop.steps, state)
        state = state._replace(cache=with_capacity(state.cache, larger_capacity))
    if not some_wait:
        return loop.to_the_end(state).made

    def refill_and_decode(state: DecodeState) -> DecodeState:
        slot = partial(refill, lambda some: prefill(prompts[some], lengths[some]), work)
        return loop.to_the_end(jax.lax.while_loop(loop.can_refill, slot, state))

    return jax.lax.while_loop(loop.is_unfinished, refill_and_decode, state).made


class _Loop(NamedTuple):
    """The conditions and bodies of the loops in `decode`.

    Attributes:
      plan: what the program is compiled for.
      work: inputs that do not change between steps.
      drafts: number of tokens drafted per step.
      some_wait: whether there are more prompts than slots.
    """

    plan: Plan
    work: Work
    drafts: int
    some_wait: bool

    def can_refill(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether prompts are waiting and enough slots are free to refill them."""
        return is_refill_due(self.work, state) if self.some_wait else jnp.zeros((), bool)

    def is_unfinished(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether any sample is left to draw."""
        return jnp.any(alive(self.work, state)) | any_waiting(self.work, state)

    def decodes(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether a sample is being drawn and no refill is due first."""
        return jnp.any(alive(self.work, state)) & ~self.can_refill(state)

    def has_room(self, cache: Cache) -> Bool[Array, ""]:
        """Whether the cache has room for the tokens of one more step."""
        return cache.entries.next + self.drafts + 1 <= cache.entries.filled.shape[2]

    def decodes_without_growing(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether to decode further without enlarging the cache first."""
        return self.decodes(state) & self.has_room(state.cache)

    def steps(self, state: DecodeState) -> DecodeState:
        """One decode step; with drafts, all steps until drafting is next switched on or off."""
        if not self.drafts:
            return _step(self.plan, self.work, 0, state)
        # Loops, not branches: XLA updates a loop's carried state in place.
        state = jax.lax.while_loop(
            lambda state: self.decodes_without_growing(state) & ~self._can_draft(state),
            partial(_step, self.plan, self.work, 0),
            state,
        )
        return jax.lax.while_loop(
            lambda state: self.decodes_without_growing(state) & self._can_draft(state),
            partial(_step, self.plan, self.work, self.drafts),
            state,
        )

    def to_the_end(self, state: DecodeState) -> DecodeState:
        """Decodes until all samples have ended, or until a slot can be refilled.

        By now the cache has room for the longest sample; entries that drafts left empty are
        reclaimed.
        """

        def steps(state: DecodeState) -> DecodeState:
            state = self.steps(state)
            if not self.drafts:
                return state
            cache = jax.lax.while_loop(lambda x: ~self.has_room(x), compact, state.cache)
            return state._replace(cache=cache)

        return jax.lax.while_loop(self.decodes, steps, state)

    def _can_draft(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether most rows are in titles and quotes, where tokens can be drafted."""
        quotes, quote = self.work.quotes, state.quote
        assert quotes is not None
        assert quote is not None
        decoding = alive(self.work, state).reshape(-1)
        outside_claims = decoding & (quotes.claim[quote.node] < 0)
        return 2 * jnp.sum(outside_claims) > jnp.sum(decoding)


def _read(
    plan: Plan,
    params: Params,
    capacity: int,
    entries: int,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
) -> ReadPrompts:
    """Prefills prompts; each row's cache starts with `entries` entries and grows to `capacity`."""
    reading = plan.transformer.prefill(params, prompts, lengths, capacity, plan.rows, entries)
    last = jnp.take_along_axis(reading.hidden, (lengths - 1)[:, None, None], axis=1)
    return ReadPrompts(last[:, 0], reading.cache, reading.frozen_activations)


def _beginning(plan: Plan, work: Work, read: ReadPrompts, some_wait: bool) -> DecodeState:
    """The state before the first decode step."""
    slots, prompts = read.last.shape[0], work.counts.shape[0]
    of_row = jnp.repeat(jnp.arange(slots), plan.rows)
    quotes, faults = work.quotes, work.fault_tables
    sample = jnp.broadcast_to(jnp.arange(plan.rows), (slots, plan.rows))
    return DecodeState(
        made=nothing_yet(
            (prompts, plan.samples, plan.settings.max_tokens),
            plan.pad_id,
            free=quotes is None or plan.settings.free_log_probs,
            constrained=quotes is not None,
            faults=faults is not None,
            frozen_activations=read.frozen_activations if plan.frozen_activations else None,
        ),
        prompt=jnp.arange(slots) if some_wait else None,
        waiting=jnp.asarray(slots),
        last=read.last,
        sample=sample,
        position=jnp.zeros((slots, plan.rows), jnp.int32),
        hidden=jnp.repeat(read.last, plan.rows, axis=0),
        cache=read.cache,
        quote=None if quotes is None else initial(quotes, of_row, sample.reshape(-1)),
        faults=None if faults is None else fault_tracking.initial(faults, of_row),
    )


def _step(plan: Plan, work: Work, drafts: int, state: DecodeState) -> DecodeState:
    """One decode step: draws a token for each row, then accepts what it can of the row's draft."""
    at_work = alive(work, state)
    logits, everything = _logits(plan, work, state.hidden)
    uniforms = _uniforms(work.keys[state.prompts], state.sample, state.position).reshape(-1)
    quote = state.quote
    if work.quotes is not None and quote is not None:
        left = (plan.settings.max_tokens - state.position).reshape(-1)
        dead = ~at_work.reshape(-1)
        drawn = draw_allowed(logits, uniforms, plan.settings, dead, work.quotes, quote, left)
        quote = advance(work.quotes, quote, drawn.token)
    elif everything is not None:
        drawn = draw(everything, uniforms, plan.settings)
    token = jnp.where(at_work, drawn.token.reshape(at_work.shape), plan.pad_id)
    state = _with_tokens(work, state, token[..., None], at_work[..., None], drawn, everything)
    state = state._replace(quote=quote)
    ended = state.position == plan.settings.max_tokens
    for id in (plan.eos_id, *plan.other_eos_ids):
        ended |= token == id
    ended &= at_work
    if drafts:
        state = _with_draft(plan, work, drafts, state, token, at_work & ~ended)
    else:
        goes_on = (at_work & ~ended)[..., None]
        hidden, cache, frozen = _pass(plan, work, state, token[..., None], goes_on)
        last = state.position - 1
        decoded = with_frozen_activations(state.made, state.sample, last, frozen, goes_on)
        state = state._replace(made=decoded, hidden=hidden[:, 0], cache=cache)

    # Assign the prompt's next samples to the rows that have just become free.
    dealt = jnp.max(state.sample, axis=1, keepdims=True) + jnp.cumsum(ended, axis=1)
    state = state._replace(
        made=state.made._replace(passes=state.made.passes + 1),
        sample=jnp.where(ended, dealt, state.sample),
    )
    return begin_samples(work, state, ended)


def _with_draft(
    plan: Plan,
    work: Work,
    drafts: int,
    state: DecodeState,
    token: Int[Array, "slots rows"],
    goes_on: Bool[Array, "slots rows"],
) -> DecodeState:
    """Reads the token and a draft in one pass, and keeps the drafted tokens that are drawn."""
    assert work.quotes is not None
    assert state.quote is not None
    after = jnp.arange(drafts)
    left = (plan.settings.max_tokens - state.position).reshape(-1, 1)
    planned = draft(work.quotes, state.quote, goes_on.reshape(-1), left[:, 0], drafts, plan.eos_id)
    by_row = lambda x: x.reshape(*token.shape, -1)  # noqa: E731
    tokens = jnp.concatenate([token[..., None], by_row(planned.tokens)], axis=2)
    real = jnp.concatenate([goes_on[..., None], by_row(planned.made)], axis=2)
    hidden, cache, frozen = _pass(plan, work, state, tokens, real)

    logits, everything = _logits(plan, work, hidden[:, :-1].reshape(-1, hidden.shape[-1]))
    uniforms = _uniforms(
        work.keys[state.prompts], state.sample[..., None], state.position[..., None] + after
    )
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
    last = state.position - 1
    decoded = with_frozen_activations(state.made, state.sample, last, frozen, was_read)
    state = state._replace(made=decoded)
    state = _with_tokens(work, state, tokens[..., 1:], kept, drawn, everything)
    return state._replace(
        hidden=jnp.take_along_axis(hidden, count[:, None, None], axis=1)[:, 0],
        cache=keep_first(cache, by_row(1 + count)[..., 0], drafts + 1),
        quote=planned.state_after(count),
    )


def _pass(
    plan: Plan,
    work: Work,
    state: DecodeState,
    tokens: Int[Array, "slots rows length"],
    real: Bool[Array, "slots rows length"],
) -> Reading:
    """Runs the model over tokens, the first of which is the one drawn last."""
    length = tokens.shape[2]
    positions = (state.cache.entries.lengths[:, None] + state.position - 1)[..., None] + jnp.arange(
        length
    )
    flat = tuple(x.reshape(-1, length) for x in (tokens, positions, real))
    return plan.transformer.decode(work.params, flat[0], flat[1], flat[2], state.cache)


def _uniforms(
    keys: Key[Array, " slots"],
    sample: Int[Array, " slots *rows"],
    position: Int[Array, " slots *rows"],
) -> Float[Array, " slots *rows"]:
    """The uniform random number for each position of each sample."""
    sample, position = jnp.broadcast_arrays(sample, position)

    def of_prompt(key: Array, sample: Array, position: Array) -> Array:
        def one(sample: Array, position: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, sample), position))

        return jax.vmap(one)(sample.reshape(-1), position.reshape(-1)).reshape(sample.shape)

    return jax.vmap(of_prompt)(keys, sample, position)


def _logits(
    plan: Plan, work: Work, hidden: Float[Array, "batch d_model"]
) -> tuple[LogitsOf, Float[Array, "batch vocab"] | None]:
    """Logits to compute on demand, and all logits where they are needed anyway."""

    def of_all(hidden: Array) -> Array:
        logits = plan.transformer.logits(work.params, hidden[:, None])[:, 0]
        return logits[:, : plan.vocabulary_size]

    if work.quotes is None or plan.settings.free_log_probs:
        everything = of_all(hidden)
        return given(everything), everything
    on_demand = LogitsOf(
        lambda chosen: of_all(hidden[chosen]),
        lambda tokens: plan.transformer.logits_of(work.params, hidden, tokens),
    )
    return on_demand, None


def _with_tokens(
    work: Work,
    state: DecodeState,
    tokens: Int[Array, "slots rows length"],
    kept: Bool[Array, "slots rows length"],
    drawn: Drawn,
    everything: Float[Array, "batch vocab"] | None,
) -> DecodeState:
    """Appends tokens to the samples: for each row the first ones, as far as `kept` is True."""
    made, free, constrained = state.made, None, None
    if work.quotes is None:
        free = drawn.log_prob
    else:
        constrained = drawn.log_prob
        free = log_prob_of(everything, drawn.token) if everything is not None else None
    prompt = state.prompts[:, None, None]
    # Tokens that are not kept get an index past the last sample, which drops the write.
    sample = jnp.where(kept, state.sample[..., None], made.tokens.shape[1])
    position = state.position[..., None] + jnp.arange(tokens.shape[2])

    def put(old: Array, new: Array) -> Array:
        return old.at[prompt, sample, position].set(new.reshape(tokens.shape), mode="drop")

    def put_some(old: Array | None, new: Array | None) -> Array | None:
        return put(old, new) if old is not None and new is not None else None

    faults, fault_states = made.faults, state.faults
    if work.fault_tables is not None and fault_states is not None and faults is not None:
        for i in range(tokens.shape[2]):
            advanced = fault_tracking.advance(
                work.fault_tables, fault_states, tokens[..., i].reshape(-1)
            )
            fault_states = jax.tree.map(
                partial(jnp.where, kept[..., i].reshape(-1)), advanced, fault_states
            )
        found = fault_tracking.faults(work.fault_tables, fault_states).reshape(kept.shape[:2])
        faults = faults.at[prompt[..., 0], sample[..., 0]].set(found, mode="drop")
    return state._replace(
        made=Decoded(
            put(made.tokens, tokens),
            made.lengths.at[prompt, sample].max(position + 1, mode="drop"),
            put_some(made.log_probs, free),
            put_some(made.constrained_log_probs, constrained),
            faults,
            made.passes,
            made.frozen_activations,
        ),
        position=state.position + jnp.sum(kept, axis=2),
        faults=fault_states,
    )

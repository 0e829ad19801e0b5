"""The compiled sampling program: prefill, then decode steps of one token per row.

`decode` is pure and stays on the device; `sampler.sample` prepares its input and copies the samples
to the host.
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import branches, fault_tracking
from gophercite.decoding.decode_state import DecodeState, Plan, Work, alive, begin_samples
from gophercite.decoding.decoded import Decoded, nothing_yet, with_frozen_activations
from gophercite.decoding.in_flight import capacities
from gophercite.decoding.sampling import (
    Drawn,
    Logits,
    LogitsOf,
    draw,
    draw_allowed,
    given,
)
from gophercite.decoding.waiting_prompts import (
    ReadPrompts,
    any_waiting,
    is_refill_due,
    refill,
)
from gophercite.models.cache import with_capacity
from gophercite.models.parameters import Params, join_projections, unstack_layers
from gophercite.models.transformer import Reading
from gophercite.quoting.quote_state import QuoteTables, advance, initial


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
    key_numbers: Int[Array, " prompts"] | None = None,
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
      key_numbers: a number for each prompt that is folded into its key first; None folds nothing.

    Returns:
      The samples. If a prompt has fewer than `plan.samples`, the rest are empty.

    Raises:
      ValueError: the plan wants frozen activations, but has fewer slots than there are prompts; or
        it has branches, but these are not as `branches.run` needs them, or it wants frozen
        activations, or lacks a slot for a prompt or a row for a sample.
    """
    capacity = plan.settings.max_tokens
    scanned = plan.transformer.config.loops_over_layers
    if key_numbers is not None:
        keys = jax.vmap(jax.random.fold_in)(keys, key_numbers)
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
    if plan.branches:
        branches.require_sizes(plan.branches, plan.rows)
        if some_wait or plan.frozen_activations or plan.rows != plan.samples:
            raise ValueError(
                f"branches = {plan.branches} need a slot for each of {len(prompts)} prompts, a row "
                f"for each of {plan.samples} samples, and frozen_activations = False"
            )
    # A cache can't grow in stages if slots are refilled: at any step, some sample may already have
    # its full length. With branches, a prompt's samples share one row.
    first, *larger = (
        (branches.entries(plan) if plan.branches else capacity,)
        if some_wait or plan.branches
        else capacities(plan.transformer.config, len(prompts) * plan.rows, capacity)
    )
    prefill = partial(_read, plan, params, capacity, first)
    loop, step = _Loop(work, some_wait), partial(_step, plan, work)
    state = _beginning(plan, work, prefill(prompts[:slots], lengths[:slots]), some_wait)
    if plan.branches:
        return branches.run(partial(_draw, plan, work), plan, work, state).made
    taken = 0
    for filled, larger_capacity in zip((first, *larger), larger, strict=False):
        with _at_most(filled - taken):
            state = jax.lax.while_loop(loop.decodes_without_growing, step, state)
        state = state._replace(cache=with_capacity(state.cache, larger_capacity))
        taken = filled
    if not some_wait:
        samples_per_row = -(-plan.samples // plan.rows)
        with _at_most(samples_per_row * capacity - taken):
            return jax.lax.while_loop(loop.decodes, step, state).made

    def refill_and_decode(state: DecodeState) -> DecodeState:
        refill_slots = partial(refill, lambda some: prefill(prompts[some], lengths[some]), work)
        state = jax.lax.while_loop(loop.can_refill, refill_slots, state)
        return jax.lax.while_loop(loop.decodes, step, state)

    return jax.lax.while_loop(loop.is_unfinished, refill_and_decode, state).made


def _at_most(steps: int) -> AbstractContextManager[None]:
    """Names the enclosed loop after its maximum number of steps, for `planning.compiled`."""
    return jax.named_scope(f"at_most.{steps}")


class _Loop(NamedTuple):
    """The conditions of the loops in `decode`.

    Attributes:
      work: inputs that do not change between steps.
      some_wait: whether there are more prompts than slots.
    """

    work: Work
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

    def decodes_without_growing(self, state: DecodeState) -> Bool[Array, ""]:
        """Whether to decode further without enlarging the cache first."""
        entries = state.cache.entries
        return self.decodes(state) & (entries.next < entries.filled.shape[2])


def _read(
    plan: Plan,
    params: Params,
    capacity: int,
    entries: int,
    prompts: Int[Array, "prompts length"],
    lengths: Int[Array, " prompts"],
) -> ReadPrompts:
    """Prefills prompts; each row's cache starts with `entries` entries and grows to `capacity`."""
    rows = 1 if plan.branches else plan.rows
    reading = plan.transformer.prefill(params, prompts, lengths, capacity, rows, entries)
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
        hidden=jnp.repeat(read.last, plan.branches[-1] if plan.branches else plan.rows, axis=0),
        cache=read.cache,
        quote=None if quotes is None else initial(quotes, of_row, sample.reshape(-1)),
        faults=None if faults is None else fault_tracking.initial(faults, of_row),
        branches=branches.beginning(plan, work, read.last) if plan.branches else None,
    )


def _step(plan: Plan, work: Work, state: DecodeState) -> DecodeState:
    """One decode step: draws a token for each row and runs the model over it."""
    at_work = alive(work, state)
    drawn, token, ended = _draw(plan, work, state, at_work, _logits(plan, work, state))
    goes_on = at_work & ~ended
    hidden, cache, frozen = _pass(plan, work, drawn, token, goes_on)
    last = drawn.position - 1
    made = with_frozen_activations(drawn.made, state.sample, last, frozen, goes_on)
    state = drawn._replace(
        made=made._replace(passes=made.passes + 1), hidden=hidden[:, 0], cache=cache
    )
    return begin_samples(work, state, ended)


def _draw(
    plan: Plan,
    work: Work,
    state: DecodeState,
    at_work: Bool[Array, "slots rows"],
    logits: Logits,
) -> tuple[DecodeState, Int[Array, "slots rows"], Bool[Array, "slots rows"]]:
    """Draws a token for each row that is at work.

    Returns:
      The state, in which rows whose samples have ended have their prompts' next samples, if there
      are any; the tokens; and these rows.
    """
    uniforms = _uniforms(work.keys[state.prompts], state.sample, state.position).reshape(-1)
    flat, quote = at_work.reshape(-1), state.quote
    if work.quotes is not None and quote is not None:
        left = (plan.settings.max_tokens - state.position).reshape(-1)
        drawn = draw_allowed(logits.of, uniforms, plan.settings, ~flat, work.quotes, quote, left)
        advanced = advance(work.quotes, quote, drawn.token)
        quote = jax.tree.map(partial(jnp.where, flat), advanced, quote)
    else:
        drawn = draw(logits.by_row(), uniforms, plan.settings)
    token = jnp.where(at_work, drawn.token.reshape(at_work.shape), plan.pad_id)
    ended = state.position + 1 == plan.settings.max_tokens
    for id in (plan.eos_id, *plan.other_eos_ids):
        ended |= token == id
    ended &= at_work
    state = _with_token(work, state, token, at_work, drawn, logits)
    dealt = jnp.max(state.sample, axis=1, keepdims=True) + jnp.cumsum(ended, axis=1)
    sample = jnp.where(ended, dealt, state.sample)
    return state._replace(quote=quote, sample=sample), token, ended


def _pass(
    plan: Plan,
    work: Work,
    state: DecodeState,
    token: Int[Array, "slots rows"],
    real: Bool[Array, "slots rows"],
) -> Reading:
    """Runs the model over the tokens that have just been drawn."""
    positions = state.cache.entries.lengths[:, None] + state.position - 1
    flat = tuple(x.reshape(-1, 1) for x in (token, positions, real))
    return plan.transformer.decode(work.params, flat[0], flat[1], flat[2], state.cache)


def _uniforms(
    keys: Key[Array, " slots"],
    sample: Int[Array, "slots rows"],
    position: Int[Array, "slots rows"],
) -> Float[Array, "slots rows"]:
    """The uniform random number for each row's position in its sample."""

    def of_row(key: Array, sample: Array, position: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, sample), position))

    return jax.vmap(jax.vmap(of_row, in_axes=(None, 0, 0)))(keys, sample, position)


def _logits(plan: Plan, work: Work, state: DecodeState) -> Logits:
    """Each row's logits on demand, or all of them if they are needed anyway."""
    hidden = state.hidden

    def of_all(hidden: Array) -> Array:
        logits = plan.transformer.logits(work.params, hidden[:, None])[:, 0]
        return logits[:, : plan.vocabulary_size]

    if work.quotes is None or plan.settings.free_log_probs:
        everything = of_all(hidden)
        return Logits(given(everything), lambda: everything, jax.nn.logsumexp(everything, axis=-1))
    on_demand = LogitsOf(
        lambda rows: of_all(hidden[rows]),
        lambda tokens: plan.transformer.logits_of(work.params, hidden, tokens),
    )
    return Logits(on_demand, lambda: of_all(hidden), None)


def _with_token(
    work: Work,
    state: DecodeState,
    token: Int[Array, "slots rows"],
    at_work: Bool[Array, "slots rows"],
    drawn: Drawn,
    logits: Logits,
) -> DecodeState:
    """Appends a token to the sample of each row that is at work."""
    made, free, constrained = state.made, None, None
    if work.quotes is None:
        free = drawn.log_prob
    else:
        constrained = drawn.log_prob
        if logits.totals is not None:
            free = logits.of.tokens(drawn.token[:, None])[:, 0] - logits.totals
    prompt, position = state.prompts[:, None], state.position
    # Other rows get an index past the last sample, which drops the write.
    sample = jnp.where(at_work, state.sample, made.tokens.shape[1])

    def put(old: Array, new: Array) -> Array:
        return old.at[prompt, sample, position].set(new.reshape(token.shape), mode="drop")

    def put_some(old: Array | None, new: Array | None) -> Array | None:
        return put(old, new) if old is not None and new is not None else None

    faults, fault_states = made.faults, state.faults
    if work.fault_tables is not None and fault_states is not None and faults is not None:
        advanced = fault_tracking.advance(work.fault_tables, fault_states, token.reshape(-1))
        fault_states = jax.tree.map(partial(jnp.where, at_work.reshape(-1)), advanced, fault_states)
        found = fault_tracking.faults(work.fault_tables, fault_states).reshape(token.shape)
        faults = faults.at[prompt, sample].set(found, mode="drop")
    return state._replace(
        made=Decoded(
            put(made.tokens, token),
            made.lengths.at[prompt, sample].max(position + 1, mode="drop"),
            put_some(made.log_probs, free),
            put_some(made.constrained_log_probs, constrained),
            faults,
            made.passes,
            made.frozen_activations,
        ),
        position=position + at_work,
        faults=fault_states,
    )

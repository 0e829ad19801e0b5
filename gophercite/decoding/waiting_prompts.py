"""Prompts that wait for a slot: each is prefilled when another prompt's samples have ended.

This keeps the rows busy as long as there is anything to sample, although answers differ in length
(continuous batching, Yu et al. 2022). If all samples of a batch had to begin together, most rows
would wait for the longest answers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.decoding.decode_state import DecodeState, Work, alive, begin_samples
from gophercite.models.cache import Cache, replace_prompts

# One in this many slots is refilled at a time. Prefilling more prompts at once uses an accelerator
# better, but leaves more slots empty until then.
_SLOTS_PER_READING = 16


class ReadPrompts(NamedTuple):
    """Prefilled prompts.

    Attributes:
      last: representation of each prompt's last token.
      cache: the cache with their keys and values.
      frozen_activations: the inputs of the trained layers at the prompts' tokens.
    """

    last: Float[Array, "prompts d_model"]
    cache: Cache
    frozen_activations: Float[Array, "prompts length d_model"]


def any_waiting(work: Work, state: DecodeState) -> Bool[Array, ""]:
    """Whether prompts with samples to draw are waiting for a slot."""
    prompts = jnp.arange(work.counts.shape[0])
    return jnp.any((prompts >= state.waiting) & (work.counts > 0))


def is_refill_due(work: Work, state: DecodeState) -> Bool[Array, ""]:
    """Whether prompts are waiting, and enough slots are free for a refill."""
    free = jnp.sum(~jnp.any(alive(work, state), axis=1))
    return any_waiting(work, state) & (free >= _at_a_time(state))


def refill(
    read: Callable[[Int[Array, " some"]], ReadPrompts], work: Work, state: DecodeState
) -> DecodeState:
    """Gives free slots to the next prompts.

    Args:
      read: prefills prompts, given their indices.
      work: the loop's constant inputs.
      state: the state before the refill, with enough free slots (`is_refill_due`).

    Returns:
      The state with these slots' rows at the beginning of their prompts' first samples.
    """
    assert state.prompt is not None
    slots, rows = state.sample.shape
    (free,) = jnp.nonzero(~jnp.any(alive(work, state), axis=1), size=_at_a_time(state))
    prompts = state.waiting + jnp.arange(len(free))
    # Indices past the last prompt are clamped for the prefill; such a slot has no samples.
    new = read(jnp.minimum(prompts, work.counts.shape[0] - 1))
    taken = jnp.zeros(slots, bool).at[free].set(True)[:, None]
    state = state._replace(
        prompt=state.prompt.at[free].set(prompts),
        waiting=state.waiting + len(free),
        last=state.last.at[free].set(new.last),
        sample=jnp.where(taken, jnp.arange(rows), state.sample),
        cache=replace_prompts(state.cache, free, new.cache),
    )
    return begin_samples(work, state, jnp.broadcast_to(taken, (slots, rows)))


def _at_a_time(state: DecodeState) -> int:
    return max(1, state.sample.shape[0] // _SLOTS_PER_READING)

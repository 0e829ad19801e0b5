"""Prompts that wait for a slot: they are read when the samples of others have ended.

So the rows are kept busy while there is anything to sample (continuous batching, Yu et al. 2022),
though answers differ in length: a batch that begins and ends together waits for its longest ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.decoding.decode_state import DecodeState, Work, alive, begin_samples
from gophercite.models.cache import Cache, replace_prompts

# Of so many slots one is refilled at a time: more prompts that are read at once keep an accelerator
# busier, and more slots empty until there are so many.
_SLOTS_PER_READING = 16


class ReadPrompts(NamedTuple):
    """Prompts that have been read.

    Attributes:
      last: representation of each one's last token.
      cache: with their keys and values.
      frozen_activations: what the trained stack read of them.
    """

    last: Float[Array, "prompts d_model"]
    cache: Cache
    frozen_activations: Float[Array, "prompts length d_model"]


def any_waiting(work: Work, state: DecodeState) -> Bool[Array, ""]:
    """Whether prompts that have samples wait for a slot."""
    prompts = jnp.arange(work.counts.shape[0])
    return jnp.any((prompts >= state.waiting) & (work.counts > 0))


def is_refill_due(work: Work, state: DecodeState) -> Bool[Array, ""]:
    """Whether prompts wait, and as many slots are free as are filled at a time."""
    free = jnp.sum(~jnp.any(alive(work, state), axis=1))
    return any_waiting(work, state) & (free >= _at_a_time(state))


def refill(
    read: Callable[[Int[Array, " some"]], ReadPrompts], work: Work, state: DecodeState
) -> DecodeState:
    """Gives free slots to the next prompts.

    Args:
      read: reads prompts, by their numbers.
      work: what there is to do.
      state: before it; there are so many free slots.

    Returns:
      The rows of these slots at the beginning of their prompts' first samples.
    """
    assert state.prompt is not None
    slots, rows = state.sample.shape
    (free,) = jnp.nonzero(~jnp.any(alive(work, state), axis=1), size=_at_a_time(state))
    prompts = state.waiting + jnp.arange(len(free))
    # Behind the last prompt there is none: a slot that has none has no samples either.
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

"""Prompts that wait for a seat: they are read when the samples of others have ended.

So the rows are kept busy while there is anything to sample (continuous batching, Yu et al. 2022),
though answers differ in length: a batch that begins and ends together waits for its longest ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.decoding.decode_state import Progress, Work, alive, begin_samples
from gophercite.models.cache import Cache, replace_prompts

# Of so many seats one is refilled at a time: more prompts that are read at once keep an accelerator
# busier, and more seats empty until there are so many.
_SEATS_PER_READING = 16


class ReadPrompts(NamedTuple):
    """Prompts that have been read.

    Attributes:
      last: representation of each one's last token.
      cache: with their keys and values.
      boundary: what the trained stack read of them.
    """

    last: Float[Array, "prompts d_model"]
    cache: Cache
    boundary: Float[Array, "prompts length d_model"]


def any_waiting(work: Work, now: Progress) -> Bool[Array, ""]:
    """Whether prompts that have samples wait for a seat."""
    prompts = jnp.arange(work.counts.shape[0])
    return jnp.any((prompts >= now.waiting) & (work.counts > 0))


def can_be_seated(work: Work, now: Progress) -> Bool[Array, ""]:
    """Whether prompts wait, and as many seats are free as are filled at a time."""
    free = jnp.sum(~jnp.any(alive(work, now), axis=1))
    return any_waiting(work, now) & (free >= _at_a_time(now))


def seat_next(
    read: Callable[[Int[Array, " some"]], ReadPrompts], work: Work, now: Progress
) -> Progress:
    """Gives free seats to the next prompts.

    Args:
      read: reads prompts, by their numbers.
      work: what there is to do.
      now: before it; there are so many free seats.

    Returns:
      The rows of these seats at the beginning of their prompts' first samples.
    """
    assert now.prompt is not None
    seats, rows = now.sample.shape
    (free,) = jnp.nonzero(~jnp.any(alive(work, now), axis=1), size=_at_a_time(now))
    prompts = now.waiting + jnp.arange(len(free))
    # Behind the last prompt there is none: a seat that has none has no samples either.
    new = read(jnp.minimum(prompts, work.counts.shape[0] - 1))
    taken = jnp.zeros(seats, bool).at[free].set(True)[:, None]
    now = now._replace(
        prompt=now.prompt.at[free].set(prompts),
        waiting=now.waiting + len(free),
        last=now.last.at[free].set(new.last),
        sample=jnp.where(taken, jnp.arange(rows), now.sample),
        cache=replace_prompts(now.cache, free, new.cache),
    )
    return begin_samples(work, now, jnp.broadcast_to(taken, (seats, rows)))


def _at_a_time(now: Progress) -> int:
    return max(1, now.sample.shape[0] // _SEATS_PER_READING)

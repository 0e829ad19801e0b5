"""Samples that have drawn the same tokens so far are on one branch, which the model reads once.

The samples of a prompt all begin alike, and a model that is sure of its answer draws most of them
alike to the end. An accelerator needs about as long for a hundred rows as for one. A CPU does not,
so there the model's batch has a row for each branch instead of one for each sample, in a few sizes
(`Plan.branches`). Each sample still draws its own tokens with its own random numbers, from its
branch's logits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from gophercite.decoding.decode_state import Branches, DecodeState, Work, alive
from gophercite.models.cache import select_rows
from gophercite.models.transformer import Transformer

# A step of SmolLM2 on two cores takes 36 to 43 ms for 1 to 4 rows, 48 for 8, and 67 for 16.
_FEWEST_BRANCHES, _FACTOR, _FEWEST_SAMPLES = 4, 4, 8


class Split(NamedTuple):
    """The branches after one more token.

    Attributes:
      of_row: the branch of each row that goes on, numbered from 0 in each slot, without gaps.
      needed: the maximum number of branches of a slot.
      fits: whether there is room for as many. If not, the other fields lack some of them.
      leader: a row of each branch.
      parent: the branch of that row before; a branch without rows is its own parent.
      used: whether a branch has rows.
    """

    of_row: Int[Array, "slots rows"]
    needed: Int[Array, ""]
    fits: Bool[Array, ""]
    leader: Int[Array, "slots branches"]
    parent: Int[Array, "slots branches"]
    used: Bool[Array, "slots branches"]


def usual_sizes(samples: int) -> tuple[int, ...]:
    """The numbers of branches for which a CPU's program has a loop each.

    Args:
      samples: number of samples per prompt.

    Returns:
      4, 16, 64 and so on up to the number of samples, and that number; nothing for fewer than 8
      samples, where a loop more to compile isn't worth it.
    """
    if samples < _FEWEST_SAMPLES:
        return ()
    sizes = [_FEWEST_BRANCHES]
    while sizes[-1] * _FACTOR < samples:
        sizes.append(sizes[-1] * _FACTOR)
    return (*sizes, samples)


def require_sizes(sizes: Sequence[int], rows: int) -> None:
    """Checks numbers of branches: a step that fits none of them would be tried again for ever.

    Args:
      sizes: the numbers.
      rows: number of rows in each slot.

    Raises:
      ValueError: they do not rise from at least 1 to the number of rows.
    """
    if list(sizes) != sorted({*sizes}) or sizes[0] < 1 or sizes[-1] != rows:
        raise ValueError(f"branches = {tuple(sizes)}: must rise from 1 or more to {rows}")


def one_each(slots: int, rows: int) -> Branches:
    """One branch for all rows of a slot, as where samples begin."""
    return Branches(jnp.zeros((slots, rows), jnp.int32), jnp.ones((), jnp.int32))


def room(state: DecodeState) -> int:
    """The number of branches that each slot has room for."""
    return state.cache.entries.filled.shape[1]


def places(state: DecodeState) -> Int[Array, " batch"]:
    """The place of each row's branch in the model's batch."""
    assert state.branches is not None
    of_row = state.branches.of_row
    return (jnp.arange(len(of_row))[:, None] * room(state) + of_row).reshape(-1)


def split(
    before: Branches,
    width: int,
    token: Int[Array, "slots rows"],
    goes_on: Bool[Array, "slots rows"],
) -> Split:
    """Puts rows on one branch if they were on one before and have drawn the same token.

    Args:
      before: the branches before the token.
      width: number of branches that each slot has room for.
      token: the token that each row has drawn.
      goes_on: rows whose samples have not ended; the others are on no branch.

    Returns:
      The branches.
    """
    alike = goes_on[:, :, None] & goes_on[:, None, :]
    for of_row in (before.of_row, token):
        alike &= of_row[:, :, None] == of_row[:, None, :]
    first = jnp.argmax(alike, axis=2)
    leads = goes_on & (first == jnp.arange(first.shape[1]))
    count = jnp.sum(leads, axis=1, keepdims=True)
    needed = jnp.max(count)
    leader = jax.vmap(lambda row: jnp.nonzero(row, size=width, fill_value=0)[0])(leads)
    used = jnp.arange(width) < count
    parent = jnp.take_along_axis(before.of_row, leader, axis=1)
    return Split(
        jnp.take_along_axis(jnp.cumsum(leads, axis=1) - 1, first, axis=1),
        needed,
        needed <= width,
        leader,
        jnp.where(used, parent, jnp.arange(width)),
        used,
    )


def read(
    transformer: Transformer,
    work: Work,
    state: DecodeState,
    token: Int[Array, "slots rows"],
    split: Split,
) -> DecodeState:
    """Runs the model over the token that each branch's rows have just drawn.

    Args:
      transformer: the model.
      work: the loop's constant inputs.
      state: the state, with the token in `made`.
      token: the tokens.
      split: the branches with the tokens.

    Returns:
      The state after the token. If `split` doesn't fit, only `branches.needed` is new.
    """
    assert state.branches is not None
    moved = split.fits & jnp.any(split.parent != jnp.arange(split.parent.shape[1]))
    before = jax.lax.cond(
        moved, lambda old: select_rows(old, split.parent), lambda old: old, state.cache
    )
    of_leader = partial(jnp.take_along_axis, indices=split.leader, axis=1)
    positions = before.entries.lengths[:, None] + of_leader(state.position) - 1
    reading = transformer.decode(
        work.params,
        of_leader(token).reshape(-1, 1),
        positions.reshape(-1, 1),
        split.used.reshape(-1, 1),
        before,
    )

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(split.fits, new, old)

    # If not, the pass has only written to entries that were free and stay so.
    entries = jax.tree.map(keep, reading.cache.entries, before.entries)
    return state._replace(
        hidden=keep(reading.hidden[:, 0], state.hidden),
        cache=reading.cache._replace(entries=entries),
        branches=Branches(keep(split.of_row, state.branches.of_row), split.needed),
    )


def run(
    step: Callable[[DecodeState], DecodeState],
    work: Work,
    state: DecodeState,
    sizes: Sequence[int],
    enough: int = 0,
) -> DecodeState:
    """Decodes until all samples have ended, each step with room for the fewest branches of `sizes`.

    A step for which there is too little room changes only `branches.needed`, and is done again with
    more room.

    Args:
      step: a decode step, for any number of branches.
      work: the loop's constant inputs.
      state: the state, with room for `sizes[0]` branches.
      sizes: numbers of branches, rising; the last is the number of rows.
      enough: ends as soon as this many branches are enough.

    Returns:
      The state, with room for `sizes[0]` branches.
    """
    size, *larger = sizes

    def unfinished(state: DecodeState) -> Bool[Array, ""]:
        return jnp.any(alive(work, state)) & (_needed(state) > enough)

    def fits(state: DecodeState) -> Bool[Array, ""]:
        return unfinished(state) & (_needed(state) <= size)

    def overflows(state: DecodeState) -> Bool[Array, ""]:
        return unfinished(state) & (_needed(state) > size)

    def with_more_room(state: DecodeState) -> DecodeState:
        return _resized(run(step, work, _resized(state, larger[0]), larger, size), size)

    def in_turn(state: DecodeState) -> DecodeState:
        state = jax.lax.while_loop(fits, step, state)
        return jax.lax.while_loop(overflows, with_more_room, state)

    return jax.lax.while_loop(unfinished, in_turn if larger else step, state)


def _needed(state: DecodeState) -> Int[Array, ""]:
    assert state.branches is not None
    return state.branches.needed


def _resized(state: DecodeState, size: int) -> DecodeState:
    """Changes the number of branches that there is room for; the first ones are kept."""
    slots, old = len(state.last), room(state)
    kept = jnp.broadcast_to(jnp.minimum(jnp.arange(size), old - 1), (slots, size))
    hidden = state.hidden.reshape(slots, old, -1)
    return state._replace(
        hidden=jnp.take_along_axis(hidden, kept[..., None], axis=1).reshape(slots * size, -1),
        cache=select_rows(state.cache, kept),
    )

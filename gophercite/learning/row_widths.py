"""Rows of similar length together, so that each microbatch is read only as far as it needs."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from gophercite.learning.state import Batch

_TILE = 128  # tokens; TPUs compute in multiples of it


def reading_widths(length: int, count: int) -> list[int]:
    """Widths to which rows may be cut: multiples of one step, and the whole length.

    Args:
      length: the whole length in tokens.
      count: maximum number of widths. Steps of more than 128 tokens are multiples of 128.
    """
    step = -(-length // count)
    if step > _TILE:
        step = -(-step // _TILE) * _TILE
    return [*range(step, length, step), length]


def by_length(rows: Batch, pieces: int) -> Int[Array, " rows"]:
    """An order of rows in which `cut_rows` puts rows of similar length into the same piece.

    Args:
      rows: experience as a mapping of its fields.
      pieces: number of pieces; divides the number of rows.
    """
    order = jnp.argsort(rows["prompt_lengths"] + rows["response_lengths"])
    return order.reshape(pieces, -1).T.reshape(-1)


def take_rows(rows: Any, order: Int[Array, " rows"]) -> Any:
    """Puts the rows of a tree of arrays into an order."""
    return jax.tree.map(lambda part: part[order], rows)

"""What the sampling loop works with: what it is compiled for, what stays, and what it carries.

A prompt that is in flight has a seat: room for its keys and values and for so many rows, each of
which is at one of its samples. Where there are more prompts than seats, the others wait.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import watching
from gophercite.decoding.decoded import Decoded
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.cache import Cache, forget_rows
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_state import QuoteState, QuoteTables, initial


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
      boundary: whether what the trained stack read is wanted too; all prompts have seats then.
      other_eos_ids: tokens that end a sample as well; no constraint allows them.
      seats: prompts that are in flight at a time; all when None.
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
    seats: int | None = None


class Work(NamedTuple):
    """What stays as it is while rows are at work.

    Attributes:
      params: the model's, taken apart where that is faster.
      counts: samples of each prompt.
      keys: of each prompt's draws.
      quotes: what may be quoted.
      watch: what to find fault with.
    """

    params: Params
    counts: Int[Array, " prompts"]
    keys: Key[Array, " prompts"]
    quotes: QuoteTables | None
    watch: watching.WatchTables | None


class DecodeState(NamedTuple):
    """What the loop carries.

    Attributes:
      made: the samples so far.
      prompt: which one each seat has, from the number of prompts on none; None where each prompt
        has a seat of its own.
      waiting: prompts from here on have had no seat yet.
      last: representation of the last token of each seat's prompt, which samples begin from.
      sample: which of its prompt's samples each row is at; none any more where there are no such.
      place: of the next token in it.
      hidden: the representation that the next token is drawn from.
      cache: keys and values, by seat.
      quote: where each row is in its prompt's graph.
      watch: what is wrong with each row's sample so far.
    """

    made: Decoded
    prompt: Int[Array, " seats"] | None
    waiting: Int[Array, ""]
    last: Float[Array, "seats d_model"]
    sample: Int[Array, "seats rows"]
    place: Int[Array, "seats rows"]
    hidden: Float[Array, "batch d_model"]
    cache: Cache
    quote: QuoteState | None
    watch: watching.WatchState | None

    @property
    def seated(self) -> Int[Array, " seats"]:
        """Which prompt each seat has."""
        return jnp.arange(self.sample.shape[0]) if self.prompt is None else self.prompt


def alive(work: Work, state: DecodeState) -> Bool[Array, "seats rows"]:
    """Which rows have a sample to draw."""
    counts = work.counts.at[state.seated].get(mode="fill", fill_value=0)
    return state.sample < counts[:, None]


def begin_samples(work: Work, state: DecodeState, fresh: Bool[Array, "seats rows"]) -> DecodeState:
    """Takes some rows back to the end of their prompts, where samples begin."""
    rows = fresh.shape[1]
    of_row = jnp.repeat(state.seated, rows)
    flat = fresh.reshape(-1)

    def anew(begun: Array, old: Array) -> Array:
        return jnp.where(flat.reshape(-1, *[1] * (old.ndim - 1)), begun, old)

    quote, watch = state.quote, state.watch
    if work.quotes is not None:
        quote = jax.tree.map(anew, initial(work.quotes, of_row, state.sample.reshape(-1)), quote)
    if work.watch is not None:
        watch = jax.tree.map(anew, watching.initial(work.watch, of_row), watch)
    return state._replace(
        place=jnp.where(fresh, 0, state.place),
        hidden=anew(jnp.repeat(state.last, rows, axis=0), state.hidden),
        cache=forget_rows(state.cache, fresh),
        quote=quote,
        watch=watch,
    )

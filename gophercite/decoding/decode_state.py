"""What the sampling loop works with: what it is compiled for, what stays, and what it carries.

A prompt that is in flight has a slot: room for its keys and values and for so many rows, each of
which is at one of its samples. Where there are more prompts than slots, the others wait.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.decoding import fault_tracking
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
      frozen_activations: whether what the trained stack read is wanted, too; then all prompts have
        slots.
      other_eos_ids: tokens that end a sample as well; no constraint allows them.
      slots: prompts that are in flight at a time; all when None.
    """

    transformer: Transformer
    settings: SamplingSettings
    eos_id: int
    pad_id: int
    vocabulary_size: int
    samples: int
    rows: int
    frozen_activations: bool = False
    other_eos_ids: tuple[int, ...] = ()
    slots: int | None = None


class Work(NamedTuple):
    """What stays as it is while rows are at work.

    Attributes:
      params: the model's, taken apart where that is faster.
      counts: samples of each prompt.
      keys: of each prompt's draws.
      quotes: what may be quoted.
      fault_tables: what samples are checked for faults against; None where they are not.
    """

    params: Params
    counts: Int[Array, " prompts"]
    keys: Key[Array, " prompts"]
    quotes: QuoteTables | None
    fault_tables: fault_tracking.FaultTables | None


class DecodeState(NamedTuple):
    """What the loop carries.

    Attributes:
      made: the samples so far.
      prompt: which one each slot has, from the number of prompts on none; None where each prompt
        has a slot of its own.
      waiting: prompts from here on have had no slot yet.
      last: representation of the last token of each slot's prompt, which samples begin from.
      sample: which of its prompt's samples each row is at; none any more where there are no such.
      position: of the next token in it.
      hidden: the representation that the next token is drawn from.
      cache: keys and values, by slot.
      quote: where each row is in its prompt's graph.
      faults: what is wrong with each row's sample so far.
    """

    made: Decoded
    prompt: Int[Array, " slots"] | None
    waiting: Int[Array, ""]
    last: Float[Array, "slots d_model"]
    sample: Int[Array, "slots rows"]
    position: Int[Array, "slots rows"]
    hidden: Float[Array, "batch d_model"]
    cache: Cache
    quote: QuoteState | None
    faults: fault_tracking.FaultState | None

    @property
    def prompts(self) -> Int[Array, " slots"]:
        """Which prompt each slot has."""
        return jnp.arange(self.sample.shape[0]) if self.prompt is None else self.prompt


def alive(work: Work, state: DecodeState) -> Bool[Array, "slots rows"]:
    """Which rows have a sample to draw."""
    counts = work.counts.at[state.prompts].get(mode="fill", fill_value=0)
    return state.sample < counts[:, None]


def begin_samples(work: Work, state: DecodeState, fresh: Bool[Array, "slots rows"]) -> DecodeState:
    """Takes some rows back to the end of their prompts, where samples begin."""
    rows = fresh.shape[1]
    of_row = jnp.repeat(state.prompts, rows)
    flat = fresh.reshape(-1)

    def anew(begun: Array, old: Array) -> Array:
        return jnp.where(flat.reshape(-1, *[1] * (old.ndim - 1)), begun, old)

    quote, faults = state.quote, state.faults
    if work.quotes is not None:
        quote = jax.tree.map(anew, initial(work.quotes, of_row, state.sample.reshape(-1)), quote)
    if work.fault_tables is not None:
        faults = jax.tree.map(anew, fault_tracking.initial(work.fault_tables, of_row), faults)
    return state._replace(
        position=jnp.where(fresh, 0, state.position),
        hidden=anew(jnp.repeat(state.last, rows, axis=0), state.hidden),
        cache=forget_rows(state.cache, fresh),
        quote=quote,
        faults=faults,
    )

"""The sampling loop's data: what it is compiled for, its constant inputs, and its carried state.

A prompt in flight has a slot, which holds its keys and values and a number of rows. Each row
decodes one of the prompt's samples. If there are more prompts than slots, the others wait.
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
    """What a program is compiled for, in addition to shapes.

    Attributes:
      transformer: the model.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills the positions after it.
      vocabulary_size: ids from here on are never drawn.
      samples: maximum number of samples per prompt.
      rows: number of each prompt's samples in flight at a time.
      frozen_activations: whether to return the inputs of the trained layers, too; then each prompt
        needs its own slot.
      other_eos_ids: further tokens that end a sample; no constraint allows them.
      slots: number of prompts in flight at a time; all when None.
      branches: the numbers of tokens of a prompt that a pass can read, rising to at least `rows`
        (see `decoding.branches`). They need a row for each sample and a slot for each
        prompt. Empty if the model reads each row by itself.
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
    branches: tuple[int, ...] = ()


class Work(NamedTuple):
    """The loop's constant inputs.

    Attributes:
      params: the model's parameters, with layers unstacked where that is faster.
      counts: number of samples per prompt.
      keys: random key for each prompt's draws.
      quotes: what may be quoted; None without the quote constraint.
      fault_tables: the tables for tracking the samples' faults; None if faults are not tracked.
    """

    params: Params
    counts: Int[Array, " prompts"]
    keys: Key[Array, " prompts"]
    quotes: QuoteTables | None
    fault_tables: fault_tracking.FaultTables | None


class Branches(NamedTuple):
    """Which samples have drawn the same tokens so far, and what the model has read of them.

    The model reads the tokens at the places of a pass together.

    Attributes:
      of_row: the branch that each row is on: its first row. For an idle row, any.
      token: the token that each row has drawn last.
      ready: whether that token has been read, so that the row can draw the next one.
      place: the place in the last pass at which it was read.
      read: the token that was read at each place.
      goes_on: whether the next place goes on with a drafted token.
      start: the cache's entry of the first place.
      shown: which of the cache's entries hold each row's tokens.
      logits: the logits of each place; None if they are computed on demand.
      totals: the logarithm of the sum of their exponentials.
    """

    of_row: Int[Array, "slots rows"]
    token: Int[Array, "slots rows"]
    ready: Bool[Array, "slots rows"]
    place: Int[Array, "slots rows"]
    read: Int[Array, "slots places"]
    goes_on: Bool[Array, "slots places"]
    start: Int[Array, ""]
    shown: Bool[Array, "slots rows entries"]
    logits: Float[Array, "slots places vocab"] | None
    totals: Float[Array, "slots places"] | None


class DecodeState(NamedTuple):
    """The loop's carried state.

    The model's batch has a row per row of each slot, or with branches a row per slot.

    Attributes:
      made: the samples so far.
      prompt: the index of each slot's prompt; the number of prompts or more for an empty slot. None
        if each prompt has its own slot.
      waiting: prompts from this index on have had no slot yet.
      last: representation of the last token of each slot's prompt, from which samples begin.
      sample: the index of each row's sample within its prompt; the prompt's number of samples or
        more for an idle row.
      position: position of the next token in the sample.
      hidden: the representation that predicts the next token of each row, or with branches the one
        of each place.
      cache: keys and values, by slot.
      quote: each row's state in its prompt's graph.
      faults: the fault tracker's state of each row.
      branches: the rows' branches; None if each row is read by itself.
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
    branches: Branches | None = None

    @property
    def prompts(self) -> Int[Array, " slots"]:
        """The index of each slot's prompt."""
        return jnp.arange(self.sample.shape[0]) if self.prompt is None else self.prompt


def alive(work: Work, state: DecodeState) -> Bool[Array, "slots rows"]:
    """Which rows have a sample to decode."""
    if state.prompt is None:
        counts = work.counts
    else:
        counts = work.counts.at[state.prompt].get(
            mode="fill", fill_value=0, wrap_negative_indices=False
        )
    return state.sample < counts[:, None]


def begin_samples(work: Work, state: DecodeState, fresh: Bool[Array, "slots rows"]) -> DecodeState:
    """Resets some rows to the end of their prompts, where samples begin."""
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

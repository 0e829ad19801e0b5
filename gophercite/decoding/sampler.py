"""Sampling continuations of prompts with a key-value cache, in one compiled program.

Each prompt is read once, and its samples share its keys and values. There are as many rows in
flight as memory is meant to hold; a row whose sample has ended goes on with its prompt's next one,
so that the rows are busy until the prompt's last samples.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.fault_tracking import FaultTables
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_state import QuoteTables


class Samples(NamedTuple):
    """Continuations; those of one prompt are neighbours.

    Attributes:
      tokens: sampled ids, the end-of-sequence included; padding after it.
      lengths: tokens of each sample, the end-of-sequence included.
      log_probs: log-probability of each token under the model itself (temperature 1, all tokens),
        in nats; 0 on padding. None where the settings left it out.
      constrained_log_probs: the same among the tokens that the quotes' constraint allowed; None
        where there was none.
      faults: what is wrong with each sample, as sets of bits (`response_automaton.faults_of`); None
        where they were not tracked.
      passes: how often the model was run after the prompts were read.
    """

    tokens: Int[np.ndarray, "samples max_tokens"]
    lengths: Int[np.ndarray, " samples"]
    log_probs: Float[np.ndarray, "samples max_tokens"] | None
    constrained_log_probs: Float[np.ndarray, "samples max_tokens"] | None
    faults: Int[np.ndarray, " samples"] | None
    passes: int


def sample(
    transformer: Transformer,
    params: Params,
    prompts: Sequence[Sequence[int]],
    key: Key[Array, ""] | Key[Array, " prompts"],
    settings: SamplingSettings,
    *,
    eos_id: int,
    pad_id: int,
    quotes: QuoteTables | None = None,
    fault_tables: FaultTables | None = None,
    samples_per_prompt: int | Sequence[int] = 1,
    rows_per_prompt: int | None = None,
    prompts_in_flight: int | None = None,
    vocabulary_size: int | None = None,
    other_eos_ids: Sequence[int] = (),
    least_width: int = 1,
) -> Samples:
    """Continues each prompt until its end-of-sequence or `settings.max_tokens`.

    Args:
      transformer: the model.
      params: its parameters.
      prompts: token ids, of any lengths but none.
      key: of the draws, or one for each prompt. Sample j of prompt i draws by (key i, j, place of
        the token) and by nothing else: not by what is sampled beside it. A single key is folded
        with i.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills what lies after it.
      quotes: the prompts' tables (`QuoteConstraint.tables`), in their order, to sample answers with
        verbatim quotes alone; temperature, top-k and top-p then apply to the tokens that are
        allowed.
      fault_tables: the prompts' tables (`FaultTracker.tables`), in their order, to learn what is
        wrong with samples.
      samples_per_prompt: how many samples each prompt gets; of several numbers, one for each, which
        may be 0 for prompts that only fill up a batch to the size of another.
      rows_per_prompt: samples of a prompt that are in flight at a time, which bounds the memory of
        keys and values; all when None.
      prompts_in_flight: prompts whose samples are drawn at a time; the others are read when all
        samples of some of these have ended. All when None.
      vocabulary_size: the model's ids from here on are rows to spare, and never drawn; it has none
        when None.
      other_eos_ids: tokens that end a sample as well (`Vocabulary.other_eos_ids`); no constraint
        allows them.
      least_width: tokens that prompts are padded to where all are shorter: each width has a program
        of its own.

    Returns:
      The samples, on the host.

    Raises:
      ValueError: there is no prompt, or one is empty; there are no samples to make; or numbers of
        samples for other than so many prompts.
    """
    tokens, lengths = padded_rows(prompts, pad_id, "prompt", least_width)
    each = samples_per_prompt
    counts = np.array([each] * len(prompts) if isinstance(each, int) else each, np.int32)
    if len(counts) != len(prompts):
        raise ValueError(f"samples_per_prompt: {len(counts)} numbers for {len(prompts)} prompts")
    most = int(counts.max())
    rows = most if rows_per_prompt is None else rows_per_prompt
    at_a_time = len(prompts) if prompts_in_flight is None else prompts_in_flight
    if most < 1 or counts.min() < 0 or rows < 1 or at_a_time < 1:
        raise ValueError(
            f"samples_per_prompt = {samples_per_prompt}, rows_per_prompt = {rows_per_prompt} and "
            f"prompts_in_flight = {prompts_in_flight}: all must be at least 1"
        )
    keys = (
        jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(prompts)))
        if key.ndim == 0
        else key
    )
    plan = Plan(
        transformer,
        settings,
        eos_id,
        pad_id,
        vocabulary_size or transformer.config.vocab_size,
        most,
        min(rows, most),
        other_eos_ids=tuple(other_eos_ids),
        slots=min(at_a_time, len(prompts)),
    )
    made = decode(plan, params, tokens, lengths, keys, quotes, fault_tables, counts)
    by_sample = made.tokens, made.lengths, made.log_probs, made.constrained_log_probs, made.faults
    drawn = np.arange(most) < counts[:, None]
    flat = [np.asarray(part)[drawn] if part is not None else None for part in by_sample]
    return Samples(*flat, int(made.passes))  # type: ignore[arg-type, call-arg]

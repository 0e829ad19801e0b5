"""Samples continuations of prompts with a KV cache, in one compiled program.

Each prompt is prefilled once, and its samples share its keys and values. The caller sets how many
rows are in flight, to bound the memory. A row whose sample has ended continues with its prompt's
next sample, so that rows stay busy until the prompt's last samples.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from gophercite.decoding import kept_programs
from gophercite.decoding.across_processes import on_all, on_host, shared_mesh
from gophercite.decoding.branches import usual_sizes
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.fault_tracking import FaultTables
from gophercite.decoding.random_keys import take_keys
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.partitioning import active_platform
from gophercite.quoting.quote_state import QuoteTables


class NotNumbersError(CheckpointError):
    """A model's logits are NaN or infinite, so that nothing can be sampled from it."""


class Samples(NamedTuple):
    """Sampled continuations; those of one prompt are adjacent.

    Attributes:
      tokens: sampled token ids, including the end of sequence, then padding.
      lengths: number of tokens of each sample, including the end of sequence.
      log_probs: log-probability of each token under the model itself (temperature 1, all tokens),
        in nats; 0 on padding. None if the settings turn it off.
      constrained_log_probs: the same, renormalised over the tokens that the quote constraint
        allowed; None without a constraint.
      faults: the faults of each sample, as bit sets (`response_automaton.faults_of`); None if they
        were not tracked.
      passes: number of forward passes after the prefill.
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
    least_samples: int = 1,
    branches: Sequence[int] | None = None,
    key_numbers: Sequence[int] | None = None,
    coming: Callable[[], Params] | None = None,
) -> Samples:
    """Continues each prompt up to an end of sequence or `settings.max_tokens`.

    Args:
      transformer: the model.
      params: its parameters.
      prompts: token ids; lengths may differ but must not be 0.
      key: random key of the draws, or one per prompt. The draws of sample j of prompt i depend on
        (key i, j, position of the token) and on nothing else, in particular not on the rest of the
        batch. See `key_numbers`.
      settings: how tokens are drawn.
      eos_id: the token that ends a sample.
      pad_id: fills the positions after it.
      quotes: the prompts' tables (`QuoteConstraint.tables`), in order, to sample only answers with
        verbatim quotes; temperature, top-k and top-p then apply to the allowed tokens.
      fault_tables: the prompts' tables (`FaultTracker.tables`), in order, to track the samples'
        faults.
      samples_per_prompt: number of samples for every prompt, or one number per prompt, which may be
        0 for prompts that only pad the batch.
      rows_per_prompt: number of a prompt's samples in flight at a time, which bounds the memory of
        the KV cache; all when None.
      prompts_in_flight: number of prompts whose samples are drawn at a time; a further prompt is
        prefilled when all samples of one of these have ended. All when None.
      vocabulary_size: ids from here on are unused rows of the model's embedding and never drawn;
        when None, all ids are in use.
      other_eos_ids: further tokens that end a sample (`Vocabulary.other_eos_ids`); no constraint
        allows them.
      least_width: minimum padded length of prompts in tokens, because each width needs its own
        compiled program.
      least_samples: minimum number of samples per prompt that the arrays have room for, for the
        same reason.
      branches: numbers of tokens of a prompt that a pass can read, rising to at least the maximum
        number of samples per prompt; samples that begin alike are then read together, with drafts
        of their quotes (`decoding.branches`), and all prompts are in flight. Empty to read each row
        by itself. When None, those of `branches.usual_sizes` for one prompt on a single CPU device
        that has all its samples in flight, and none otherwise.
      key_numbers: a number for each prompt that is folded into its key before all else. When None,
        a single key is folded with the prompt's index, and several are used as they are.
      coming: waits for the parameters and returns them; they must be on this process's devices.
        `params` then holds their shapes, dtypes and shardings (`jax.ShapeDtypeStruct`), and the
        program is compiled from these while the parameters are loaded.

    Returns:
      The samples, on the host.

    Raises:
      ValueError: there is no prompt, or one is empty; there are no samples to draw;
        `samples_per_prompt` differs in length from `prompts`; there are fewer keys or tables than
        prompts; the tables were built for longer samples; `branches` do not rise to the number of
        samples; or a prompt and its samples have more tokens than the model has learned positions.
      NotNumbersError: the model's logits are NaN or infinite.
    """
    positions = transformer.config.max_positions
    room = None if positions is None else positions - settings.max_tokens
    tokens, lengths = padded_rows(prompts, pad_id, "prompt", least_width, room)
    each = samples_per_prompt
    counts = np.array([each] * len(prompts) if isinstance(each, int) else each, np.int32)
    if len(counts) != len(prompts):
        raise ValueError(f"samples_per_prompt has {len(counts)} numbers for {len(prompts)} prompts")
    most = max(int(counts.max()), least_samples)
    rows = most if rows_per_prompt is None else rows_per_prompt
    at_a_time = len(prompts) if prompts_in_flight is None else prompts_in_flight
    if counts.max() < 1 or counts.min() < 0 or rows < 1 or at_a_time < 1:
        raise ValueError(
            f"samples_per_prompt = {samples_per_prompt}, rows_per_prompt = {rows_per_prompt} and "
            f"prompts_in_flight = {prompts_in_flight}: all must be at least 1"
        )
    # An index out of bounds would silently use the last prompt's.
    for name, found in (("key", key), ("quotes", None if quotes is None else quotes.first)):
        if found is not None and found.ndim and len(found) < len(prompts):
            raise ValueError(f"{name}: {len(found)} for {len(prompts)} prompts")
    if key_numbers is None and key.ndim == 0:
        key_numbers = range(len(prompts))
    if key_numbers is not None and len(key_numbers) != len(prompts):
        raise ValueError(f"key_numbers: {len(key_numbers)} for {len(prompts)} prompts")
    keys = take_keys(key, np.arange(len(prompts)))
    numbers = None if key_numbers is None else np.array(key_numbers, np.int32)
    if branches is None:
        one = len(prompts) == 1 and rows >= most and on_one_cpu(params)
        branches = usual_sizes(most, quotes is not None) if one else ()
    plan = Plan(
        transformer,
        settings,
        eos_id,
        pad_id,
        vocabulary_size or transformer.config.vocab_size,
        most,
        min(rows, most),
        other_eos_ids=tuple(other_eos_ids),
        slots=None if branches else min(at_a_time, len(prompts)),
        branches=tuple(branches),
    )
    mesh = shared_mesh(params)
    inputs = on_all(mesh, (tokens, lengths, keys, quotes, fault_tables, counts, numbers))
    if coming is None:
        program = kept_programs.ready(plan, params, *inputs)
    else:
        program = kept_programs.compiled(plan, params, *inputs)
        params = coming()
    decoded = program(params, *inputs)
    by_sample = (
        decoded.tokens,
        decoded.lengths,
        decoded.log_probs,
        decoded.constrained_log_probs,
        decoded.faults,
    )
    drawn = np.arange(most) < counts[:, None]
    on_hosts, passes = on_host(mesh, (by_sample, decoded.passes))
    flat = [part[drawn] if part is not None else None for part in on_hosts]
    samples = Samples(*flat, int(passes))  # type: ignore[arg-type, call-arg]
    try:
        require_numbers(transformer, samples.log_probs, samples.constrained_log_probs)
    except NotNumbersError:
        if quotes is not None:
            _require_room(quotes, settings.max_tokens)
        raise
    return samples


def on_one_cpu(params: Params) -> bool:
    """Whether the program runs on a CPU, and not on several of its simulated devices."""
    return active_platform() == "cpu" and not any(
        kept_programs.is_spread(leaf) for leaf in jax.tree.leaves(params)
    )


def require_numbers(transformer: Transformer, *log_probs: Float[np.ndarray, "..."] | None) -> None:
    """Checks that the samples' log-probabilities are finite, as they are if the logits are numbers.

    Args:
      transformer: the model.
      *log_probs: log-probabilities of drawn tokens, on the host; None is skipped.

    Raises:
      NotNumbersError: one is NaN or infinite.
    """
    if not all(np.isfinite(part).all() for part in log_probs if part is not None):
        raise NotNumbersError(
            "the model's logits are not numbers (NaN or infinite): its parameters are damaged, or "
            f"so large that they overflow in {transformer.config.dtype}"
        )


def _require_room(quotes: QuoteTables, max_tokens: int) -> None:
    """Checks that each prompt has an answer of at most `max_tokens` tokens.

    Copying the tables from the device takes time, so this is done only after sampling has failed.

    Raises:
      ValueError: the tables were built for longer samples.
    """
    shortest = np.asarray(quotes.cost)[np.asarray(quotes.first), 0]
    shortest = shortest.reshape(len(shortest), -1).max(axis=1)
    if (shortest > max_tokens).any():
        prompt = int(shortest.argmax())
        raise ValueError(
            f"max_tokens = {max_tokens}: the shortest answer of prompt {prompt} has "
            f"{shortest[prompt]} tokens; the constraint's tables were built for longer samples"
        )

"""Shows what a run would do, without doing it: first batch, parameters, memory."""

from typing import TextIO

import configuration
import jax
import numpy as np

from gophercite.browsing.collecting import BrowsingCollector
from gophercite.learning.state import HostBatch
from gophercite.training.feed import put
from gophercite.training.program import Program
from gophercite.training.run_folder import parameter_table, trained_parts
from gophercite.vocabularies import Vocabulary

_MIB = 2**20


def show(run: configuration.Run, out: TextIO) -> None:
    """Prints a run's first batch, its parameters and the memory of a step.

    The step is compiled, so anything that doesn't compile or fit is reported here.

    Args:
      run: the run.
      out: output stream.
    """
    batch: HostBatch
    if isinstance(run.collector, BrowsingCollector):
        batch = run.collector.room()  # only shapes: nothing is browsed
        size = " × ".join(map(str, batch["tokens"].shape))
        out.write(f"Questions: {run.input.mixture_or_task_name}\nA rollout: {size} tokens\n\n")
    else:
        batch = next(run.input.batches())
        out.write(f"First batch: {run.input.mixture_or_task_name}, split {run.input.split}\n\n")
        out.write(first_of(batch, run.input.vocabulary))

    program = Program(run.learner, run.initialisation, run.partitioner)
    target = program.state_target()
    out.write(parameter_table(target.params, trained_parts(target)))

    compiled = program.compile_update(put(run.partitioner, batch))
    state = sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(target)
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )
    sizes = compiled.memory_analysis()
    out.write("\nMemory per device\n")
    rows = [("state (parameters, optimiser)", state)]
    if sizes is not None:
        outputs = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
        total = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + outputs
        rows += [
            ("arguments of a step (state and batch)", sizes.argument_size_in_bytes),
            ("outputs that don't reuse their memory", outputs),
            ("temporaries (activations, gradients)", sizes.temp_size_in_bytes),
            ("in total, while a step runs", total),
        ]
    for label, size in rows:
        out.write(f"  {label:<40}{size / _MIB:>12,.1f} MiB\n")


def first_of(batch: HostBatch, vocabulary: Vocabulary) -> str:
    """The beginning of a batch, as text, and its number of tokens.

    Args:
      batch: batch of any input.
      vocabulary: the task's vocabulary.

    Returns:
      Lines, ending with a blank one.
    """
    if "prompts" in batch:
        shape, real = batch["prompts"].shape, batch["prompt_lengths"].sum()
        text, count = first_prompt(batch, vocabulary), f"{real} real"
    elif "preferred" in batch:
        shape, real = batch["tokens"].shape, batch["lengths"].sum()
        text, count = first_pair(batch, vocabulary), f"{real} real"
    else:
        shape, real = batch["tokens"].shape, np.count_nonzero(batch["segments"])
        learned = np.count_nonzero(batch["weights"])
        text, count = first_row(batch, vocabulary), f"{real} real, {learned} of them learned"
    return f"{text}\n{' × '.join(map(str, shape))} tokens: {count}\n\n"


def first_prompt(batch: HostBatch, vocabulary: Vocabulary) -> str:
    """The first prompt of a batch, and the size of its tables.

    Args:
      batch: batch of `RolloutInput`.
      vocabulary: the task's vocabulary.

    Returns:
      The prompt's text, and the tables' size.
    """
    length = batch["prompt_lengths"][0]
    prompt = vocabulary.decode(batch["prompts"][0, :length].tolist())
    kind = "quotes" if "quotes" in batch else "fault_tables"
    tables = sum(leaf.nbytes for leaf in jax.tree.leaves(batch[kind]))
    how = "constrained to verbatim quotes" if kind == "quotes" else "free, and tracked for faults"
    return (
        f"--- prompt: {length} tokens\n{prompt}\n"
        f"--- samples are {how}; tables of the batch: {tables / _MIB:.1f} MiB\n"
    )


def first_row(batch: HostBatch, vocabulary: Vocabulary) -> str:
    """The first row of a batch as text, with the trained part in ⟦ ⟧.

    Args:
      batch: arrays of [rows, length].
      vocabulary: the task's vocabulary.

    Returns:
      Each packed example on separate lines.
    """
    lines = []
    row = {name: array[0] for name, array in batch.items()}
    for segment in range(1, int(row["segments"].max()) + 1):
        inside = row["segments"] == segment
        tokens, weights = row["tokens"][inside], row["weights"][inside]
        # A token's weight is for the next token; the last target may be the end of sequence.
        sequence = [*tokens.tolist(), int(row["targets"][inside][-1])]
        learned = [False, *(weights > 0).tolist()]
        text, start = "", 0
        for place in range(1, len(sequence) + 1):
            if place == len(sequence) or learned[place] != learned[start]:
                piece = vocabulary.decode(sequence[start:place])
                text += f"⟦{piece}⟧" if learned[start] else piece
                start = place
        lines.append(f"--- example {segment}: {len(tokens)} tokens\n{text}\n")
    return "".join(lines)


def first_pair(batch: HostBatch, vocabulary: Vocabulary) -> str:
    """The first pair of a batch of comparisons as text, with its labels.

    Args:
      batch: batch of `ComparisonInput`.
      vocabulary: the task's vocabulary.

    Returns:
      Each response after its question, its judgement, and the preference.
    """
    lines = []
    for side, name in enumerate(("first", "second")):
        length = batch["lengths"][0, side]
        known = bool(batch["label_weights"][0, side])
        verdict = bool(batch["supported_and_plausible"][0, side]) if known else "unknown"
        lines.append(
            f"--- {name} response: {length} tokens, supported and plausible: {verdict}\n"
            f"{vocabulary.decode(batch['tokens'][0, side, :length].tolist())}\n"
        )
    known = bool(batch["preferred_weights"][0])
    preferred = f"{batch['preferred'][0]:g}" if known else "unknown"
    lines.append(f"--- probability that the second is preferred: {preferred}\n")
    return "".join(lines)

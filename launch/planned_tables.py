"""Shapes of the tables that constrain samples and track their faults in planned steps."""

from typing import Any

import jax
import numpy as np

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.documents import Document
from gophercite.partitioning import Partitioner
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.table_sizes import TableSizes

# Nodes and edges per token of a prompt, rounded up from real pages: of its quote graph
# (docs/measurements/quote_constraint.md) and of the graph by which faults are tracked.
_QUOTES, _FAULTS = (11, 32), (8, 12)


def everywhere(partitioner: Partitioner, array: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an array of which each device has a copy."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=partitioner.replicated)


def quote_tables(
    partitioner: Partitioner,
    settings: QuoteSettings,
    prompts: int,
    length: int,
    max_tokens: int,
    vocabulary_size: int,
) -> Any:
    """The shapes of a batch's quote tables: those of a small vocabulary, enlarged.

    Args:
      partitioner: the mesh; each device has all of the tables.
      settings: rules of the quotes.
      prompts: number of prompts in the batch.
      length: number of tokens per prompt.
      max_tokens: maximum number of tokens per sample.
      vocabulary_size: the vocabulary's size.
    """
    small = bundled_vocabulary()
    constraint = QuoteConstraint(small, settings)
    text = "Some text to quote from, long enough for any minimum. " * 8
    graph = constraint.graph([Document("a", "A", text)])
    sizes = _table_sizes(_QUOTES, prompts, length)
    tables = constraint.host_tables([graph] * prompts, max(max_tokens, 512), sizes)
    return _enlarged(partitioner, tables, vocabulary_size)


def fault_tables(
    partitioner: Partitioner,
    settings: QuoteSettings,
    prompts: int,
    length: int,
    vocabulary_size: int,
) -> Any:
    """The shapes of a batch's fault tables; arguments as above."""
    tracker = FaultTracker(bundled_vocabulary(), settings.minimum_quote, settings.maximum_omissions)
    graph = tracker.graph([Document("a", "A", "Some text to quote from.")])
    tables = tracker.host_tables([graph] * prompts, _table_sizes(_FAULTS, prompts, length))
    return _enlarged(partitioner, tables, vocabulary_size)


def _table_sizes(per_token: tuple[int, int], prompts: int, length: int) -> TableSizes:
    return TableSizes(*(prompts * length * each for each in per_token))


def _enlarged(partitioner: Partitioner, tables: Any, vocabulary_size: int) -> Any:
    """The shapes of tables as a vocabulary of that size would have them."""
    small = bundled_vocabulary().size
    sizes = {small: vocabulary_size, small + 1: vocabulary_size + 1}

    def enlarged(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
        shape = tuple(sizes.get(size, size) for size in leaf.shape)
        return everywhere(partitioner, jax.ShapeDtypeStruct(shape, leaf.dtype))

    return jax.tree.map(enlarged, tables)

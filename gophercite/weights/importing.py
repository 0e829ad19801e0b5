"""Converts a checkpoint's tensors to a model folder, reading each parameter in parts."""

import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from gophercite.model_folders.checkpoint_files import name_leaves
from gophercite.model_folders.folder import STEM, Description, describe_model, unfinished_folder
from gophercite.model_folders.tensors import Stream, write_streams
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import Vocabulary, VocabularyError
from gophercite.vocabularies.end_tokens import check_end_tokens
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.names import LAYERS, Place, TensorNames

Dtype = Literal["bfloat16", "float32"]


class Tensors(Protocol):
    """The tensors of a checkpoint in any file format (see `checkpoint.Checkpoint`)."""

    @property
    def names(self) -> frozenset[str]:
        """The tensors' names."""

    def place(self, name: str) -> str:
        """A tensor's location, for messages."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""

    def dtype(self, name: str) -> np.dtype:
        """A tensor's dtype."""

    def chunks(self, name: str, transposed: bool) -> Iterator[np.ndarray]:
        """The values of a tensor or of its transpose in row-major order, in chunks."""


class Source(NamedTuple):
    """A checkpoint with its architecture and vocabulary.

    Attributes:
      folder: the checkpoint's folder.
      tensors: the checkpoint's tensors.
      config: the architecture; the importer sets its dtypes.
      described_by: the source of the architecture, for messages.
      names: the places of our parameters in the tensors.
      vocabulary: the model's tokenizer.
    """

    folder: pathlib.Path
    tensors: Tensors
    config: TransformerConfig
    described_by: str
    names: TensorNames
    vocabulary: Vocabulary


class _Parameter(NamedTuple):
    """One of our parameters, and the source of its values.

    Attributes:
      shape: our parameter's shape, including the layer axis if it has one.
      sources: the checkpoint's tensors: one for each layer, or a single one.
      place: the layout of the values in each of them.
      columns: which of a tensor's outputs belong to the parameter, if the tensor holds several.
    """

    shape: tuple[int, ...]
    sources: tuple[str, ...]
    place: Place
    columns: list[slice] | None


def make_model_folder(
    source: Source,
    folder: str | os.PathLike[str],
    dtype: Dtype | None,
    provenance: dict[str, Any],
) -> Description:
    """Converts a checkpoint to a model folder, atomically.

    Args:
      source: the checkpoint.
      folder: a new folder, or a model folder to replace.
      dtype: dtype of parameters and computation; None for the smallest lossless one.
      provenance: the parameters' origin for `model.json`. The dtype is added, and the numbers of
        tensors and bytes of a larger model's other parts that are left out.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: tensors or vocabulary don't fit the architecture, or a number is not finite.
      ModelFolderError: `folder` holds something else.
    """
    others = {name for name in source.tensors.names if name.startswith(source.names.others)}
    parameters = _plan(source, others)
    _check_vocabulary(source)
    chosen = np.dtype(dtype or _lossless(source.tensors, parameters))
    streams = {
        name: Stream(parameter.shape, chosen, _Reading(source.tensors, parameter, chosen))
        for name, parameter in parameters.items()
    }
    with unfinished_folder(folder) as unfinished:
        config = dataclasses.replace(source.config, dtype=chosen.name, param_dtype=chosen.name)
        stored = write_streams(unfinished, STEM, streams)
        known = {**provenance, "dtype": chosen.name, **_left_out(source.tensors, others)}
        description = Description(config, known, stored)
        describe_model(unfinished, description, source.vocabulary)
    return description


def _plan(source: Source, others: Collection[str]) -> dict[str, _Parameter]:
    """Finds the source of each parameter; refuses missing, surplus or misshapen tensors.

    Surplus tensors in `others` are allowed.
    """
    tensors, config = source.tensors, source.config
    values = sum(math.prod(tensors.shape(name)) for name in tensors.names)
    if config.parameters > 2 * values:  # absurd sizes: don't compare shapes
        raise WeightsError(
            f"{source.folder}: {source.described_by} describes {config.parameters:,} parameters, "
            f"the files hold only {values:,}"
        )
    names = source.names.of_files(tensors.names)
    plan: dict[str, _Parameter] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in name_leaves(Transformer(config).abstract()).items():
        place = names.places[name]
        layers = range(config.num_layers) if name.startswith(LAYERS) else range(1)
        sources = tuple(place.tensor.format(layer) for layer in layers)
        own = array.shape[1:] if name.startswith(LAYERS) else array.shape
        columns = place.fused.columns(own[-1], config.num_heads) if place.fused else None
        plan[name] = _Parameter(array.shape, sources, place, columns)
        shapes |= dict.fromkeys(sources, place.tensor_shape(own))
    _refuse_any(source.folder, shapes.keys() - tensors.names, "is missing")
    derived = {name for name in tensors.names if name.endswith(names.derived)}
    head = names.places["unembed/kernel"].tensor
    if config.tied_embeddings and head in tensors.names:
        derived.add(head)
    surplus = tensors.names - shapes.keys() - derived - set(others)
    _refuse_any(source.folder, surplus, "has no place in the architecture")
    for tensor, expected in shapes.items():
        if (found := tensors.shape(tensor)) != expected:
            raise WeightsError(
                f"{tensors.place(tensor)} has the shape {list(found)}, {source.described_by} makes "
                f"it {list(expected)}"
            )
    if head in derived:
        _check_same(tensors, names.places["embed/embedding"].tensor, head)
    return plan


def _check_same(tensors: Tensors, embedding: str, head: str) -> None:
    """Refuses a head that differs from the embedding if embeddings are declared to be tied.

    Programs differ in which of the two they use.
    """
    kinds = {(tensors.shape(name), tensors.dtype(name)) for name in (embedding, head)}
    chunks = (tensors.chunks(name, transposed=False) for name in (embedding, head))
    if len(kinds) > 1 or not all(itertools.starmap(np.array_equal, zip(*chunks, strict=True))):
        raise WeightsError(
            f"{tensors.place(head)} is not {embedding!r}, though tie_word_embeddings says that "
            "they are the same: set it to false if the model was trained with a head of its own, "
            "else take the tensor out"
        )


def _left_out(tensors: Tensors, names: Collection[str]) -> dict[str, Any]:
    """The entry in `model.json` for tensors that are not imported; empty if there are none."""
    if not names:
        return {}
    sizes = (tensors.dtype(name).itemsize * math.prod(tensors.shape(name)) for name in names)
    return {"left_out": {"tensors": len(names), "bytes": sum(sizes)}}


def _refuse_any(folder: pathlib.Path, names: Collection[str], problem: str) -> None:
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise WeightsError(f"{folder}: tensor {min(names)!r}{more} {problem}")


def _check_vocabulary(source: Source) -> None:
    # Fewer tokens than rows are common, because embeddings are padded to round sizes.
    size, rows = source.vocabulary.size, source.config.vocab_size
    try:
        check_end_tokens(source.vocabulary, rows)
    except VocabularyError as error:
        raise WeightsError(f"{source.folder}: {error}") from None
    if size > rows:
        raise WeightsError(
            f"{source.folder}: the tokenizer has {size} tokens, the embedding only {rows} rows: "
            "they are not of one model"
        )


def _lossless(tensors: Tensors, parameters: dict[str, _Parameter]) -> Dtype:
    """The smallest of our dtypes that represents every tensor exactly."""
    dtypes = {
        tensors.dtype(source) for parameter in parameters.values() for source in parameter.sources
    }
    return "bfloat16" if dtypes == {np.dtype(ml_dtypes.bfloat16)} else "float32"


@dataclasses.dataclass(frozen=True)
class _Reading:
    """A parameter's values, layer by layer, in our layout and dtype."""

    tensors: Tensors
    parameter: _Parameter
    dtype: np.dtype

    def __call__(self) -> Iterator[np.ndarray]:
        parameter, place = self.parameter, self.parameter.place
        for source in parameter.sources:
            for chunk in self.tensors.chunks(source, place.transposed):
                values = chunk
                if parameter.columns is not None:
                    values = np.concatenate([chunk[..., c] for c in parameter.columns], axis=-1)
                yield in_dtype(values, self.dtype, self.tensors.place(source))


def in_dtype(values: np.ndarray, dtype: np.dtype, place: str) -> np.ndarray:
    """Some of a tensor's values in another dtype.

    Raises:
      WeightsError: one is not finite there; the message names the tensor by its `place`.
    """
    with np.errstate(over="ignore"):  # refused below, by name
        values = values.astype(dtype, copy=False)
    if not np.isfinite(values).all():
        raise WeightsError(f"{place} holds a number that is not finite in {dtype.name}")
    return values

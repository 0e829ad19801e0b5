"""From a checkpoint's tensors to a model folder: each parameter's place, its values in parts."""

import dataclasses
import itertools
import math
import os
import pathlib
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple, Protocol

import ml_dtypes
import numpy as np

from gophercite.models.checkpoint_files import name_leaves
from gophercite.models.config import TransformerConfig
from gophercite.models.folder import STEM, Description, describe_model, unfinished_folder
from gophercite.models.tensors import Stream, write_streams
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import Vocabulary
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.names import LAYERS, Place, TensorNames

Dtype = Literal["bfloat16", "float32"]


class Tensors(Protocol):
    """The tensors of a checkpoint, of whatever files (see `checkpoint.Checkpoint`)."""

    @property
    def names(self) -> frozenset[str]:
        """The tensors that there are."""

    def place(self, name: str) -> str:
        """Where a tensor is, for messages."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""

    def dtype(self, name: str) -> np.dtype:
        """A tensor's dtype."""

    def chunks(self, name: str, transposed: bool) -> Iterator[np.ndarray]:
        """A tensor's values in row-major order, or its transpose's, a part at a time."""


class Source(NamedTuple):
    """A checkpoint and what is known of it.

    Attributes:
      folder: the checkpoint's.
      tensors: what it holds.
      config: the architecture; the dtypes are set here.
      described_by: what says the architecture, for messages.
      names: where the tensors keep our parameters.
      vocabulary: the model's tokenizer.
    """

    folder: pathlib.Path
    tensors: Tensors
    config: TransformerConfig
    described_by: str
    names: TensorNames
    vocabulary: Vocabulary


class _Parameter(NamedTuple):
    """One of our parameters, and where its values are.

    Attributes:
      shape: ours, with the axis of layers where it has one.
      sources: the checkpoint's tensors: one for each layer, or a single one.
      place: how the values lie in each of them.
      columns: which of a tensor's outputs they are, where it holds several parameters.
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
    """Makes a model folder of a checkpoint: whole or not at all.

    Args:
      source: the checkpoint.
      folder: a new one, or a model folder to replace.
      dtype: of parameters and computation; None for the smallest that loses nothing.
      provenance: what `model.json` says of where the parameters come from. The dtype is added, and
        how many tensors and bytes of a larger model's other parts are left out.

    Returns:
      What the new `model.json` says.

    Raises:
      WeightsError: tensors or vocabulary don't fit the architecture.
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
    """Where each parameter comes from; tensors missing, surplus or misshapen are refused.

    Not so the `others`.
    """
    tensors, config = source.tensors, source.config
    values = sum(math.prod(tensors.shape(name)) for name in tensors.names)
    if config.parameters > 2 * values:  # sizes out of all bounds are no shapes to compare
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
    if config.tied_embeddings and (head := names.places["unembed/kernel"].tensor) in tensors.names:
        _check_same(tensors, names.places["embed/embedding"].tensor, head)
        derived.add(head)
    surplus = tensors.names - shapes.keys() - derived - set(others)
    _refuse_any(source.folder, surplus, "has no place in the architecture")
    for tensor, expected in shapes.items():
        if (found := tensors.shape(tensor)) != expected:
            raise WeightsError(
                f"{tensors.place(tensor)} has the shape {list(found)}, {source.described_by} makes "
                f"it {list(expected)}"
            )
    return plan


def _check_same(tensors: Tensors, embedding: str, head: str) -> None:
    """Refuses a head of its own beside an embedding that is said to be the head.

    Programs differ in which of the two they compute with.
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
    """What `model.json` says of tensors that are not imported; nothing where there are none."""
    if not names:
        return {}
    sizes = (tensors.dtype(name).itemsize * math.prod(tensors.shape(name)) for name in names)
    return {"left_out": {"tensors": len(names), "bytes": sum(sizes)}}


def _refuse_any(folder: pathlib.Path, names: Collection[str], problem: str) -> None:
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise WeightsError(f"{folder}: tensor {min(names)!r}{more} {problem}")


def _check_vocabulary(source: Source) -> None:
    # Fewer tokens than rows are customary: embeddings are padded to round sizes.
    size, rows = source.vocabulary.size, source.config.vocab_size
    if size > rows:
        raise WeightsError(
            f"{source.folder}: the tokenizer has {size} tokens, the embedding only {rows} rows: "
            "they are not of one model"
        )


def _lossless(tensors: Tensors, parameters: dict[str, _Parameter]) -> Dtype:
    """The smallest of our dtypes that holds every tensor exactly."""
    dtypes = {
        tensors.dtype(source) for parameter in parameters.values() for source in parameter.sources
    }
    return "bfloat16" if dtypes == {np.dtype(ml_dtypes.bfloat16)} else "float32"


@dataclasses.dataclass(frozen=True)
class _Reading:
    """A parameter's values: its layers one after the other, in our layout and dtype."""

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
                yield values.astype(self.dtype, copy=False)

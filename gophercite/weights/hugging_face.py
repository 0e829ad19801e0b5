"""Importing the checkpoints of open models from their Hugging Face folders."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

import ml_dtypes
import numpy as np

from gophercite.models.checkpoint_files import name_leaves
from gophercite.models.config import TransformerConfig
from gophercite.models.folder import STEM, Description, describe_model, unfinished_folder
from gophercite.models.tensors import Stream, write_streams
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import Vocabulary, load_vocabulary
from gophercite.weights.architectures import read_architecture
from gophercite.weights.checkpoint import Checkpoint, WeightsError, read_json
from gophercite.weights.names import LAYERS, NAMES, Place, TensorNames

CONFIG = "config.json"

Dtype = Literal["bfloat16", "float32"]


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


def import_weights(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
) -> Description:
    """Makes a model folder of a published checkpoint (`architectures`): whole or not at all.

    Memory holds a part of one tensor at a time, never the model.

    Args:
      source: a folder with `config.json`, safetensors files, and `tokenizer.json` or
        `tokenizer.model`.
      folder: a new one, or a model folder to replace.
      dtype: of the parameters and of the computation; by default bfloat16 if the whole checkpoint
        is in it, else float32, which loses nothing.

    Returns:
      What the new `model.json` says.

    Raises:
      WeightsError: the checkpoint's architecture is unknown, or its tensors or vocabulary don't fit
        it; the message names the file and the tensor or field.
      TensorFileError: a file of tensors is missing, cut short or damaged.
      VocabularyError: the tokenizer can't be used.
      ModelFolderError: `folder` holds something else.
    """
    source = pathlib.Path(source)
    architecture, names = _read_config(source / CONFIG)
    checkpoint = Checkpoint(source)
    parameters = _plan(source, checkpoint, architecture, names)
    vocabulary = _read_vocabulary(source, architecture)
    chosen = np.dtype(dtype or _lossless(checkpoint, parameters))
    streams = {
        name: Stream(parameter.shape, chosen, _Reading(checkpoint, parameter, chosen))
        for name, parameter in parameters.items()
    }
    with unfinished_folder(folder) as unfinished:
        config = dataclasses.replace(architecture, dtype=chosen.name, param_dtype=chosen.name)
        provenance = {"imported_from": source.resolve().name, "dtype": chosen.name}
        stored = write_streams(unfinished, STEM, streams)
        description = Description(config, provenance, stored)
        describe_model(unfinished, description, vocabulary)
    return description


def _read_config(path: pathlib.Path) -> tuple[TransformerConfig, TensorNames]:
    value = read_json(path)
    try:
        return read_architecture(value), NAMES[value["model_type"]]  # type: ignore[index]
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from error


def _plan(
    folder: pathlib.Path, checkpoint: Checkpoint, config: TransformerConfig, names: TensorNames
) -> dict[str, _Parameter]:
    """Where each parameter comes from; tensors missing, surplus or misshapen are refused."""
    values = sum(math.prod(checkpoint.shape(name)) for name in checkpoint.names)
    if config.parameters > 2 * values:  # sizes out of all bounds are no shapes to compare
        raise WeightsError(
            f"{folder / CONFIG}: describes {config.parameters:,} parameters, the files hold only "
            f"{values:,}"
        )
    names = names.of_files(checkpoint.names)
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
    _refuse_any(folder, shapes.keys() - checkpoint.names, "is missing")
    derived = {name for name in checkpoint.names if name.endswith(names.derived)}
    if config.tied_embeddings:  # the same matrix once more
        derived.add(names.places["unembed/kernel"].tensor)
    surplus = checkpoint.names - shapes.keys() - derived
    _refuse_any(folder, surplus, "has no place in the architecture")
    for tensor, expected in shapes.items():
        if (found := checkpoint.shape(tensor)) != expected:
            raise WeightsError(
                f"{checkpoint.place(tensor)} has the shape {list(found)}, {CONFIG} makes it "
                f"{list(expected)}"
            )
    return plan


def _refuse_any(folder: pathlib.Path, names: set[str] | frozenset[str], problem: str) -> None:
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise WeightsError(f"{folder}: tensor {min(names)!r}{more} {problem}")


def _read_vocabulary(folder: pathlib.Path, config: TransformerConfig) -> Vocabulary:
    try:
        vocabulary = load_vocabulary(folder)
    except FileNotFoundError as error:
        raise WeightsError(str(error)) from error
    # Fewer tokens than rows are customary: embeddings are padded to round sizes.
    if vocabulary.size > config.vocab_size:
        raise WeightsError(
            f"{folder}: the tokenizer has {vocabulary.size} tokens, the embedding only "
            f"{config.vocab_size} rows (vocab_size in {CONFIG}): they are not of one model"
        )
    return vocabulary


def _lossless(checkpoint: Checkpoint, parameters: dict[str, _Parameter]) -> Dtype:
    """The smallest of our dtypes that holds every tensor exactly."""
    dtypes = {
        checkpoint.dtype(source)
        for parameter in parameters.values()
        for source in parameter.sources
    }
    return "bfloat16" if dtypes == {np.dtype(ml_dtypes.bfloat16)} else "float32"


@dataclasses.dataclass(frozen=True)
class _Reading:
    """A parameter's values: its layers one after the other, in our layout and dtype."""

    checkpoint: Checkpoint
    parameter: _Parameter
    dtype: np.dtype

    def __call__(self) -> Iterator[np.ndarray]:
        parameter, place = self.parameter, self.parameter.place
        for source in parameter.sources:
            for chunk in self.checkpoint.chunks(source, place.transposed):
                values = chunk
                if parameter.columns is not None:
                    values = np.concatenate([chunk[..., c] for c in parameter.columns], axis=-1)
                yield values.astype(self.dtype, copy=False)

"""Checkpoints of our own models that T5X writes when it trains one (`data_pipelines.t5x_bridge`).

T5X's tree of parameters is then ours: `trained_layers/query` with all layers, `embed/embedding`, ….
Architecture and vocabulary come from the model folder that was passed to the bridge.
"""

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from etils import epath

from gophercite.model_folders.checkpoint_files import name_leaves
from gophercite.model_folders.folder import (
    STEM,
    Description,
    describe_model,
    read_description,
    read_vocabulary,
    unfinished_folder,
)
from gophercite.model_folders.host_parameters import HostParameters
from gophercite.model_folders.tensors import CHUNK_BYTES, Stream, write_streams
from gophercite.models.transformer import Transformer
from gophercite.storage import whole_folder
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.export import Exported
from gophercite.weights.importing import Dtype, in_dtype
from gophercite.weights.t5x import step_of
from gophercite.weights.t5x_checkpoint import T5XCheckpoint
from gophercite.weights.t5x_export import checkpoint_name, refuse_full, write_checkpoint


def import_bridged(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    model: epath.PathLike,
    *,
    dtype: Dtype | None = None,
) -> Description:
    """Converts a checkpoint that T5X trained through the bridge to a model folder, atomically.

    Args:
      source: `checkpoint_<step>`.
      folder: a new folder, or a model folder to replace.
      model: the model folder that was passed to the bridge.
      dtype: dtype of the parameters; as saved by default.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: the checkpoint is damaged, of another architecture, or holds a number that is
        not finite.
      ModelFolderError: `model` is not a model folder, or `folder` holds something else.
    """
    source = pathlib.Path(source)
    description, checkpoint = read_description(model), T5XCheckpoint(source)
    shapes = {name: leaf.shape for name, leaf in _abstract(description).items()}
    for names, problem in (
        (shapes.keys() - checkpoint.names, "is missing"),
        (checkpoint.names - shapes.keys(), "has no place in the architecture"),
    ):
        if names:
            raise WeightsError(f"{source}: parameter {min(names)!r} {problem} of {model}")
    for name, shape in shapes.items():
        if (found := checkpoint.shape(name)) != shape:
            raise WeightsError(
                f"{checkpoint.place(name)} has the shape {list(found)}, {model} makes it "
                f"{list(shape)}"
            )
    chosen = np.dtype(dtype or checkpoint.dtype("embed/embedding"))
    config = dataclasses.replace(description.config, param_dtype=chosen.name)

    def read(name: str) -> Iterator[np.ndarray]:
        for chunk in checkpoint.chunks(name, transposed=False):
            yield in_dtype(chunk, chosen, checkpoint.place(name))

    streams = {
        name: Stream(shape, chosen, lambda name=name: read(name))  # type: ignore[misc]
        for name, shape in shapes.items()
    }
    provenance = {"imported_from": source.resolve().name, "dtype": chosen.name}
    with unfinished_folder(folder) as unfinished:
        stored = write_streams(unfinished, STEM, streams)
        described = Description(config, provenance | step_of(source), stored)
        describe_model(unfinished, described, read_vocabulary(model))
    return described


def export_bridged(
    model: epath.PathLike, folder: str | os.PathLike[str], *, dtype: Dtype | None = None
) -> Exported:
    """Exports a model as a T5X checkpoint, which T5X can train further through the bridge.

    Args:
      model: a model folder, or a training run's folder, whose best checkpoint is exported.
      folder: a new or empty folder, in which `checkpoint_<step>` is created.
      dtype: dtype of the parameters; their own by default.

    Returns:
      A summary of the export.

    Raises:
      WeightsError: the folder is not empty.
      ModelFolderError: there is no usable model, or it is a reward model.
      TensorFileError, CheckpointError: its files are damaged.
    """
    folder = refuse_full(folder)
    description = read_description(model)
    chosen = np.dtype(dtype or description.config.param_dtype)
    parameters = HostParameters(model, description)

    def read(name: str, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
        rows = max(1, CHUNK_BYTES // (4 * math.prod(shape[1:])))
        for start in range(0, shape[0], rows):
            part = parameters.part(name, (slice(start, min(start + rows, shape[0])),))
            yield part.astype(chosen, copy=False)

    streams = {
        name: Stream(shape, chosen, lambda name=name, shape=shape: read(name, shape))  # type: ignore[misc]
        for name, shape in parameters.shapes.items()
    }
    name, step = checkpoint_name(description)
    with whole_folder(folder) as unfinished:
        (unfinished / name).mkdir()
        write_checkpoint(unfinished / name, streams, step)
    return Exported("t5x_bridge", description.config.parameters, chosen.name, (name,))


def _abstract(description: Description) -> dict[str, jax.ShapeDtypeStruct]:
    shapes: dict[str, jax.ShapeDtypeStruct] = name_leaves(
        Transformer(description.config).abstract()
    )
    return shapes

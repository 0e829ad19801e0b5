"""Exports models as Hugging Face folders, which `transformers` and others load."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from gophercite.model_folders.folder import Description, read_description, read_vocabulary
from gophercite.model_folders.host_parameters import HostParameters
from gophercite.model_folders.tensors import CHUNK_BYTES, Stream, write_streams
from gophercite.storage import whole_folder
from gophercite.vocabularies import Vocabulary
from gophercite.vocabularies.end_tokens import GENERATION_NAME, end_tokens
from gophercite.weights.checkpoint import INDEX, WeightsError
from gophercite.weights.hugging_face import CONFIG
from gophercite.weights.importing import Dtype
from gophercite.weights.model_types import write_architecture
from gophercite.weights.names import LAYERS, NAMES, Place, TensorNames

_STEM = "model"
_METADATA = {"format": "pt"}  # `transformers` requires it: the framework of the tensors' layout


class Exported(NamedTuple):
    """A summary of an export.

    Attributes:
      model_type: the family's name in `config.json`.
      parameters: number of parameters.
      dtype: the parameters' dtype.
      files: names of the tensor files.
    """

    model_type: str
    parameters: int
    dtype: str
    files: tuple[str, ...]


class _Part(NamedTuple):
    """Outputs of one of our parameters that are adjacent in a tensor.

    Attributes:
      begin: index of the first of them in the tensor.
      name: the parameter's name.
      columns: which of the parameter's outputs they are.
    """

    begin: int
    name: str
    columns: slice


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """One of the checkpoint's tensors, computed from our parameters while it is written.

    Attributes:
      parameters: the model's parameters.
      shape: the tensor's shape.
      dtype: its dtype.
      layer: the layer's index in our stacks; empty for parameters outside stacks.
      parts: the parts it consists of, along its outputs.
      transposed: whether it is [out, in].
    """

    parameters: HostParameters
    shape: tuple[int, ...]
    dtype: np.dtype
    layer: tuple[int, ...]
    parts: list[_Part]
    transposed: bool

    def __call__(self) -> Iterator[np.ndarray]:
        """The values in row-major order, at most `CHUNK_BYTES` together unless a row is larger."""
        for chunk in self._outputs() if self.transposed else self._inputs():
            yield chunk.astype(self.dtype, copy=False)

    def _outputs(self) -> Iterator[np.ndarray]:
        step = rows_at_once(self.shape[1:])
        for part in self.parts:
            for start in range(part.columns.start, part.columns.stop, step):
                columns = slice(start, min(start + step, part.columns.stop))
                yield self._read(part, slice(None), columns).T

    def _inputs(self) -> Iterator[np.ndarray]:
        if len(self.shape) == 1:
            yield np.concatenate([self._read(part, part.columns) for part in self.parts])
            return
        step = rows_at_once(self.shape[1:])
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            yield np.concatenate(
                [self._read(part, rows, part.columns) for part in self.parts], axis=-1
            )

    def _read(self, part: _Part, *index: slice) -> np.ndarray:
        return self.parameters.part(part.name, (*self.layer, *index))


def export_weights(
    model: epath.PathLike,
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
    file_bytes: int = 5 * 10**9,
) -> Exported:
    """Exports a model as a Hugging Face folder, atomically.

    Only a part of one tensor is in memory at a time; for a training run's folder, all layers of the
    parameters in the tensor.

    Args:
      model: a model folder, or a training run's folder, whose best checkpoint is exported. Parts
        that reinforcement learning adds to the policy are not exported.
      folder: a new or empty folder.
      dtype: dtype of the tensors; the parameters' dtype by default.
      file_bytes: maximum size of a file with more than one tensor; then a new file begins.

    Returns:
      A summary of the export.

    Raises:
      WeightsError: no published family has the architecture, or the folder is not empty.
      ModelFolderError: there is no usable model, or it is a reward model, whose heads no published
        family supports.
      TensorFileError, CheckpointError: its files are damaged.
    """
    folder = pathlib.Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WeightsError(f"{folder}: exists; export into a new or empty folder")
    description = read_description(model)
    try:
        fields = write_architecture(description.config)
    except ValueError as error:
        raise WeightsError(f"{model}: {error}") from error
    vocabulary = read_vocabulary(model)
    chosen = np.dtype(dtype or description.config.param_dtype)
    streams = tensor_streams(model, description, NAMES[fields["model_type"]], chosen)
    with whole_folder(folder) as unfinished:
        stored = write_streams(unfinished, _STEM, streams, file_bytes, _METADATA)
        files = sorted({tensor.file for tensor in stored.values()})
        if len(files) > 1:
            sizes = {"total_size": sum(stream.nbytes for stream in streams.values())}
            places = {name: tensor.file for name, tensor in stored.items()}
            _write_json(unfinished / INDEX, {"metadata": sizes, "weight_map": places})
        tokens = _special_tokens(vocabulary)
        _write_json(unfinished / CONFIG, {**fields, **tokens, "torch_dtype": chosen.name})
        vocabulary.export(unfinished)
        _write_json(unfinished / GENERATION_NAME, tokens)
    count = description.config.parameters
    return Exported(fields["model_type"], count, chosen.name, tuple(files))


def tensor_streams(
    model: epath.PathLike, description: Description, names: TensorNames, dtype: np.dtype
) -> dict[str, Stream]:
    """The checkpoint's tensors, with those from the same parameters adjacent."""
    config = description.config
    together = max(place.fused.parts if place.fused else 1 for place in names.places.values())
    parameters = HostParameters(model, description, together)
    tensors: dict[str, _Tensor] = {}
    for name, shape in parameters.shapes.items():
        place = names.places[name]
        stacked = name.startswith(LAYERS)
        own = shape[1:] if stacked else shape
        parts = _parts(name, place, own[-1], config.num_heads)
        for layer in range(config.num_layers) if stacked else range(1):
            tensor = place.tensor.format(layer)
            others = tensors[tensor].parts if tensor in tensors else []
            tensors[tensor] = _Tensor(
                parameters,
                place.tensor_shape(own),
                dtype,
                (layer,) if stacked else (),
                sorted([*others, *parts], key=lambda part: part.begin),
                place.transposed,
            )
    return {name: Stream(tensor.shape, dtype, tensor) for name, tensor in tensors.items()}


def _parts(name: str, place: Place, width: int, heads: int) -> list[_Part]:
    """The ranges of a parameter's outputs in its tensor."""
    if place.fused is None:
        return [_Part(0, name, slice(0, width))]
    parts, done = [], 0
    for columns in place.fused.columns(width, heads):
        size = columns.stop - columns.start
        parts.append(_Part(columns.start, name, slice(done, done + size)))
        done += size
    return parts


def _special_tokens(vocabulary: Vocabulary) -> dict[str, int | list[int] | None]:
    return {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": end_tokens(vocabulary),
        "pad_token_id": None if vocabulary.pad_id == vocabulary.eos_id else vocabulary.pad_id,
    }


def rows_at_once(shape: tuple[int, ...]) -> int:
    """The number of rows to read at once, for dtypes up to float32."""
    return max(1, CHUNK_BYTES // (4 * math.prod(shape)))


def _write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")

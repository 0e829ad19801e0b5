"""Model folders: everything that inference needs, in one place on disk.

    model.json               architecture, provenance, and each tensor's file and SHA-256
    parameters.safetensors   one stack of layers (several numbered files when large)
    vocabulary/              the tokenizer

A training run's folder is a model folder too: its `model.json` names no tensors, and the best of
its checkpoints holds the parameters.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from etils import epath

from gophercite.models.checkpoint_files import (
    CHECKPOINTS,
    CheckpointError,
    name_leaves,
    read_parameters,
)
from gophercite.models.config import TransformerConfig
from gophercite.models.config_json import config_from_json, config_to_json
from gophercite.models.folder_contents import (
    DESCRIPTION,
    ModelFolderError,
    compare_names,
    find_checkpoint,
)
from gophercite.models.parameters import (
    FROZEN,
    HEADS,
    TRAINED,
    Params,
    frozen_layers,
    merge_layers,
    split_layers,
)
from gophercite.models.tensors import Stored, TensorFileError, TensorReader, write_tensors
from gophercite.models.transformer import Transformer
from gophercite.models.whole_folders import whole_folder
from gophercite.vocabularies import Vocabulary, load_vocabulary

VOCABULARY = "vocabulary"
STEM = "parameters"
_FORMAT = 1
_FILE_NAME = re.compile(r"[^/\\\x00]+")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model and what it needs to read and write text.

    Attributes:
      transformer: the architecture's functions.
      params: its parameters; a reward model's have heads (`gophercite.models.reward_model`).
      vocabulary: its tokenizer.
      provenance: where the parameters come from (JSON): base model, run, step, data, licence.
    """

    transformer: Transformer
    params: Params
    vocabulary: Vocabulary
    provenance: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Description:
    """What `model.json` says.

    Attributes:
      config: the architecture; its `param_dtype` is what the parameters are stored in.
      provenance: see `Model`.
      parameters: each tensor's file and digest; None in a training run's folder.
    """

    config: TransformerConfig
    provenance: dict[str, Any]
    parameters: dict[str, Stored] | None


def save_model(folder: str | os.PathLike[str], model: Model) -> None:
    """Writes a model folder: whole or not at all.

    Args:
      folder: a new one, or a model folder to replace.
      model: parameters of any split and sharding, on this process's devices.

    Raises:
      ModelFolderError: the folder holds something else.
      TensorFileError: a parameter cannot be stored.
    """
    with unfinished_folder(folder) as unfinished:
        params = merge_layers(model.params)
        stored = write_tensors(unfinished, STEM, name_leaves(params))
        dtype = params["embed"]["embedding"].dtype.name
        config = dataclasses.replace(model.transformer.config, param_dtype=dtype)
        describe_model(unfinished, Description(config, model.provenance, stored), model.vocabulary)


def describe_model(folder: pathlib.Path, description: Description, vocabulary: Vocabulary) -> None:
    """Writes what a model folder holds beside its tensors: `model.json` and `vocabulary/`.

    Args:
      folder: an existing one, on a disk.
      description: names the tensors' files.
      vocabulary: the tokenizer.
    """
    vocabulary.save(folder / VOCABULARY)
    (folder / DESCRIPTION).write_text(_to_json(description), encoding="utf-8")


@contextlib.contextmanager
def unfinished_folder(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """An empty folder that takes a model folder's place at the end, or vanishes after an error.

    Args:
      folder: a new one, or a model folder to replace.

    Yields:
      Where to write.

    Raises:
      ModelFolderError: the folder holds something else.
    """
    _refuse_to_replace(pathlib.Path(folder).absolute())
    with whole_folder(folder) as unfinished:
        yield unfinished


def describe_run(
    folder: epath.PathLike,
    transformer: Transformer,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
) -> None:
    """Writes what inference needs beside a run's checkpoints: `model.json` and `vocabulary/`.

    Args:
      folder: the run's, on a disk or in a bucket.
      transformer: the architecture.
      vocabulary: the tokenizer.
      provenance: see `Model`.
    """
    target = epath.Path(folder)
    (target / VOCABULARY).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as local:
        vocabulary.save(local)
        for path in pathlib.Path(local).iterdir():
            epath.Path(path).copy(target / VOCABULARY / path.name, overwrite=True)
    unfinished = target / f".{DESCRIPTION}.unfinished"
    unfinished.write_text(_to_json(Description(transformer.config, dict(provenance), None)))
    unfinished.replace(target / DESCRIPTION)


def read_description(folder: epath.PathLike) -> Description:
    """Reads `model.json` alone: what a model is, without its parameters.

    Args:
      folder: a model folder or a training run's.

    Returns:
      The description.

    Raises:
      ModelFolderError: the file is missing, no JSON, or has a wrong field; the message names it.
    """
    path = epath.Path(folder) / DESCRIPTION
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFolderError(
            f"{folder}: not a model folder: there is no {DESCRIPTION} in it"
        ) from None
    except ValueError as error:
        raise ModelFolderError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        found = value.get("format") if isinstance(value, dict) else None
        raise ModelFolderError(
            f"{path}: field 'format' is {found!r}: this version reads format {_FORMAT}"
        )
    with _naming(f"{path}: architecture"):
        config = config_from_json(value.get("architecture"))
    provenance, parameters = value.get("provenance", {}), value.get("parameters")
    if not isinstance(provenance, dict):
        raise ModelFolderError(f"{path}: field 'provenance' must be an object")
    try:
        stored = None if parameters is None else _stored(parameters)
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelFolderError(
            f"{path}: field 'parameters' must give each tensor's file and sha256"
        ) from error
    return Description(config, provenance, stored)


def load_model(
    folder: epath.PathLike,
    *,
    param_dtype: str | None = None,
    frozen_layers: int = 0,
    shardings: Params | None = None,
    heads: Params | None = None,
) -> Model:
    """Reads a model folder, or the best checkpoint of a training run's folder.

    Every tensor is checked against its digest.

    Args:
      folder: where.
      param_dtype: "float32" or "bfloat16"; as stored when None.
      frozen_layers: layers in the frozen stack, from the first.
      shardings: tree like the parameters, split in the same way; the first device when None. Each
        device gets its slice alone; no process holds the whole model.
      heads: shapes and dtypes of the part `heads`, for a model that has one
        (`gophercite.models.reward_model.load_reward_model`); None for a language model.

    Returns:
      The model.

    Raises:
      ModelFolderError: the folder, a file or a field is missing or wrong; the message names it.
      TensorFileError: a file of parameters is missing, cut short or altered.
      CheckpointError: a run's checkpoint is damaged.
    """
    root = epath.Path(folder)
    description = read_description(root)
    config = description.config
    if param_dtype is not None:
        config = dataclasses.replace(config, param_dtype=param_dtype)
    transformer = Transformer(config)
    needed = transformer.abstract(frozen_layers) | ({} if heads is None else {HEADS: heads})
    if shardings is None:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shardings = jax.tree.map(lambda _: here, needed)
    provenance = dict(description.provenance)
    if description.parameters is not None:
        params = _read_stored(root, needed, description.parameters, shardings)
    else:
        step = find_checkpoint(root, jax.eval_shape(merge_layers, needed))
        params = _read_checkpoint(root, step, needed, shardings)
        provenance["step"] = step
    return Model(transformer, params, read_vocabulary(root), provenance)


def read_vocabulary(folder: epath.PathLike) -> Vocabulary:
    """The tokenizer of a model folder, or of a training run's folder.

    Args:
      folder: where, on a disk or in a bucket.

    Raises:
      ModelFolderError: it is missing or damaged.
    """
    path = epath.Path(folder) / VOCABULARY
    with _naming(str(path)), _local(path) as local:
        return load_vocabulary(local)


def _read_stored(
    root: epath.Path, needed: Params, stored: Mapping[str, Stored], shardings: Params
) -> Params:
    """The parameters of a model folder, each stack's layers read to its own arrays.

    `needed` has their shapes and dtypes, split as they shall be.
    """
    folder = pathlib.Path(root)
    if "://" in os.fspath(root):
        raise ModelFolderError(f"{root}: copy the model folder to a local disk first")
    frozen, merged = frozen_layers(needed), name_leaves(jax.eval_shape(merge_layers, needed))
    compare_names(root, merged.keys(), stored.keys())
    reader = TensorReader(folder, stored)
    for name, array in merged.items():
        reader.check(name, array.shape)

    def read(path: tuple[Any, ...], array: jax.ShapeDtypeStruct, sharding: Any) -> jax.Array:
        part, *rest = (key.key for key in path)
        layers = None
        if part == FROZEN:
            layers = slice(0, frozen)
        elif part == TRAINED:
            layers = slice(frozen, frozen + array.shape[0])
        name = "/".join((TRAINED if part == FROZEN else part, *rest))
        return reader.read(name, merged[name].shape, sharding, array.dtype, layers)

    return jax.tree_util.tree_map_with_path(read, needed, shardings)


def _read_checkpoint(root: epath.Path, step: int, needed: Params, shardings: Params) -> Params:
    """The parameters of one checkpoint of a run; `needed` as in `_read_stored`."""
    places = {name: part for name, part in shardings.items() if name != FROZEN}
    params = read_parameters(root, step, places)
    merged = jax.eval_shape(merge_layers, needed)

    def arrange(params: Params) -> Params:
        cast = jax.tree.map(lambda leaf, shape: leaf.astype(shape.dtype), params, merged)
        return split_layers(cast, frozen_layers(needed))

    return jax.jit(arrange, out_shardings=shardings)(params)


def _to_json(description: Description) -> str:
    value: dict[str, Any] = {
        "format": _FORMAT,
        "architecture": config_to_json(description.config),
        "provenance": description.provenance,
    }
    if description.parameters is not None:
        value["parameters"] = {
            name: stored._asdict() for name, stored in description.parameters.items()
        }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _stored(value: Any) -> dict[str, Stored]:
    stored = {name: Stored(entry["file"], entry["sha256"]) for name, entry in value.items()}
    for name, entry in stored.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            raise TypeError(f"{name}: file and sha256 must be strings")
        # A folder from a stranger must not make us read elsewhere.
        if entry.file in ("", ".", "..") or not _FILE_NAME.fullmatch(entry.file):
            raise TypeError(f"{name}: {entry.file!r} is not the name of a file")
    return stored


def _refuse_to_replace(folder: pathlib.Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ModelFolderError(f"{folder}: is a file; a model needs a folder")
    if (folder / CHECKPOINTS).exists():
        raise ModelFolderError(f"{folder}: is a training run's folder; save the model elsewhere")
    if any(folder.iterdir()) and not (folder / DESCRIPTION).exists():
        raise ModelFolderError(f"{folder}: holds other files; save the model in a new folder")


@contextlib.contextmanager
def _naming(where: str) -> Any:
    """Puts the file before the message of what went wrong in it."""
    try:
        yield
    except (ModelFolderError, TensorFileError, CheckpointError):
        raise
    except (ValueError, FileNotFoundError) as error:
        raise ModelFolderError(f"{where}: {error}") from error


@contextlib.contextmanager
def _local(folder: epath.Path) -> Any:
    """A folder's files on this machine's disk."""
    if "://" not in os.fspath(folder):
        yield pathlib.Path(folder)
        return
    with tempfile.TemporaryDirectory() as local:
        for path in folder.iterdir():
            path.copy(epath.Path(local) / path.name)
        yield pathlib.Path(local)

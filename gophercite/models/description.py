"""What `model.json` says of a model folder, and how a folder is given one."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from gophercite.models.checkpoint_files import CheckpointError
from gophercite.models.config import TransformerConfig
from gophercite.models.config_json import config_from_json, config_to_json
from gophercite.models.folder_contents import DESCRIPTION, ModelFolderError, parameters_digest
from gophercite.models.tensors import Stored, TensorFileError
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import Vocabulary

VOCABULARY = "vocabulary"
_FORMAT = 1
_FILE_NAME = re.compile(r"[^/\\\x00]+")


@dataclasses.dataclass(frozen=True)
class Description:
    """What `model.json` says.

    Attributes:
      config: the architecture; its `param_dtype` is what the parameters are stored in.
      provenance: see `Model`.
      parameters: each tensor's file and digest; None in a training run's folder.
      base: of a run with adapters the folder of the model that they are for; else None.
    """

    config: TransformerConfig
    provenance: dict[str, Any]
    parameters: dict[str, Stored] | None
    base: str | None = None


def describe_model(folder: pathlib.Path, description: Description, vocabulary: Vocabulary) -> None:
    """Writes what a model folder holds beside its tensors: `model.json` and `vocabulary/`.

    Args:
      folder: an existing one, on a disk.
      description: names the tensors' files.
      vocabulary: the tokenizer.
    """
    vocabulary.save(folder / VOCABULARY)
    (folder / DESCRIPTION).write_text(_to_json(description), encoding="utf-8")


def describe_run(
    folder: epath.PathLike,
    transformer: Transformer,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
    base: epath.PathLike | None = None,
) -> None:
    """Writes what inference needs beside a run's checkpoints: `model.json` and `vocabulary/`.

    Args:
      folder: the run's, on a disk or in a bucket.
      transformer: the architecture.
      vocabulary: the tokenizer.
      provenance: see `Model`.
      base: of a run with adapters the folder of the model that they are for; else None.
    """
    target = epath.Path(folder)
    (target / VOCABULARY).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as local:
        vocabulary.save(local)
        for path in pathlib.Path(local).iterdir():
            epath.Path(path).copy(target / VOCABULARY / path.name, overwrite=True)
    unfinished = target / f".{DESCRIPTION}.unfinished"
    where = None if base is None else _absolute(base)
    description = Description(transformer.config, dict(provenance), None, where)
    unfinished.write_text(_to_json(description))
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
    with naming(f"{path}: architecture"):
        config = config_from_json(value.get("architecture"))
    provenance, parameters = value.get("provenance", {}), value.get("parameters")
    if not isinstance(provenance, dict):
        raise ModelFolderError(f"{path}: field 'provenance' must be an object")
    base = value.get("base")
    if not (base is None or isinstance(base, str)):
        raise ModelFolderError(f"{path}: field 'base' must be the path of a model folder")
    try:
        stored = None if parameters is None else _stored(parameters)
    except (AttributeError, KeyError, TypeError) as error:
        raise ModelFolderError(
            f"{path}: field 'parameters' must give each tensor's file and sha256"
        ) from error
    return Description(config, provenance, stored, base)


def read_base(folder: epath.PathLike, description: Description) -> Description:
    """Describes the model that a run's adapters are for.

    Args:
      folder: the run's.
      description: its own, with a `base`.

    Raises:
      ModelFolderError: there is no model at that place.
    """
    assert description.base is not None
    try:
        return read_description(description.base)
    except ModelFolderError as error:
        raise ModelFolderError(
            f"{epath.Path(folder) / DESCRIPTION}: field 'base': {error}; the folder has adapters "
            "to that model alone: put it back, or write there where it is now"
        ) from error


def model_digest(folder: epath.PathLike) -> str:
    """What identifies a model's parameters, as its folder has them; none of them is read.

    Args:
      folder: a model folder or a training run's.

    Returns:
      64 hexadecimal digits.

    Raises:
      ModelFolderError, CheckpointError: the folder holds no model, or a damaged one.
    """
    return parameters_digest(epath.Path(folder), read_description(folder).parameters)


def _to_json(description: Description) -> str:
    value: dict[str, Any] = {
        "format": _FORMAT,
        "architecture": config_to_json(description.config),
        "provenance": description.provenance,
    }
    if description.base is not None:
        value["base"] = description.base
    if description.parameters is not None:
        value["parameters"] = {
            name: stored._asdict() for name, stored in description.parameters.items()
        }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _absolute(folder: epath.PathLike) -> str:
    path = os.fspath(folder)
    return path if "://" in path else os.path.abspath(path)


def _stored(value: Any) -> dict[str, Stored]:
    stored = {name: Stored(entry["file"], entry["sha256"]) for name, entry in value.items()}
    for name, entry in stored.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            raise TypeError(f"{name}: file and sha256 must be strings")
        # A folder from a stranger must not make us read elsewhere.
        if entry.file in ("", ".", "..") or not _FILE_NAME.fullmatch(entry.file):
            raise TypeError(f"{name}: {entry.file!r} is not the name of a file")
    return stored


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Puts the file before the message of what went wrong in it."""
    try:
        yield
    except (ModelFolderError, TensorFileError, CheckpointError):
        raise
    except (ValueError, FileNotFoundError) as error:
        raise ModelFolderError(f"{where}: {error}") from error

"""`model.json`, the description of a model folder: reading and writing it."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.config_json import config_from_json, config_to_json
from gophercite.model_folders.folder_contents import (
    DESCRIPTION,
    ModelFolderError,
    parameters_digest,
)
from gophercite.model_folders.tensors import Stored, TensorFileError
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.storage import StorageError, is_remote, naming_storage, write_file
from gophercite.storage.json_fields import decode_json, describe
from gophercite.vocabularies import Vocabulary, VocabularyError
from gophercite.vocabularies.listing import LISTING
from gophercite.vocabularies.loading import renew_vocabulary

VOCABULARY = "vocabulary"
_FORMAT = 2
_WITHOUT_DIGEST = 1  # version of older folders, which are read without a check
_FILE_NAME = re.compile(r"[^/\\\x00]+")


@dataclasses.dataclass(frozen=True)
class Description:
    """The contents of `model.json`.

    Attributes:
      config: the architecture; its `param_dtype` is the dtype of the stored parameters.
      provenance: see `Model`.
      parameters: each tensor's file and digest; None in a training run's folder.
      base: for a run with adapters, the folder of the base model; otherwise None.
      vocabulary: SHA-256 of the list of the vocabulary's files (`vocabularies.listing`); None
        before it is written, and in folders of older versions.
    """

    config: TransformerConfig
    provenance: dict[str, Any]
    parameters: dict[str, Stored] | None
    base: str | None = None
    vocabulary: str | None = dataclasses.field(default=None, compare=False)


def describe_model(folder: pathlib.Path, description: Description, vocabulary: Vocabulary) -> None:
    """Writes the parts of a model folder other than tensors: `model.json` and `vocabulary/`.

    Args:
      folder: an existing folder on a disk.
      description: names the tensors' files.
      vocabulary: the tokenizer.
    """
    vocabulary.save(folder / VOCABULARY)
    described = dataclasses.replace(description, vocabulary=_listing(folder / VOCABULARY))
    (folder / DESCRIPTION).write_text(_to_json(described), encoding="utf-8")


def describe_run(
    folder: epath.PathLike,
    transformer: Transformer,
    vocabulary: Vocabulary,
    provenance: Mapping[str, Any],
    base: epath.PathLike | None = None,
) -> None:
    """Writes what inference needs besides a run's checkpoints: `model.json` and `vocabulary/`.

    Args:
      folder: the run's folder, on a disk or in a bucket.
      transformer: the architecture.
      vocabulary: the tokenizer.
      provenance: see `Model`.
      base: for a run with adapters, the folder of the base model; otherwise None.
    """
    target = epath.Path(folder)
    with tempfile.TemporaryDirectory() as local:
        vocabulary.save(local)
        listing = _listing(pathlib.Path(local))
        for path in pathlib.Path(local).iterdir():
            write_file(target / VOCABULARY / path.name, path.read_bytes())
    where = None if base is None else _absolute(base)
    description = Description(transformer.config, dict(provenance), None, where, listing)
    write_file(target / DESCRIPTION, _to_json(description))


def read_description(folder: epath.PathLike) -> Description:
    """Reads only `model.json`: a model's description without its parameters.

    Args:
      folder: a model folder or a training run's folder.

    Returns:
      The description.

    Raises:
      ModelFolderError: the file is missing, not JSON, altered, or has a wrong field; the message
        names it.
    """
    path = epath.Path(folder) / DESCRIPTION
    value = _read_json(path)
    if value.get("format") not in (_FORMAT, _WITHOUT_DIGEST):
        raise ModelFolderError(
            f"{path}: field 'format' is {value.get('format')!r}: this version can read formats "
            f"{_WITHOUT_DIGEST} and {_FORMAT}"
        )
    if value["format"] == _FORMAT and value.get("sha256") != contents_digest(value):
        raise ModelFolderError(
            f"{path}: is damaged or was edited: its contents don't match its field 'sha256'; copy "
            f"it again, or, if you edited it, run `gophercite renew {folder}`"
        )
    return _description(path, value)


def contents_digest(value: Mapping[str, Any]) -> str:
    """SHA-256 of the contents of `model.json`, independent of formatting."""
    contents = {name: entry for name, entry in value.items() if name != "sha256"}
    text = json.dumps(contents, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def renew(folder: epath.PathLike) -> None:
    """Accepts a folder's present `model.json` and vocabulary by rewriting their digests.

    This is for folders that were edited by hand and for folders of older versions. The parameters'
    digests stay, because nobody edits parameters by hand.

    Args:
      folder: a model folder or a training run's folder, on a disk.

    Raises:
      ModelFolderError: the file is missing, not JSON, or has a wrong field.
      VocabularyError, FileNotFoundError: the vocabulary can't be used.
    """
    path = epath.Path(folder) / DESCRIPTION
    description = _description(path, {**_read_json(path), "format": _FORMAT})
    vocabulary = pathlib.Path(folder) / VOCABULARY
    renew_vocabulary(vocabulary)
    write_file(path, _to_json(dataclasses.replace(description, vocabulary=_listing(vocabulary))))


def check_vocabulary(local: pathlib.Path, description: Description) -> None:
    """Compares the list of a vocabulary's files with its digest in `model.json`.

    Args:
      local: the folder with the vocabulary.
      description: the contents of `model.json`.

    Raises:
      VocabularyError: the list is missing or altered.
    """
    if description.vocabulary is None:
        return
    if not (local / LISTING).is_file():
        raise VocabularyError(f"{LISTING} is missing, but {DESCRIPTION} has its digest")
    if _listing(local) != description.vocabulary:
        raise VocabularyError(
            f"{LISTING} is damaged or belongs to another model: it doesn't match its digest in "
            f"{DESCRIPTION}"
        )


def _listing(vocabulary: pathlib.Path) -> str:
    return hashlib.sha256((vocabulary / LISTING).read_bytes()).hexdigest()


def _read_json(path: epath.Path) -> dict[str, Any]:
    """The object in a `model.json`."""
    try:
        with naming_storage(path):
            text = path.read_text()
        value = decode_json(text) if text.strip() else None
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFolderError(
            f"{path.parent}: not a model folder: there is no {DESCRIPTION} in it"
        ) from None
    except StorageError:
        raise
    except OSError as error:
        raise ModelFolderError(f"{path}: can't be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        found = describe(value) if text.strip() else "an empty file"
        raise ModelFolderError(f"{path}: expected an object, got {found}")
    return value


def _description(path: epath.Path, value: dict[str, Any]) -> Description:
    """Parses a `model.json`; raises a ModelFolderError that names a wrong field."""
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
    listing = value.get("vocabulary")
    if not (listing is None or isinstance(listing, str)):
        raise ModelFolderError(f"{path}: field 'vocabulary' must be a SHA-256")
    return Description(config, provenance, stored, base, listing)


def read_base(folder: epath.PathLike, description: Description) -> Description:
    """Describes the model that a run's adapters are for.

    Args:
      folder: the run's folder.
      description: the run's description, with a `base`.

    Raises:
      ModelFolderError: there is no model in that folder.
    """
    assert description.base is not None
    try:
        return read_description(description.base)
    except ModelFolderError as error:
        raise ModelFolderError(
            f"{epath.Path(folder) / DESCRIPTION}: field 'base': {error}; this folder has only "
            "adapters to that model: put it back, or write its new path to this field and run "
            f"`gophercite renew {folder}`"
        ) from error


def model_digest(folder: epath.PathLike) -> str:
    """A digest that identifies a model's stored parameters, without reading them.

    Args:
      folder: a model folder or a training run's folder.

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
    value["vocabulary"] = description.vocabulary
    value["sha256"] = contents_digest(json.loads(json.dumps(value)))
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _absolute(folder: epath.PathLike) -> str:
    path = os.fspath(folder)
    return path if is_remote(path) else os.path.abspath(path)


def _stored(value: Any) -> dict[str, Stored]:
    stored = {name: Stored(entry["file"], entry["sha256"]) for name, entry in value.items()}
    for name, entry in stored.items():
        if not isinstance(entry.file, str) or not isinstance(entry.sha256, str):
            raise TypeError(f"{name}: file and sha256 must be strings")
        # An untrusted folder must not make us read files outside it.
        if entry.file in ("", ".", "..") or not _FILE_NAME.fullmatch(entry.file):
            raise TypeError(f"{name}: {entry.file!r} is not the name of a file")
    return stored


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
    """Prefixes error messages with the name of the file."""
    try:
        yield
    except (ModelFolderError, TensorFileError, CheckpointError):
        raise
    except (ValueError, FileNotFoundError) as error:
        raise ModelFolderError(f"{where}: {error}") from error

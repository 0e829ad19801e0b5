"""Imports checkpoints of open models from their Hugging Face folders."""

import os
import pathlib

from gophercite.model_folders.folder import Description
from gophercite.models.config import TransformerConfig
from gophercite.vocabularies import load_vocabulary
from gophercite.weights.architectures import read_architecture
from gophercite.weights.checkpoint import Checkpoint, WeightsError, read_json
from gophercite.weights.importing import Dtype, Source, make_model_folder
from gophercite.weights.names import NAMES, TensorNames

CONFIG = "config.json"


def import_weights(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
) -> Description:
    """Converts a published checkpoint (`architectures`) to a model folder, atomically.

    Only a part of one tensor is in memory at a time, never the entire model.

    Args:
      source: a folder with `config.json`, safetensors files, and `tokenizer.json` or
        `tokenizer.model`.
      folder: a new folder, or a model folder to replace.
      dtype: dtype of the parameters and of the computation; by default bfloat16 if the entire
        checkpoint has that dtype, else float32, which is lossless.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: the checkpoint's architecture is unknown, or its tensors or vocabulary don't fit
        it; the message names the file and the tensor or field.
      TensorFileError: a file of tensors is missing, truncated or damaged.
      VocabularyError: the tokenizer can't be used.
      ModelFolderError: `folder` holds something else.
    """
    source = pathlib.Path(source)
    architecture, names = _read_config(source / CONFIG)
    tensors = Checkpoint(source)
    try:
        vocabulary = load_vocabulary(source)
    except FileNotFoundError as error:
        raise WeightsError(str(error)) from error
    checkpoint = Source(source, tensors, architecture, CONFIG, names, vocabulary)
    return make_model_folder(checkpoint, folder, dtype, {"imported_from": source.resolve().name})


def _read_config(path: pathlib.Path) -> tuple[TransformerConfig, TensorNames]:
    value = read_json(path)
    try:
        return read_architecture(value), NAMES[value["model_type"]]  # type: ignore[index]
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from error

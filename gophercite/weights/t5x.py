"""Imports T5X's decoder-only checkpoints."""

import os
import pathlib
import re

from sentencepiece import sentencepiece_model_pb2

from gophercite.model_folders.folder import Description
from gophercite.vocabularies import SentencePieceVocabulary, VocabularyError
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.importing import Dtype, Source, make_model_folder
from gophercite.weights.t5x_architecture import read_architecture, read_network, t5x_names
from gophercite.weights.t5x_checkpoint import T5XCheckpoint

_STEP = re.compile(r"checkpoint_(\d+)")


def import_t5x(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str],
    *,
    activations: tuple[str, ...] | None = None,
    max_distance: int | None = None,
    dtype: Dtype | None = None,
) -> Description:
    """Converts a T5X checkpoint of a decoder-only network to a model folder, atomically.

    Only a part of one parameter is in memory at a time, or a row of zarr chunks if that is larger.

    Args:
      source: `checkpoint_<step>`; the run's `config.gin` is expected next to it.
      folder: a new folder, or a model folder to replace.
      vocabulary: the SentencePiece model that the network was trained with.
      activations: activations of the MLP, `("relu",)` or for a gated MLP `("gelu", "linear")`; by
        default those in `config.gin`.
      max_distance: distance from which on all distances share the last bias; T5X's own 128 by
        default.
      dtype: dtype of the parameters and of the computation; by default bfloat16 if all parameters
        have that dtype, else float32, which is lossless.

    Returns:
      The contents of the new `model.json`.

    Raises:
      WeightsError: the checkpoint is not of T5X's decoder-only network, is damaged, or does not fit
        its vocabulary; the message names the file and the parameter or setting.
      VocabularyError: the tokenizer can't be used.
      ModelFolderError: `folder` holds something else.
    """
    source = pathlib.Path(source)
    checkpoint = T5XCheckpoint(source)
    run = source.absolute().parent
    network = read_network(run, activations, max_distance)
    shapes = {name: checkpoint.shape(name) for name in checkpoint.names}
    try:
        config = read_architecture(shapes, network)
    except ValueError as error:
        raise WeightsError(f"{source}: {error}") from error
    names = t5x_names(network.activations)
    provenance = {"imported_from": source.resolve().name, **step_of(source)}
    return make_model_folder(
        Source(source, checkpoint, config, "the rest of it", names, read_vocabulary(vocabulary)),
        folder,
        dtype,
        provenance,
    )


def step_of(source: pathlib.Path) -> dict[str, int]:
    """A checkpoint's training step for `model.json`; empty if its name has no step."""
    step = _STEP.fullmatch(source.resolve().name)
    return {"step": int(step[1])} if step else {}


def read_vocabulary(path: str | os.PathLike[str]) -> SentencePieceVocabulary:
    """Reads a SentencePiece model for use as in T5X: every sequence begins with the padding token.

    T5's models have no beginning-of-sequence token; T5X inserts 0, the padding, before the first.

    Raises:
      WeightsError: there is no such file.
      VocabularyError: the model can't be used.
    """
    try:
        model = pathlib.Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise WeightsError(f"{path}: there is no such file: a SentencePiece model") from error
    try:
        vocabulary = SentencePieceVocabulary(model)
        if vocabulary.bos_id is not None or vocabulary.pad_id == vocabulary.eos_id:
            return vocabulary
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        proto.trainer_spec.bos_id = vocabulary.pad_id
        proto.trainer_spec.bos_piece = proto.pieces[vocabulary.pad_id].piece
        return SentencePieceVocabulary(proto.SerializeToString())
    except VocabularyError as error:
        raise VocabularyError(f"{path}: {error}") from None

"""Exports models as checkpoints that T5X's decoder-only network reads.

    config.gin                     the network's settings, as T5X writes and reads them
    sentencepiece.model            the tokenizer
    checkpoint_<step>/checkpoint   T5X's index
    checkpoint_<step>/target.…/    the parameters, in zarr

It has no optimizer state: T5X can restore it for inference and evaluation, and for further training
if its gin file allows that state to be initialised again (docs/t5x.md).
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
import tensorstore
from etils import epath

from gophercite.model_folders.folder import Description, read_description, read_vocabulary
from gophercite.model_folders.tensors import Stream
from gophercite.models.config import TransformerConfig
from gophercite.storage import whole_folder
from gophercite.vocabularies import SentencePieceVocabulary
from gophercite.vocabularies.sentence_piece import FILE_NAME
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.export import Exported, rows_at_once, tensor_streams
from gophercite.weights.importing import Dtype
from gophercite.weights.t5x_architecture import CONFIG, Network, network_of, t5x_names
from gophercite.weights.t5x_checkpoint import FLAX_ARRAY, INDEX, TARGET

VOCABULARY = "sentencepiece.model"
_VERSION = 3  # of T5X's index, since 2021


def export_t5x(
    model: epath.PathLike,
    folder: str | os.PathLike[str],
    *,
    dtype: Dtype | None = None,
) -> Exported:
    """Exports a model as a folder with a T5X checkpoint, atomically.

    Only a part of one parameter is in memory at a time; for a training run's folder, all layers of
    a parameter.

    Args:
      model: a model folder, or a training run's folder, whose best checkpoint is exported.
      folder: a new or empty folder for the checkpoint.
      dtype: dtype of the parameters; their own by default.

    Returns:
      A summary of the export.

    Raises:
      WeightsError: T5X's network does not support the architecture, the tokenizer is not a
        SentencePiece model, or the folder is not empty.
      ModelFolderError: there is no usable model, or it is a reward model.
      TensorFileError, CheckpointError: its files are damaged.
    """
    folder = refuse_full(folder)
    description = read_description(model)
    config = description.config
    try:
        network = network_of(config)
    except ValueError as error:
        raise WeightsError(f"{model}: {error}") from error
    vocabulary = read_vocabulary(model)
    if not isinstance(vocabulary, SentencePieceVocabulary):
        raise WeightsError(f"{model}: T5X reads SentencePiece models; the tokenizer is another")
    chosen = np.dtype(dtype or config.param_dtype)
    streams = tensor_streams(model, description, t5x_names(network.activations), chosen)
    checkpoint, step = checkpoint_name(description)
    with whole_folder(folder) as unfinished:
        (unfinished / checkpoint).mkdir()
        write_checkpoint(unfinished / checkpoint, streams, step)
        (unfinished / CONFIG).write_text(_gin(config, network), "utf-8")
        vocabulary.write_files(unfinished)
        (unfinished / FILE_NAME).rename(unfinished / VOCABULARY)
    return Exported("t5x decoder_only", config.parameters, chosen.name, (checkpoint,))


def refuse_full(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Checks that a folder is new or empty, and returns it.

    Raises:
      WeightsError: the folder is neither.
    """
    folder = pathlib.Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WeightsError(f"{folder}: exists; export into a new or empty folder")
    return folder


def checkpoint_name(description: Description) -> tuple[str, int]:
    """T5X's name for a model's checkpoint, and the step of its training run, or 0."""
    step = description.provenance.get("step")
    count = step if isinstance(step, int) else 0
    return f"{INDEX}_{count}", count


def write_checkpoint(folder: pathlib.Path, streams: Mapping[str, Stream], step: int) -> None:
    """Writes a checkpoint that `t5x_checkpoint.T5XCheckpoint` and T5X's own checkpointer read.

    Args:
      folder: an existing folder `checkpoint_<step>`.
      streams: the parameters by their paths in T5X's tree.
      step: step of the training run that produced them.
    """
    target: dict[str, Any] = {}
    for name, stream in streams.items():
        *path, last = name.split("/")
        node = target
        for part in path:
            node = node.setdefault(part, {})
        node[last] = _write_array(folder, f"{TARGET}.{name.replace('/', '.')}", stream)
    count = np.asarray(step, np.int32)
    values = msgpack.packb((count.shape, count.dtype.name, count.tobytes()))
    state = {"step": msgpack.ExtType(FLAX_ARRAY, values)}
    index = {"version": _VERSION, "optimizer": {TARGET: target, "state": state}}
    (folder / INDEX).write_bytes(msgpack.packb(index))


def _write_array(folder: pathlib.Path, name: str, stream: Stream) -> dict[str, Any]:
    """Writes one parameter; returns its entry in the index."""
    rows = min(stream.shape[0], rows_at_once(stream.shape[1:]))
    specification = {
        "driver": "zarr",
        "dtype": stream.dtype.name,
        "kvstore": {"driver": "file", "path": f"{name}/"},
        "metadata": {
            "shape": list(stream.shape),
            "chunks": [rows, *stream.shape[1:]],
            "compressor": {"id": "gzip", "level": 1},
        },
    }
    here = {"driver": "file", "path": f"{folder.absolute() / name}/"}
    array = tensorstore.open({**specification, "kvstore": here}, create=True).result()
    start = 0
    for chunk in stream.chunks():
        array[start : start + len(chunk)].write(chunk).result()
        start += len(chunk)
    return specification


def _gin(config: TransformerConfig, network: Network) -> str:
    """The network's settings for T5X; model and run settings belong in the user's own gin files."""
    fields = {
        "vocab_size": config.vocab_size,
        "emb_dim": config.d_model,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "head_dim": config.head_dim,
        "mlp_dim": config.mlp_width,
        "mlp_activations": network.activations,
        "logits_via_embedding": config.tied_embeddings,
        "dtype": config.dtype,
    }
    lines = [
        "from __gin__ import dynamic_registration",
        "from t5x.examples.decoder_only import network",
        "",
        "network.DecoderWrapper.config = @network.TransformerConfig()",
        *(f"network.TransformerConfig.{name} = {value!r}" for name, value in fields.items()),
    ]
    return "\n".join(lines) + "\n"

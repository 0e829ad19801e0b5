"""Model folders: everything that inference needs, in one place on disk.

    model.json               architecture, provenance, and each tensor's file and SHA-256
    parameters.safetensors   one stack of layers (several numbered files when large)
    vocabulary/              the tokenizer
    calibration.json         labelled answers, if somebody put them there (`answering.declining`)

A training run's folder is a model folder, too: its `model.json` lists no tensors, and its best
checkpoint holds the parameters. If the run trained adapters, `model.json` names the base model's
folder, and the merged model is read.
"""

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from gophercite.model_folders.adapted import find_adapters, merge_checkpoint
from gophercite.model_folders.checkpoint_files import name_leaves, read_parameters
from gophercite.model_folders.description import (
    VOCABULARY,
    Description,
    check_vocabulary,
    describe_model,
    describe_run,
    model_digest,
    naming,
    read_base,
    read_description,
)
from gophercite.model_folders.folder_contents import (
    DESCRIPTION,
    ModelFolderError,
    compare_names,
    find_checkpoint,
)
from gophercite.model_folders.tensors import Stored, TensorFileError, TensorReader, write_tensors
from gophercite.models.parameters import (
    ADAPTERS,
    FROZEN,
    HEADS,
    TRAINED,
    Params,
    frozen_layers,
    merge_layers,
    split_layers,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.storage import files_in, is_remote, local_copy, whole_folder
from gophercite.storage.checkpoint_steps import CHECKPOINTS
from gophercite.storage.paths import storage_path
from gophercite.vocabularies import Vocabulary, load_vocabulary
from gophercite.vocabularies.end_tokens import check_end_tokens

__all__ = [
    "STEM",
    "VOCABULARY",
    "Description",
    "Model",
    "ModelFolderError",
    "begin_loading",
    "describe_model",
    "describe_run",
    "load_model",
    "load_reward_model",
    "model_digest",
    "read_description",
    "read_vocabulary",
    "save_model",
    "unfinished_folder",
]

STEM = "parameters"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model with its parameters and tokenizer.

    Attributes:
      transformer: the architecture's functions.
      params: its parameters; a reward model's have heads (`gophercite.models.reward_model`).
      vocabulary: its tokenizer.
      provenance: the parameters' origin (JSON): base model, run, step, data, licence.
    """

    transformer: Transformer
    params: Params
    vocabulary: Vocabulary
    provenance: dict[str, Any]


def save_model(folder: epath.PathLike, model: Model) -> None:
    """Writes a model folder atomically.

    Args:
      folder: a new one, or a model folder to replace; on a disk or in a bucket.
      model: parameters of any split and sharding, on this process's devices; adapters are merged.

    Raises:
      ModelFolderError: the folder holds something else.
      TensorFileError: a parameter cannot be stored.
    """
    with unfinished_folder(folder) as unfinished:
        params = merge_layers(model.params)
        if ADAPTERS in params and model.transformer.lora is not None:
            params = model.transformer.lora.merge(params)
        stored = write_tensors(unfinished, STEM, name_leaves(params))
        dtype = params["embed"]["embedding"].dtype.name
        config = dataclasses.replace(model.transformer.config, param_dtype=dtype)
        describe_model(unfinished, Description(config, model.provenance, stored), model.vocabulary)


@contextlib.contextmanager
def unfinished_folder(folder: epath.PathLike) -> Iterator[pathlib.Path]:
    """An empty folder that replaces a model folder at the end, or is deleted after an error.

    Args:
      folder: a new one, or a model folder to replace; on a disk or in a bucket.

    Yields:
      Where to write.

    Raises:
      ModelFolderError: the folder holds something else.
    """
    _refuse_to_replace(epath.Path(folder if is_remote(folder) else os.path.abspath(folder)))
    with whole_folder(folder, last=DESCRIPTION) as unfinished:
        yield unfinished


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
      folder: the folder to read.
      param_dtype: "float32" or "bfloat16"; as stored when None.
      frozen_layers: number of first layers that form the frozen stack.
      shardings: tree like the parameters, split in the same way; the first device when None. Each
        device gets only its slice; no process holds the entire model.
      heads: shapes and dtypes of the part `heads`, for a model that has this part
        (`gophercite.models.reward_model.load_reward_model`); None for a language model.

    Returns:
      The model.

    Raises:
      ModelFolderError: the folder, a file or a field is missing or wrong; the message names it.
      TensorFileError: a file of parameters is missing, truncated or altered.
      CheckpointError: a run's checkpoint is damaged.
    """
    with futures.ThreadPoolExecutor(2) as beside:
        model, params = begin_loading(
            folder, beside, param_dtype=param_dtype, frozen_layers=frozen_layers,
            shardings=shardings, heads=heads,
        )  # fmt: skip
        return dataclasses.replace(model, params=params.result())


def begin_loading(
    folder: epath.PathLike,
    beside: futures.Executor,
    *,
    param_dtype: str | None = None,
    frozen_layers: int = 0,
    shardings: Params | None = None,
    heads: Params | None = None,
    in_file: bool = False,
) -> tuple[Model, "futures.Future[Params]"]:
    """Starts to read a model folder; the parameters follow while the caller goes on.

    Those of a training run have been read when this returns.

    Args:
      folder, param_dtype, frozen_layers, shardings, heads: as for `load_model`.
      beside: two threads.
      in_file: whether parameters on a CPU device may stay in the folder's files, which must not be
        shortened while they are in use. (Folders that we replace keep their files until then.)

    Returns:
      The model, with `jax.ShapeDtypeStruct`s for parameters, from which programs can be compiled;
      and the parameters, or what `load_model` raises for them.

    Raises:
      ModelFolderError, CheckpointError: as from `load_model`, for all else.
    """
    root = storage_path(folder)
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
    vocabulary = beside.submit(_read_vocabulary, root / VOCABULARY, description)
    if description.parameters is not None:
        coming = beside.submit(
            _read_stored, root, needed, description.parameters, shardings, in_file
        )
    else:
        coming = futures.Future()
        if description.base is not None:
            params, provenance["step"] = _read_adapted(root, description, needed, shardings)
        else:
            step = find_checkpoint(root, jax.eval_shape(merge_layers, needed))
            params = _read_checkpoint(root, step, needed, shardings)
            provenance["step"] = step
        coming.set_result(params)

    def abstract(leaf: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    shapes = jax.tree.map(abstract, needed, shardings)
    return Model(transformer, shapes, vocabulary.result(), provenance), coming


def load_reward_model(
    folder: epath.PathLike, *, param_dtype: str | None = None, shardings: Params | None = None
) -> Model:
    """Reads a reward model: a model folder, or the best checkpoint of a training run's folder.

    `save_model` writes such a model like any other, its heads among the parameters.

    Args:
      folder: the folder to read.
      param_dtype: "float32" or "bfloat16"; as stored when None.
      shardings: tree like the parameters, including heads; the first device when None.

    Returns:
      The model; `RewardModel(model.transformer)` has its functions.

    Raises:
      ModelFolderError: the folder, a file or a field is missing or wrong, or it holds a language
        model, without heads.
      TensorFileError, CheckpointError: the parameters are damaged.
    """
    config = read_description(folder).config
    if param_dtype is not None:
        config = dataclasses.replace(config, param_dtype=param_dtype)
    heads = RewardModel(Transformer(config)).abstract_heads()
    return load_model(folder, param_dtype=param_dtype, shardings=shardings, heads=heads)


def read_vocabulary(folder: epath.PathLike) -> Vocabulary:
    """The tokenizer of a model folder, or of a training run's folder.

    Args:
      folder: the folder, on a disk or in a bucket.

    Raises:
      ModelFolderError: the tokenizer is missing or damaged.
    """
    path = epath.Path(folder) / VOCABULARY
    return _read_vocabulary(path, read_description(folder))


def _read_vocabulary(path: epath.Path, description: Description) -> Vocabulary:
    with naming(str(path)), local_copy(path) as local:
        check_vocabulary(local, description)
        vocabulary = load_vocabulary(local)
        check_end_tokens(vocabulary, description.config.vocab_size)
        return vocabulary


def _read_stored(
    root: epath.Path,
    needed: Params,
    stored: Mapping[str, Stored],
    shardings: Params,
    in_file: bool,
) -> Params:
    """Reads the parameters of a model folder, each stack's layers into its own arrays.

    `needed` has their shapes and dtypes, with layers split as wanted.
    """
    frozen, merged = frozen_layers(needed), name_leaves(jax.eval_shape(merge_layers, needed))
    compare_names(root, merged.keys(), stored.keys())
    reader = TensorReader(root, stored, in_file=in_file)
    _check_together(reader, {name: array.shape for name, array in merged.items()}, shardings)

    def request(path: tuple[Any, ...], array: jax.ShapeDtypeStruct, sharding: Any) -> Any:
        part, *rest = (key.key for key in path)
        layers = None
        if part == FROZEN:
            layers = slice(0, frozen)
        elif part == TRAINED:
            layers = slice(frozen, frozen + array.shape[0])
        name = "/".join((TRAINED if part == FROZEN else part, *rest))
        return name, merged[name].shape, sharding, array.dtype, layers

    requests = jax.tree_util.tree_map_with_path(request, needed, shardings)
    arrays = reader.read_all(jax.tree.leaves(requests, is_leaf=lambda x: isinstance(x, tuple)))
    return jax.tree.unflatten(jax.tree.structure(needed), arrays)


def _check_together(
    reader: TensorReader, shapes: Mapping[str, tuple[int, ...]], shardings: Params
) -> None:
    """Checks each tensor against its digest; processes that load the same model share the work.

    Raises:
      TensorFileError: a tensor is damaged; raised in every process.
    """
    devices = {d for s in jax.tree.leaves(shardings) for d in s.device_set}
    processes = sorted({device.process_index for device in devices})
    if len(processes) == 1:
        reader.check_all(shapes)
        return
    # This assumes that all processes are here; otherwise placing the parameters would hang, too.
    names = sorted(shapes, key=lambda name: (-math.prod(shapes[name]), name))
    found: TensorFileError | None = None
    try:
        mine = names[processes.index(jax.process_index()) :: len(processes)]
        reader.check_all({name: shapes[name] for name in mine})
    except TensorFileError as error:
        found = error
    failed = multihost_utils.process_allgather(np.int32(found is not None))
    if found is not None:
        raise found
    if failed.any():
        raise TensorFileError(
            f"{reader.folder}: a tensor is damaged; process {int(failed.argmax())} reports which "
            "one"
        )


def _read_checkpoint(root: epath.Path, step: int, needed: Params, shardings: Params) -> Params:
    """The parameters of one checkpoint of a run; `needed` as in `_read_stored`."""
    places = {name: part for name, part in shardings.items() if name != FROZEN}
    return _arrange(read_parameters(root, step, places), needed, shardings)


def _read_adapted(
    root: epath.Path, description: Description, needed: Params, shardings: Params
) -> tuple[Params, int]:
    """The merged parameters of a run with adapters, and the checkpoint's step.

    The base model is read in the dtype that the adapters were trained with.
    """
    read_base(root, description)
    assert description.base is not None
    merged = jax.eval_shape(merge_layers, needed)
    adapted = find_adapters(root, merged, description.base, model_digest(description.base))
    places = {name: part for name, part in shardings.items() if name != FROZEN}
    base = load_model(
        description.base,
        param_dtype=description.config.param_dtype,
        shardings={name: part for name, part in places.items() if name != HEADS},
    )
    dtype = merged["embed"]["embedding"].dtype.name
    params = merge_checkpoint(root, adapted, base.params, places, dtype)
    return _arrange(params, needed, shardings), adapted.step


def _arrange(params: Params, needed: Params, shardings: Params) -> Params:
    """Splits and casts parameters with one stack of layers as needed."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(merge_layers, needed))]
    places, tree = jax.tree.flatten(shardings)
    arranged: Params = _arranging(tuple(dtypes), frozen_layers(needed), tuple(places), tree)(params)
    return arranged


@functools.cache
def _arranging(
    dtypes: tuple[Any, ...], frozen: int, places: tuple[Any, ...], tree: Any
) -> Callable[[Params], Params]:
    """What arranges so, compiled once for all folders of models with the same shapes."""

    def arrange(params: Params) -> Params:
        leaves, structure = jax.tree.flatten(params)
        cast = [leaf.astype(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
        return split_layers(jax.tree.unflatten(structure, cast), frozen)

    return jax.jit(arrange, out_shardings=jax.tree.unflatten(tree, places))


def _refuse_to_replace(folder: epath.Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ModelFolderError(f"{folder}: is a file; a model needs a folder")
    if (folder / CHECKPOINTS).exists():
        raise ModelFolderError(f"{folder}: is a training run's folder; save the model elsewhere")
    if files_in(folder) and not (folder / DESCRIPTION).exists():
        raise ModelFolderError(f"{folder}: holds other files; save the model in a new folder")

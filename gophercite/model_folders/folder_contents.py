"""Checks that a folder holds the parameters that its `model.json` describes."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Set

from etils import epath

from gophercite.model_folders.checkpoint_files import (
    AVERAGES,
    PARAMETERS,
    Metadata,
    best_of,
    name_leaves,
    read_metadata,
    saved_steps,
)
from gophercite.model_folders.tensors import Stored
from gophercite.models.parameters import BESIDE_THE_POLICY, HEADS, Params
from gophercite.storage.checkpoint_steps import CHECKPOINTS

DESCRIPTION = "model.json"
CALIBRATION = (
    "calibration.json"  # labelled answers of the model (`answering.declining`); not hashed
)


class ModelFolderError(ValueError):
    """A folder that holds no usable model; the message says which file or field, and why."""


def find_checkpoint(root: epath.Path, merged: Params) -> int:
    """The step of a run's best checkpoint, which must match the architecture.

    Args:
      root: the run's folder.
      merged: shapes of the parameters, with one stack of layers.

    Raises:
      ModelFolderError: there is no checkpoint, or it holds other parameters.
      CheckpointError: the checkpoint is damaged.
    """
    metadata = best_checkpoint(root)
    check_arrays(root, metadata, merged)
    return metadata.step


def best_checkpoint(root: epath.Path) -> Metadata:
    """The metadata of a run's best checkpoint; raises as `find_checkpoint`.

    A damaged checkpoint may have been the best one, so it is an error and is not skipped.
    """
    checkpoints = [read_metadata(root, step) for step in saved_steps(root)]
    if not checkpoints:
        raise ModelFolderError(
            f"{root}: a training run's folder without a checkpoint: {root / CHECKPOINTS} is empty "
            "or missing"
        )
    best = best_of(checkpoints)
    if best is None:
        beyond = checkpoints[-1].score.beyond if checkpoints[-1].score else None
        raise ModelFolderError(
            f"{root}: no checkpoint of the run is within the limits of its early stopping: at step "
            f"{checkpoints[-1].step}, {beyond}"
        )
    return best


def check_arrays(root: epath.Path, metadata: Metadata, merged: Params) -> None:
    """Raises a ModelFolderError if a checkpoint's parameters don't have the given shapes."""
    stored = {
        name.removeprefix(PARAMETERS): array.shape
        for name, array in metadata.arrays.items()
        if name.startswith(PARAMETERS) and _of_model(name)
    }
    leaves = name_leaves(merged)
    compare_names(root, leaves.keys(), stored.keys())
    for name, array in leaves.items():
        if stored[name] != array.shape:
            raise ModelFolderError(
                f"{root / CHECKPOINTS / str(metadata.step)}: tensor {name!r} has the shape "
                f"{list(stored[name])}, but the architecture needs {list(array.shape)}"
            )


def parameters_digest(root: epath.Path, parameters: Mapping[str, Stored] | None) -> str:
    """A digest that identifies a folder's parameters, without reading them.

    Args:
      root: the folder.
      parameters: the parameters listed in its `model.json`; None in a training run's folder.

    Returns:
      SHA-256 of the digests of all tensors, or of all arrays in the run's best checkpoint. These
      digests are compared with the files when the files are read.

    Raises:
      ModelFolderError, CheckpointError: the run has no checkpoint, or it is damaged.
    """
    if parameters is not None:
        table: object = {name: stored.sha256 for name, stored in parameters.items()}
    else:
        metadata = best_checkpoint(root)
        arrays = {
            name: dataclasses.asdict(array)
            for name, array in metadata.arrays.items()
            if name.startswith((PARAMETERS, AVERAGES)) and _of_model(name)
        }
        base = metadata.base
        table = [arrays, None if base is None else dataclasses.asdict(base)]
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _of_model(name: str) -> bool:
    """Whether an array of a checkpoint belongs to the model, not to its training."""
    return name.split("/")[1] not in BESIDE_THE_POLICY


def compare_names(root: epath.Path, needed: Set[str], found: Set[str]) -> None:
    """Raises a ModelFolderError if tensors are missing or not in the architecture."""
    heads = {name for name in needed ^ found if name.startswith(f"{HEADS}/")}
    if heads and heads == needed ^ found:
        has = (
            ("no heads, so it is not a reward model")
            if heads <= needed
            else ("heads, so it is a reward model")
        )
        raise ModelFolderError(f"{root}: the model has {has}")
    for names, problem in ((needed - found, "is missing"), (found - needed, "is unknown")):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ModelFolderError(
                f"{root / DESCRIPTION}: tensor {min(names)!r}{more} {problem}: the parameters "
                "belong to another architecture"
            )

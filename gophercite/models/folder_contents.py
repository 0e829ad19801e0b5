"""Whether a folder holds the parameters that its `model.json` promises."""

from collections.abc import Set

from etils import epath

from gophercite.models.checkpoint_files import (
    CHECKPOINTS,
    PARAMETERS,
    best_step,
    name_leaves,
    read_metadata,
)
from gophercite.models.parameters import BESIDE_THE_POLICY, HEADS, Params

DESCRIPTION = "model.json"


class ModelFolderError(ValueError):
    """A folder that holds no usable model; the message says which file or field, and why."""


def find_checkpoint(root: epath.Path, merged: Params) -> int:
    """The step of a run's best checkpoint, which must be of the architecture.

    Args:
      root: the run's folder.
      merged: shapes of the parameters, with one stack of layers.

    Raises:
      ModelFolderError: there is no checkpoint, or it holds other parameters.
      CheckpointError: it is damaged.
    """
    step = best_step(root)
    if step is None:
        raise ModelFolderError(
            f"{root}: a training run's folder without a checkpoint: {root / CHECKPOINTS} is empty "
            "or missing"
        )
    stored = {
        name.removeprefix(PARAMETERS): array.shape
        for name, array in read_metadata(root, step).arrays.items()
        if name.startswith(PARAMETERS)
        and name.removeprefix(PARAMETERS).split("/")[0] not in BESIDE_THE_POLICY
    }
    leaves = name_leaves(merged)
    compare_names(root, leaves.keys(), stored.keys())
    for name, array in leaves.items():
        if stored[name] != array.shape:
            raise ModelFolderError(
                f"{root / CHECKPOINTS / str(step)}: tensor {name!r} has the shape "
                f"{list(stored[name])}, the architecture needs {list(array.shape)}"
            )
    return step


def compare_names(root: epath.Path, needed: Set[str], found: Set[str]) -> None:
    """Raises a ModelFolderError when tensors are missing or more than the architecture has."""
    heads = {name for name in needed ^ found if name.startswith(f"{HEADS}/")}
    if heads and heads == needed ^ found:
        has = "no heads: it is no reward model" if heads <= needed else "a reward model's heads"
        raise ModelFolderError(f"{root}: the model has {has}")
    for names, problem in ((needed - found, "is missing"), (found - needed, "is unknown")):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ModelFolderError(
                f"{root / DESCRIPTION}: tensor {min(names)!r}{more} {problem}: the parameters are "
                "of another architecture"
            )

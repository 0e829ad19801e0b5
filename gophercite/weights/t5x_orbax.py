"""The parameters in a checkpoint that T5X's newer trainer writes with Orbax.

    state/_METADATA                 the tree of what was saved, in JSON
    state/manifest.ocdbt, d/, …     one OCDBT store with all arrays, in zarr's version 2

T5X's older checkpoints (`t5x_checkpoint`) have a separate folder for each array.
"""

import pathlib
from typing import Any

from gophercite.storage.json_fields import describe
from gophercite.weights.checkpoint import WeightsError, read_json

_METADATA = "_METADATA"
_STATE = "state"
_TARGET = "target"


def orbax_state(folder: pathlib.Path) -> pathlib.Path | None:
    """The folder of the train state in a checkpoint; None if Orbax did not write it."""
    for state in (folder / _STATE, folder):
        if (state / _METADATA).exists():
            return state
    return None


def orbax_arrays(state: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Locates the parameters of a train state.

    Args:
      state: the result of `orbax_state`.

    Returns:
      TensorStore's specifications of the arrays, by the parameters' paths in T5X's tree.

    Raises:
      WeightsError: the metadata is damaged, lacks parameters, or is of another kind of store.
    """
    path = state / _METADATA
    value = read_json(path)
    tree = value.get("tree_metadata") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(tree, dict):
        raise WeightsError(f"{path}: field 'tree_metadata' must be an object: not Orbax's")
    for field, wanted in (("use_ocdbt", True), ("use_zarr3", False)):
        if (found := value.get(field, wanted)) is not wanted:
            raise WeightsError(
                f"{path}: {field} = {describe(found)}: only {describe(wanted)} is read"
            )
    # Missing chunks are zeros if Orbax omitted zeros when writing; otherwise they are lost data.
    zeros_left_out = value.get("store_array_data_equal_to_fill_value") is not True
    arrays = {}
    for entry in tree.values():
        keys = _keys(entry, path)
        if keys[0] == _TARGET:
            store = {
                "driver": "ocdbt",
                "base": {"driver": "file", "path": f"{state.absolute()}/"},
                "path": f"{'.'.join(keys)}/",
            }
            arrays["/".join(keys[1:])] = {
                "driver": "zarr",
                "kvstore": store,
                "fill_missing_data_reads": zeros_left_out,
            }
    if not arrays:
        raise WeightsError(f"{path}: has no parameters under {_TARGET!r}: not T5X's")
    return arrays


def _keys(entry: object, path: pathlib.Path) -> list[str]:
    """The keys that lead to a leaf of the tree."""
    keys = entry.get("key_metadata") if isinstance(entry, dict) else None
    listed = keys if isinstance(keys, list) else []
    names = [key.get("key") if isinstance(key, dict) else None for key in listed]
    if not names or not all(isinstance(name, str) for name in names):
        raise WeightsError(f"{path}: {describe(keys)} are not the keys of a leaf")
    return names  # type: ignore[return-value]

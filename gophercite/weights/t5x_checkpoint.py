"""The parameters in a T5X `checkpoint_<step>` folder: a msgpack index and zarr arrays.

    checkpoint                                    {"version", "optimizer": {"target", "state"}}
    target.decoder.decoder_norm.scale/            a parameter, in zarr's version 2
    state.param_states.decoder.….v/               the optimizer's state, which is not read

The index has T5X's tree of parameters. A leaf is an array's TensorStore specification, whose path
is relative to the folder; for parameters that T5X did not partition, it is the array itself.
Checkpoints that T5X writes with Orbax are read, too (`t5x_orbax`).
"""

import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import tensorstore

from gophercite.model_folders.tensors import CHUNK_BYTES, DTYPES
from gophercite.storage.json_fields import describe
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.t5x_orbax import orbax_arrays, orbax_state

INDEX = "checkpoint"
TARGET = "target"
_SPECIFICATION = {"driver", "kvstore"}
_LARGEST_INDEX = 2**30
_MOST_DEPTH = 50
# How many bytes of parameters the files may stand for: compressed, or as zeros that are left out.
_MOST_FOR_A_BYTE, _ALWAYS_ALLOWED = 16, 16 * 2**20
FLAX_ARRAY = 1  # the code of Flax's msgpack extension: shape, name of the dtype, bytes


class T5XCheckpoint:
    """The parameters of a T5X checkpoint by their path in T5X's tree, read part by part.

    Only the arrays' metadata is read at first.

    Args:
      folder: `checkpoint_<step>`.

    Raises:
      WeightsError: the folder is not a T5X checkpoint, an array's metadata is missing or damaged,
        or the arrays are far larger than the files.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        state = orbax_state(folder)
        if state is not None:
            arrays = orbax_arrays(state).items()
            self._leaves = {name: self._open(name, array) for name, array in arrays}
        else:
            leaves = _flat(_read_target(folder), folder / INDEX).items()
            self._leaves = {name: self._array(name, leaf) for name, leaf in leaves}
        for name in self._leaves:
            if (dtype := self.dtype(name)) not in DTYPES.values():
                known = ", ".join(known.name for known in DTYPES.values())
                raise WeightsError(f"{self.place(name)} is {dtype}; {known} are read")
        self._refuse_more_than_the_files_hold()

    @property
    def names(self) -> frozenset[str]:
        """The parameters' paths, such as `decoder/decoder_norm/scale`."""
        return frozenset(self._leaves)

    def place(self, name: str) -> str:
        """A parameter's location, for messages."""
        return f"{self._folder}: parameter {name!r}"

    def shape(self, name: str) -> tuple[int, ...]:
        """A parameter's shape."""
        return tuple(self._leaves[name].shape)

    def dtype(self, name: str) -> np.dtype:
        """A parameter's dtype."""
        leaf = self._leaves[name]
        return leaf.dtype if isinstance(leaf, np.ndarray) else leaf.dtype.numpy_dtype

    def chunks(self, name: str, transposed: bool) -> Iterator[np.ndarray]:
        """The values of a parameter or of its transpose in row-major order, in parts.

        Args:
          name: the parameter's name.
          transposed: yield the matrix's columns as rows.

        Yields:
          Rows of the result. Each zarr chunk is read once: a part has at least one row of chunks,
          and otherwise at most `CHUNK_BYTES`.

        Raises:
          WeightsError: a chunk is missing, truncated or damaged.
        """
        leaf = self._leaves[name]
        if isinstance(leaf, np.ndarray):
            yield leaf.T if transposed else leaf
            return
        shape, chunk = tuple(leaf.shape), _chunk_shape(leaf)
        if not shape:
            yield self._read(name, leaf)
            return
        axis = 1 if transposed and len(shape) > 1 else 0
        rows = shape[axis]
        row_bytes = self.dtype(name).itemsize * math.prod(shape) // max(1, rows)
        step = max(1, CHUNK_BYTES // max(1, row_bytes) // chunk[axis]) * chunk[axis]
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            yield (self._read(name, leaf[:, part]).T if axis else self._read(name, leaf[part]))

    def _refuse_more_than_the_files_hold(self) -> None:
        """Refuses a small checkpoint of large arrays: it would fill memory and disk with zeros."""
        described = sum(
            self.dtype(name).itemsize * math.prod(self.shape(name)) for name in self._leaves
        )
        files = (path for path in self._folder.rglob("*") if path.is_file())
        held = sum(path.stat().st_size for path in files)
        if described > max(_ALWAYS_ALLOWED, _MOST_FOR_A_BYTE * held):
            raise WeightsError(
                f"{self._folder}: describes {described:,} bytes of parameters, its files hold only "
                f"{held:,}; copy the checkpoint anew"
            )

    def _array(self, name: str, leaf: Any) -> Any:
        """An array in the index, or one that the index refers to."""
        place = self.place(name)
        if isinstance(leaf, msgpack.ExtType):
            return _from_extension(leaf, place)
        if not isinstance(leaf, dict):
            raise WeightsError(f"{place} is no array, but {describe(leaf)}")
        if (driver := leaf.get("driver")) != "zarr":
            raise WeightsError(f"{place}: its driver is {describe(driver)}: only 'zarr' is read")
        store = leaf.get("kvstore")
        path = store.get("path") if isinstance(store, dict) else None
        path = leaf.get("path", path)  # where TensorStore wrote it before 0.1.14
        folder = path.rstrip("/") if isinstance(path, str) else None
        # An untrusted folder must not make us read files outside it.
        if folder in (None, "", ".", "..") or os.path.basename(str(folder)) != folder:
            raise WeightsError(f"{place}: {describe(path)} is not the name of a folder")
        here = {"driver": "file", "path": f"{self._folder.absolute() / folder}/"}
        # T5X writes all chunks, so a missing chunk is lost data, not zeros.
        zarr = {"driver": "zarr", "kvstore": here, "fill_missing_data_reads": False}
        array = self._open(name, zarr)
        metadata = leaf.get("metadata")
        said = metadata.get("shape") if isinstance(metadata, dict) else None
        if said is not None and said != list(array.shape):
            raise WeightsError(
                f"{place} has the shape {list(array.shape)}, {INDEX} says {describe(said)}"
            )
        return array

    def _open(self, name: str, specification: dict[str, Any]) -> tensorstore.TensorStore:
        try:
            array = tensorstore.open(specification, open=True, read=True).result()
        except ValueError as error:
            raise WeightsError(f"{self.place(name)}: {_reason(error)}") from error
        chunk = _chunk_shape(array)
        if any(size > max(1, whole) for size, whole in zip(chunk, array.shape, strict=True)):
            raise WeightsError(
                f"{self.place(name)}: its chunks, {list(chunk)}, are larger than it, "
                f"{list(array.shape)}"
            )
        return array

    def _read(self, name: str, part: tensorstore.TensorStore) -> np.ndarray:
        try:
            values: np.ndarray = part.read().result()
        except ValueError as error:
            raise WeightsError(f"{self.place(name)}: {_reason(error)}") from error
        return values


def is_t5x(folder: pathlib.Path) -> bool:
    """Whether a folder looks like a T5X checkpoint, or like a run with T5X checkpoints."""
    return (
        (folder / INDEX).is_file()
        or orbax_state(folder) is not None
        or any(folder.glob(f"{INDEX}_*"))
    )


def _read_target(folder: pathlib.Path) -> Any:
    """The tree of parameters in the index."""
    index = folder / INDEX
    if not index.is_file():
        steps = sorted(path.name for path in folder.glob(f"{INDEX}_*"))
        instead = f"; take one of its checkpoints: {', '.join(steps)}" if steps else ""
        raise WeightsError(f"{folder}: holds no file {INDEX!r}{instead}")
    if (size := index.stat().st_size) > _LARGEST_INDEX:
        raise WeightsError(f"{index}: {size:,} bytes are too many for an index")
    try:
        value = msgpack.unpackb(index.read_bytes(), strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:  # TypeError: a list as a key
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(f"{index}: cut short, damaged, or no msgpack ({reason})") from error
    optimizer = value.get("optimizer") if isinstance(value, dict) else None
    target = optimizer.get(TARGET) if isinstance(optimizer, dict) else None
    if not isinstance(target, dict) or not target:
        raise WeightsError(f"{index}: has no parameters under optimizer/{TARGET}: not T5X's")
    return target


def _flat(tree: Any, index: pathlib.Path) -> dict[str, Any]:
    """The leaves of nested dictionaries by their paths."""
    leaves: dict[str, Any] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), tree)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict) or node.keys() >= _SPECIFICATION:
            leaves["/".join(path)] = node
            continue
        if len(path) >= _MOST_DEPTH:
            raise WeightsError(f"{index}: parameters lie more than {_MOST_DEPTH} levels deep")
        for name, child in node.items():
            if not isinstance(name, str):
                raise WeightsError(f"{index}: {describe(name)} is not the name of a parameter")
            waiting.append(((*path, name), child))
    return leaves


def _from_extension(leaf: msgpack.ExtType, place: str) -> np.ndarray:
    """Decodes an array from Flax's msgpack extension."""
    try:
        if leaf.code != FLAX_ARRAY:
            raise ValueError(f"extension {leaf.code}")
        shape, dtype, data = msgpack.unpackb(leaf.data)
        kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
        return np.frombuffer(data, kind).reshape(shape)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WeightsError(f"{place}: its values in {INDEX} are damaged ({error})") from error


def _chunk_shape(array: Any) -> tuple[int, ...]:
    return tuple(array.chunk_layout.read_chunk.shape)


def _reason(error: ValueError) -> str:
    """TensorStore's error message, in words for users."""
    if str(error).startswith("NOT_FOUND"):
        return "files of it are missing; copy the checkpoint anew"
    return "files of it are cut short or damaged; copy the checkpoint anew"

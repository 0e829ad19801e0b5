"""One safetensors file, of which memory holds what is asked for and nothing else.

The library maps a whole file and keeps it mapped: what was read once counts as this process's
memory for as long as the file is open, in the end as much as the model. Here a part of a tensor is
mapped when it is read, and no longer than its values are in use.
"""

import json
import math
import os
import pathlib
import struct
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors

CHUNK_BYTES = 64 * 2**20

DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}


class TensorFileError(ValueError):
    """A file of tensors that is missing, cut short, altered, or of another model."""


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
      path: the file.
      offset: where in it the tensor's bytes begin.
      shape: the tensor's.
      dtype: its name in the file; those of `DTYPES` are read.
    """

    path: pathlib.Path
    offset: int
    shape: tuple[int, ...]
    dtype: str

    def mapped(self, rows: slice = slice(None)) -> np.ndarray:
        """Some of the first axis: memory holds what is looked at, while they are in use."""
        dtype = DTYPES[self.dtype]
        begin, end, _ = rows.indices(self.shape[0])
        shape = (max(0, end - begin), *self.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, dtype)
        offset = self.offset + begin * self._row_bytes
        bits = np.memmap(self.path, f"<u{dtype.itemsize}", "r", offset, shape)
        return np.asarray(bits).view(dtype)

    def chunks(self, rows: slice = slice(None)) -> Iterator[tuple[slice, np.ndarray]]:
        """Some of the first axis, mapped one after the other, at most `CHUNK_BYTES` at a time.

        Yields:
          Places from the first of the rows on, and their values; a single row may be larger.
        """
        begin, end, _ = rows.indices(self.shape[0])
        step = max(1, CHUNK_BYTES // max(1, self._row_bytes))
        for start in range(begin, end, step):
            stop = min(start + step, end)
            yield slice(start - begin, stop - begin), self.mapped(slice(start, stop))

    def read(self, index: tuple[int | slice, ...], dtype: Any = None) -> np.ndarray:
        """A part of the values, in memory.

        Args:
          index: of the part; no numbers below 0, slices with step 1.
          dtype: of the result; as stored when None.
        """
        first, *rest = index
        if not isinstance(first, slice):
            return self.read((slice(first, first + 1), *rest), dtype)[0]
        begin, end, _ = first.indices(self.shape[0])
        whole = np.broadcast_to(np.zeros((), np.bool_), (max(0, end - begin), *self.shape[1:]))
        result = np.empty(whole[(slice(None), *rest)].shape, dtype or DTYPES[self.dtype])
        for places, values in self.chunks(first):
            result[places] = values[(slice(None), *rest)]
        return result

    @property
    def _row_bytes(self) -> int:
        return DTYPES[self.dtype].itemsize * math.prod(self.shape[1:])


class TensorFile:
    """The tensors of a safetensors file, whose header must fit its length.

    Args:
      path: the file.

    Raises:
      TensorFileError: the file is missing, cut short or damaged.
    """

    def __init__(self, path: pathlib.Path) -> None:
        try:
            with safetensors.safe_open(os.fspath(path), framework="np"):
                pass  # the library checks the header against the file
        except FileNotFoundError as error:
            raise TensorFileError(f"{path}: the file is missing") from error
        except OSError as error:
            reason = error.strerror or "is it a file?"
            raise TensorFileError(f"{path}: can't be read: {reason}") from error
        except safetensors.SafetensorError as error:
            reason = str(error).splitlines()[0]
            raise TensorFileError(f"{path}: the file is cut short or damaged ({reason})") from error
        self._path = path
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self._begin = 8 + length
            self._entries: dict[str, Any] = json.loads(file.read(length))
        self._entries.pop("__metadata__", None)

    @property
    def names(self) -> Collection[str]:
        """The tensors' names."""
        return self._entries.keys()

    def tensor(self, name: str) -> StoredTensor:
        """One of them, of which nothing is read yet."""
        entry = self._entries[name]
        offset = self._begin + entry["data_offsets"][0]
        return StoredTensor(self._path, offset, tuple(entry["shape"]), entry["dtype"])

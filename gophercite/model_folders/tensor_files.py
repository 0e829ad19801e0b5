"""A safetensors file of which only the requested parts are in memory.

The library maps an entire file and keeps it mapped: everything read counts as this process's memory
for as long as the file is open, in the end as much as the model. Here a part of a tensor is mapped
when it is read, and only while its values are in use. From a bucket, only the requested part is
fetched.
"""

import json
import math
import os
import struct
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
from etils import epath

from gophercite.storage import is_remote, naming_storage

CHUNK_BYTES = 64 * 2**20

# Arrays that begin at a multiple of this many bytes aren't copied to a CPU device.
ALIGNMENT = 64

DTYPES = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
}


_LONGEST_HEADER = 100_000_000  # bytes, the library's limit

# Number of bits per value of each type that a file may hold.
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
}


class TensorFileError(ValueError):
    """A file of tensors that is missing, truncated, altered, or of another model."""


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
      path: the file, on a disk or in a bucket.
      offset: where the tensor's bytes begin in the file.
      shape: the tensor's shape.
      dtype: name of its dtype in the file; those in `DTYPES` can be read.
    """

    path: epath.Path
    offset: int
    shape: tuple[int, ...]
    dtype: str

    def mapped(self, rows: slice = slice(None)) -> np.ndarray:
        """Maps some rows of the first axis; only accessed pages take memory, while in use."""
        dtype = DTYPES[self.dtype]
        begin, end, _ = rows.indices(self.shape[0])
        shape = (max(0, end - begin), *self.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, dtype)
        offset = self.offset + begin * self._row_bytes
        if is_remote(self.path):
            length = (end - begin) * self._row_bytes
            return np.frombuffer(_fetched(self.path, offset, length), dtype).reshape(shape)
        bits = np.memmap(self.path, f"<u{dtype.itemsize}", "r", offset, shape)
        return np.asarray(bits).view(dtype)

    def chunks(self, rows: slice = slice(None)) -> Iterator[tuple[slice, np.ndarray]]:
        """Maps some rows of the first axis in chunks of at most `CHUNK_BYTES`.

        Yields:
          Indices relative to the first of the rows, and their values; a single row may be larger.
        """
        begin, end, _ = rows.indices(self.shape[0])
        step = max(1, CHUNK_BYTES // max(1, self._row_bytes))
        for start in range(begin, end, step):
            stop = min(start + step, end)
            yield slice(start - begin, stop - begin), self.mapped(slice(start, stop))

    def read(
        self, index: tuple[int | slice, ...], dtype: Any = None, *, in_file: bool = False
    ) -> np.ndarray:
        """Reads a part of the values into memory.

        Args:
          index: index of the part; no negative numbers, slices with step 1.
          dtype: dtype of the result; as stored when None.
          in_file: whether the result may be a mapped part of the file itself. It is one if the part
            is contiguous, aligned and of this dtype; the file must not be shortened while it is
            in use.
        """
        first, *rest = index
        if not isinstance(first, slice):
            return self.read((slice(first, first + 1), *rest), dtype, in_file=in_file)[0]
        begin, end, _ = first.indices(self.shape[0])
        whole = np.broadcast_to(np.zeros((), np.bool_), (max(0, end - begin), *self.shape[1:]))
        shape = whole[(slice(None), *rest)].shape
        if in_file and shape == whole.shape and dtype in (None, DTYPES[self.dtype]):
            values = self.mapped(first)
            if values.ctypes.data % ALIGNMENT == 0:
                return values
        result = _aligned(shape, dtype or DTYPES[self.dtype])
        for places, values in self.chunks(first):
            result[places] = values[(slice(None), *rest)]
        return result

    @property
    def _row_bytes(self) -> int:
        return DTYPES[self.dtype].itemsize * math.prod(self.shape[1:])


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised array that `jax.device_put` takes as it is.

    For a model, copying takes longer than reading.
    """
    length = np.dtype(dtype).itemsize * math.prod(shape)
    memory = np.empty(length + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + length].view(dtype).reshape(shape)


class TensorFile:
    """The tensors of a safetensors file, whose header must match its length.

    Args:
      path: the file, on a disk or in a bucket.

    Raises:
      TensorFileError: the file is missing, truncated or damaged.
      StorageError: the bucket can't be used.
    """

    _entries: dict[str, Any]

    def __init__(self, path: epath.PathLike) -> None:
        self._path = epath.Path(path)
        if is_remote(path):
            self._begin, self._entries = _remote_header(self._path)
            return
        try:
            with safetensors.safe_open(os.fspath(path), framework="np"):
                pass  # the library checks the header against the file
        except FileNotFoundError as error:
            raise TensorFileError(f"{path}: the file is missing") from error
        except OSError as error:
            reason = error.strerror or "it may not be a file"
            raise TensorFileError(f"{path}: can't be read: {reason}") from error
        except safetensors.SafetensorError as error:
            reason = str(error).splitlines()[0]
            raise TensorFileError(f"{path}: the file is cut short or damaged ({reason})") from error
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            self._begin = 8 + length
            self._entries = json.loads(file.read(length))
        self._entries.pop("__metadata__", None)

    @property
    def names(self) -> Collection[str]:
        """The tensors' names."""
        return self._entries.keys()

    def tensor(self, name: str) -> StoredTensor:
        """One of the tensors, without reading its values."""
        entry = self._entries[name]
        offset = self._begin + entry["data_offsets"][0]
        return StoredTensor(self._path, offset, tuple(entry["shape"]), entry["dtype"])


def _fetched(path: epath.Path, offset: int, length: int) -> bytes:
    """Fetches a part of an object in a bucket."""
    with naming_storage(path), path.open("rb") as file:
        file.seek(offset)
        values: bytes = file.read(length)
    if len(values) != length:
        raise TensorFileError(f"{path}: the file is cut short or damaged")
    return values


def _remote_header(path: epath.Path) -> tuple[int, dict[str, Any]]:
    """Where the tensors in a bucket's file begin, and the header's entry for each.

    The header is checked as the library does for files on a disk: tensors are adjacent without
    gaps, each as long as its shape and type require, up to the end of the file.
    """
    with naming_storage(path):
        if not path.exists():
            raise TensorFileError(f"{path}: the file is missing")
        size = path.stat().length
    damaged = TensorFileError(f"{path}: the file is cut short or damaged")
    if size < 8:
        raise damaged
    (length,) = struct.unpack("<Q", _fetched(path, 0, 8))
    if not 0 < length <= min(size - 8, _LONGEST_HEADER):
        raise damaged
    try:
        entries = json.loads(_fetched(path, 8, length))
        entries.pop("__metadata__", None)
        end = 0
        for entry in sorted(entries.values(), key=lambda entry: entry["data_offsets"]):
            first, after = entry["data_offsets"]
            shape = [int(each) for each in entry["shape"]]
            bits = _BITS[entry["dtype"]] * math.prod(shape)
            if first != end or min(shape, default=0) < 0 or 8 * (after - first) != bits:
                raise damaged
            end = after
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged from error
    if 8 + length + end != size:
        raise damaged
    return 8 + length, entries

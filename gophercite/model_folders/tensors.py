"""Named arrays in safetensors files, each checked against the SHA-256 of its bytes.

A file may stay on a disk for years and be copied many times; a digest shows which tensor was
damaged. Arrays are read slice by slice, directly to the devices of their sharding.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np
from etils import epath

from gophercite.model_folders.tensor_files import (
    ALIGNMENT,
    CHUNK_BYTES,
    DTYPES,
    StoredTensor,
    TensorFile,
    TensorFileError,
)

__all__ = [
    "CHUNK_BYTES",
    "DTYPES",
    "FILE_BYTES",
    "Stored",
    "Stream",
    "TensorFileError",
    "TensorReader",
    "write_streams",
    "write_tensors",
]

FILE_BYTES = 4 * 10**9

# Hashing and copying run without Python's lock, one core for each tensor. More threads would have
# more slices in host memory at once.
_THREADS = 4


class Stored(NamedTuple):
    """A tensor's file and its expected digest.

    Attributes:
      file: name of the file in its folder.
      sha256: hexadecimal digest of the tensor's little-endian bytes in row-major order.
    """

    file: str
    sha256: str


def write_tensors(
    folder: pathlib.Path, stem: str, arrays: Mapping[str, jax.Array], file_bytes: int = FILE_BYTES
) -> dict[str, Stored]:
    """Writes `stem.safetensors`, or `stem-00001-of-N.safetensors` … if it would be too large.

    Args:
      folder: an existing folder.
      stem: prefix of the files' names.
      arrays: bfloat16, float16 or float32 arrays by name; copied to the host one at a time.
      file_bytes: maximum size of a file with more than one tensor; then a new file begins.

    Returns:
      The file and digest of each name.

    Raises:
      TensorFileError: an array has another dtype, or is also on other processes.
    """
    for name, array in arrays.items():
        if array.dtype not in DTYPES.values():
            known = ", ".join(dtype.name for dtype in DTYPES.values())
            raise TensorFileError(f"tensor {name!r} is {array.dtype}: only {known} can be stored")
        if not (array.is_fully_addressable or array.is_fully_replicated):
            raise TensorFileError(
                f"tensor {name!r} is spread over {jax.process_count()} processes: load the run's "
                "checkpoint in one process and save it from there"
            )

    def stream(array: jax.Array) -> Stream:
        return Stream(array.shape, array.dtype, lambda: iter((np.asarray(array),)))

    streams = {name: stream(array) for name, array in arrays.items()}
    return write_streams(folder, stem, streams, file_bytes)


@dataclasses.dataclass(frozen=True)
class Stream:
    """A tensor that is computed while it is written, so that it is never entirely in memory.

    Attributes:
      shape: the tensor's shape.
      dtype: the dtype to store.
      chunks: yields the tensor's values in row-major order, in chunks of any size.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    chunks: Callable[[], Iterator[np.ndarray]]

    @property
    def nbytes(self) -> int:
        """Number of bytes in the tensor."""
        return self.dtype.itemsize * math.prod(self.shape)


def write_streams(
    folder: pathlib.Path,
    stem: str,
    streams: Mapping[str, Stream],
    file_bytes: int = FILE_BYTES,
    metadata: Mapping[str, str] | None = None,
) -> dict[str, Stored]:
    """Writes the same files as `write_tensors`, chunk by chunk.

    The safetensors library needs all of a file's tensors in memory at once; the format itself is a
    JSON header followed by the tensors' bytes in order.

    Args:
      folder: an existing folder.
      stem: prefix of the files' names.
      streams: the tensors by name.
      file_bytes: as for `write_tensors`.
      metadata: metadata to store in each file, for programs that read it.

    Returns:
      The file and digest of each name.
    """
    stored: dict[str, Stored] = {}
    sizes = {name: stream.nbytes for name, stream in streams.items()}
    for file, names in _files(stem, sizes, file_bytes):
        with (folder / file).open("wb") as out:
            out.write(_header({name: streams[name] for name in names}, metadata))
            for name in names:
                digest = hashlib.sha256()
                for chunk in streams[name].chunks():
                    _append(out, digest, chunk)
                stored[name] = Stored(file, digest.hexdigest())
    return stored


def _append(out: BinaryIO, digest: "hashlib._Hash", chunk: np.ndarray) -> None:
    """Writes and hashes a chunk; a copy of its bytes is freed before the next chunk is computed."""
    values = _bytes(chunk)
    out.write(values)
    digest.update(values)


def _header(streams: Mapping[str, Stream], metadata: Mapping[str, str] | None) -> bytes:
    """The header of a safetensors file: the length of its JSON, and the JSON."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    start = 0
    for name, stream in streams.items():
        entries[name] = {
            "dtype": names[stream.dtype],
            "shape": stream.shape,
            "data_offsets": (start, start + stream.nbytes),
        }
        start += stream.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)  # so that tensors can be used in the file
    return struct.pack("<Q", len(text)) + text


def _files(stem: str, sizes: Mapping[str, int], file_bytes: int) -> list[tuple[str, list[str]]]:
    """The names of the files and of the tensors in each."""
    groups: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not groups or filled + size > file_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    if len(groups) == 1:
        return [(f"{stem}.safetensors", groups[0])]
    return [
        (f"{stem}-{number:05}-of-{len(groups):05}.safetensors", names)
        for number, names in enumerate(groups, start=1)
    ]


class TensorReader:
    """The tensors of a folder, opened when needed.

    Args:
      folder: the folder with the files, on a disk or in a bucket.
      stored: the result of `write_tensors`.
      in_file: whether arrays on a CPU device may use a file's own pages (`StoredTensor.read`).

    Attributes:
      folder: see above.
    """

    def __init__(
        self, folder: epath.PathLike, stored: Mapping[str, Stored], *, in_file: bool = False
    ) -> None:
        self.folder = epath.Path(folder)
        self._stored = dict(stored)
        self._in_file = in_file
        self._files: dict[str, TensorFile] = {}

    def read(
        self,
        name: str,
        shape: tuple[int, ...],
        sharding: jax.sharding.Sharding,
        dtype: Any = None,
        layers: slice | None = None,
    ) -> jax.Array:
        """Reads a tensor, or some of its layers, to the devices of a sharding.

        Args:
          name: name of a stored tensor.
          shape: shape of the full tensor in the architecture.
          sharding: sharding of the result; each process reads only what its devices hold.
          dtype: dtype of the result; as stored when None.
          layers: which entries of the first axis to read; all when None.

        Returns:
          The array.

        Raises:
          TensorFileError: the file is missing or truncated, or the tensor has another shape.
        """
        stored = self._tensor(name, shape)
        first, after = (layers.start, layers.stop) if layers else (0, shape[0] if shape else 0)
        result_shape = (after - first, *shape[1:])

        def part(index: tuple[slice, ...]) -> np.ndarray:
            bounds = [s.indices(size) for s, size in zip(index, result_shape, strict=True)]
            begin, end, _ = bounds[0]
            rows = slice(begin + first, end + first)
            rest = (slice(begin, end) for begin, end, _ in bounds[1:])
            return stored.read((rows, *rest), dtype, in_file=self._in_file)

        return _placed(part, result_shape, sharding)

    def part(self, name: str, shape: tuple[int, ...], index: tuple[int | slice, ...]) -> np.ndarray:
        """A part of a tensor in host memory, in the stored dtype.

        Args:
          name: name of a stored tensor.
          shape: shape of the full tensor in the architecture.
          index: index of the part.

        Raises:
          TensorFileError: as in `read`.
        """
        return self._tensor(name, shape).read(index)

    def read_all(
        self, requests: Sequence[tuple[str, tuple[int, ...], jax.sharding.Sharding, Any, Any]]
    ) -> list[jax.Array]:
        """Reads several tensors, a few at a time.

        Args:
          requests: the arguments of `read` for each.

        Returns:
          The arrays, in order.

        Raises:
          TensorFileError: as in `read`.
        """
        with futures.ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda request: self.read(*request), requests))

    def check_all(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Checks tensors' bytes against their digests, a few at a time.

        Args:
          shapes: the shapes in the architecture of stored tensors, by name.

        Raises:
          TensorFileError: as in `read`, or a digest differs; the first in order is reported.
        """
        with futures.ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self.check, shapes.keys(), shapes.values()))

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Checks a tensor's bytes against its digest.

        Args:
          name: name of a stored tensor.
          shape: its shape in the architecture.

        Raises:
          TensorFileError: as in `read`, or the digest differs.
        """
        digest = hashlib.sha256()
        for _, values in self._tensor(name, shape).chunks():
            digest.update(_bytes(values))
        stored = self._stored[name]
        if digest.hexdigest() != stored.sha256:
            raise TensorFileError(
                f"{self.folder / stored.file}: tensor {name!r} is damaged: its bytes hash to "
                f"{digest.hexdigest()[:12]}…, not {stored.sha256[:12]}… as when it was saved; "
                "copy the file again"
            )

    def _tensor(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        file = self._stored[name].file
        path = self.folder / file
        if file not in self._files:
            self._files[file] = TensorFile(path)
        if name not in self._files[file].names:
            raise TensorFileError(f"{path}: tensor {name!r} is not in the file")
        tensor = self._files[file].tensor(name)
        if tensor.shape != shape:
            raise TensorFileError(
                f"{path}: tensor {name!r} has the shape {list(tensor.shape)}, but the "
                f"architecture needs {list(shape)}"
            )
        if tensor.dtype not in DTYPES:
            raise TensorFileError(
                f"{path}: tensor {name!r} is {tensor.dtype}; only {', '.join(DTYPES)} can be read"
            )
        return tensor


def _placed(
    part: Callable[[tuple[slice, ...]], np.ndarray],
    shape: tuple[int, ...],
    sharding: jax.sharding.Sharding,
) -> jax.Array:
    """Builds an array slice by slice.

    `jax.make_array_from_callback` would hold the slices of all devices in host memory at once.
    """
    slices = sharding.addressable_devices_indices_map(shape)
    sharers: dict[str, list[jax.Device]] = {}
    for device, index in slices.items():
        sharers.setdefault(str(index), []).append(device)
    shards = []
    for devices in sharers.values():
        values = part(slices[devices[0]] or ())
        for device in devices:
            place = jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
            shards.append(jax.block_until_ready(jax.device_put(values, place)))
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def _bytes(values: np.ndarray) -> memoryview:
    """An array's bytes in row-major order, as in memory."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data

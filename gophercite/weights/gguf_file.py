"""Reads GGUF files: metadata, and tensors stored in quantised blocks.

A file comes from elsewhere and may be damaged or malicious. So its entire header is checked against
the file's length before it is used: no allocation or loop depends on a count that the file could
not hold. The `gguf` package decodes the blocks.
"""

import itertools
import math
import mmap
import os
import pathlib
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gophercite.model_folders.tensor_files import CHUNK_BYTES
from gophercite.weights.checkpoint import WeightsError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32  # bytes, unless the file says otherwise
_MOST_DIMENSIONS = 4
_DEEPEST = 2  # arrays of arrays; no published file nests deeper

# The codes of metadata types with a fixed size, with their `struct` formats.
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9

# Tensor types that can be read, by their names in the `gguf` package.
KINDS = (
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
)


class _Stored(NamedTuple):
    """One tensor in the file.

    Attributes:
      kind: one of `KINDS`.
      shape: its shape, rows first as in NumPy.
      start: offset of its bytes in the file.
      row_bytes: number of bytes in one row of its last axis.
    """

    kind: str
    shape: tuple[int, ...]
    start: int
    row_bytes: int

    @property
    def end(self) -> int:
        """Offset of the first byte after it."""
        return self.start + math.prod(self.shape[:-1]) * self.row_bytes


class GGUFFile:
    """A GGUF file: its metadata, and its tensors as float32.

    Args:
      path: the file.

    Attributes:
      path: the file.
      fields: the metadata, by key; arrays are lists.

    Raises:
      WeightsError: the file is not GGUF, truncated or damaged, or the `gguf` package is not
        installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self._quants = _package()
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                # An empty file can't be mapped.
                self._bytes: Any = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
                )
        except OSError as error:
            raise WeightsError(f"{self.path}: can't be read: {error.strerror}") from None
        header = _Header(self.path, self._bytes)
        self.fields, infos, data = header.read()
        self._tensors = {name: self._checked(name, info, data) for name, info in infos.items()}
        self._refuse_shared_bytes()

    @property
    def names(self) -> frozenset[str]:
        """The tensors' names."""
        return frozenset(self._tensors)

    def place(self, name: str) -> str:
        """A tensor's location, for messages."""
        return f"{self.path}: tensor {name!r}"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, rows first."""
        return self._tensors[name].shape

    def kind(self, name: str) -> str:
        """A tensor's storage type, one of `KINDS`."""
        return self._tensors[name].kind

    def rows(self, name: str, order: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Some of a tensor's rows.

        Args:
          name: the tensor's name; a vector is one row.
          order: which rows, in the wanted order.

        Returns:
          float32, [rows, row length]; for a tensor with more axes, all but the last are rows.
        """
        tensor = self._tensors[name]
        count = math.prod(tensor.shape[:-1])
        stored = np.frombuffer(
            self._bytes, np.uint8, count * tensor.row_bytes, tensor.start
        ).reshape(count, tensor.row_bytes)
        kind = self._quants.constants.GGMLQuantizationType[tensor.kind]
        values = self._quants.quants.dequantize(np.ascontiguousarray(stored[order]), kind)
        return np.asarray(values, np.float32).reshape(-1, tensor.shape[-1])

    def _checked(self, name: str, info: "_Info", data: int) -> _Stored:
        """A tensor's entry, after checking that its bytes are within the file."""
        constants = self._quants.constants
        try:
            kind = constants.GGMLQuantizationType(info.kind)
        except ValueError:
            raise WeightsError(f"{self.place(name)} is of the unknown type {info.kind}") from None
        if kind.name not in KINDS:
            raise WeightsError(f"{self.place(name)} is {kind.name}; {', '.join(KINDS)} are read")
        block, block_bytes = constants.GGML_QUANT_SIZES[kind]
        shape = info.shape
        if not shape or min(shape) < 1 or shape[-1] % block:
            raise WeightsError(
                f"{self.place(name)} has the shape {list(shape)}, which {kind.name} can't hold: "
                f"rows come in blocks of {block}"
            )
        row_bytes = shape[-1] // block * block_bytes
        stored = _Stored(kind.name, shape, data + info.offset, row_bytes)
        if stored.end > len(self._bytes):
            raise WeightsError(
                f"{self.place(name)} ends at byte {stored.end}, the file at {len(self._bytes)}: it "
                "is cut short or damaged"
            )
        return stored

    def _refuse_shared_bytes(self) -> None:
        """Refuses tensors that overlap: a short file could describe a model of any size."""
        by_start = sorted(self._tensors.items(), key=lambda item: item[1].start)
        for (before, first), (name, second) in itertools.pairwise(by_start):
            if second.start < first.end:
                raise WeightsError(
                    f"{self.place(name)} begins at byte {second.start}, before tensor {before!r} "
                    f"ends ({first.end}): tensors can't overlap"
                )


class GGUFTensors:
    """A file's tensors as `importing.Tensors`, with the changes of the conversion to GGUF undone.

    Args:
      file: the file.
      row_order: maps a tensor's name and number of rows to the position of each wanted row; None if
        the order is right.
      offset: maps a tensor's name to what was added to all its values.
    """

    def __init__(
        self,
        file: GGUFFile,
        row_order: Callable[[str, int], np.ndarray | None],
        offset: Callable[[str], float],
    ) -> None:
        self._file, self._row_order, self._offset = file, row_order, offset
        self.names = file.names
        self.place, self.shape = file.place, file.shape

    def dtype(self, name: str) -> np.dtype:
        """float32, which can hold the values of all kinds."""
        return np.dtype(np.float32)

    def chunks(self, name: str, transposed: bool) -> Iterator[np.ndarray]:
        """The values of a tensor or of its transpose in row-major order, in chunks.

        Args:
          name: the tensor's name.
          transposed: yield the matrix's columns as rows.

        Yields:
          Rows of the result, at most `CHUNK_BYTES` together unless a single row is larger; a vector
          is one row. A transposed matrix is held in memory entirely, in float32.
        """
        shape = self.shape(name)
        if len(shape) < 2:
            yield self._rows(name, slice(None))[0]
            return
        rows, *rest = shape[::-1] if transposed else shape
        step = max(1, CHUNK_BYTES // (4 * max(1, math.prod(rest))))
        columns = self._rows(name, slice(None)).T if transposed else None
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            yield self._rows(name, part) if columns is None else columns[part]

    def _rows(self, name: str, part: slice) -> np.ndarray:
        shape = self.shape(name)
        order = self._row_order(name, shape[0]) if len(shape) > 1 else None
        values = self._file.rows(name, part if order is None else order[part])
        added = self._offset(name)
        return values - np.float32(added) if added else values


class _Info(NamedTuple):
    """A tensor's entry in the header.

    Attributes:
      kind: the type's number.
      shape: its shape, rows first.
      offset: offset of its bytes from where the tensors begin.
    """

    kind: int
    shape: tuple[int, ...]
    offset: int


class _Header:
    """Reads a header from its first byte to its last."""

    def __init__(self, path: pathlib.Path, content: Any) -> None:
        self._path, self._content, self._at = path, content, 0

    def read(self) -> tuple[dict[str, Any], dict[str, _Info], int]:
        """Returns metadata, tensors, and where the tensors' bytes begin."""
        if self._content[:4] != MAGIC:
            raise WeightsError(f"{self._path}: is no GGUF file: it does not begin with GGUF")
        self._at = 4
        version = self._scalar("<I")
        if version not in _VERSIONS:
            raise WeightsError(
                f"{self._path}: is GGUF of version {version}; {_VERSIONS[0]} and {_VERSIONS[1]} "
                "in little-endian order are read"
            )
        tensors, pairs = self._count(8 + 4 + 4 + 8), self._count(8 + 4 + 1)
        fields: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            if key in fields:
                raise self._damaged(f"the key {key!r} is there twice")
            fields[key] = self._value(self._scalar("<I"))
        infos: dict[str, _Info] = {}
        for _ in range(tensors):
            name = self._string()
            if name in infos:
                raise self._damaged(f"the tensor {name!r} is there twice")
            dimensions = self._scalar("<I")
            if dimensions > _MOST_DIMENSIONS:
                raise self._damaged(f"the tensor {name!r} has {dimensions} dimensions")
            shape = tuple(self._scalar("<Q") for _ in range(dimensions))[::-1]
            infos[name] = _Info(self._scalar("<I"), shape, self._scalar("<Q"))
        alignment = fields.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment.bit_count() != 1:
            raise self._damaged(f"general.alignment is {alignment!r}, not a power of two")
        for name, info in infos.items():
            if info.offset % alignment:
                raise self._damaged(
                    f"tensor {name!r} begins {info.offset} bytes after the header, not at a "
                    f"multiple of {alignment}"
                )
        return fields, infos, -(-self._at // alignment) * alignment

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY or depth == _DEEPEST:
            raise self._damaged(f"metadata of the unknown type {kind}")
        item = self._scalar("<I")
        if item in _SCALARS:
            form = _SCALARS[item]
            count = self._count(struct.calcsize(form))
            values = np.frombuffer(self._take(count * struct.calcsize(form)), form)
            return values.tolist()
        # A string has at least its length field, an array its type and its length.
        return [self._value(item, depth + 1) for _ in range(self._count(8))]

    def _string(self) -> str:
        content = self._take(self._count(1))
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"text that is no UTF-8 ({error})") from None

    def _count(self, smallest: int) -> int:
        """Reads a count of items of at least `smallest` bytes; they must fit the remaining file."""
        count: int = self._scalar("<Q")
        if count * smallest > len(self._content) - self._at:
            raise self._damaged(f"{count} entries are announced, more than the file could hold")
        return count

    def _scalar(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _take(self, count: int) -> bytes:
        content: bytes = self._content[self._at : self._at + count]
        if len(content) < count:
            raise self._damaged("the file ends there")
        self._at += count
        return content

    def _damaged(self, problem: str) -> WeightsError:
        return WeightsError(
            f"{self._path}: cut short or damaged at byte {self._at} of the header: {problem}"
        )


def _package() -> Any:
    try:
        import gguf
        import gguf.quants
    except ImportError:
        raise WeightsError(
            "GGUF files are read with the gguf package: pip install 'gophercite[gguf]'"
        ) from None
    return gguf

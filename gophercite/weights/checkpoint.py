"""The tensors of a Hugging Face folder: `model.safetensors`, or several files with an index."""

import math
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from gophercite.model_folders.tensor_files import CHUNK_BYTES, DTYPES, StoredTensor, TensorFile
from gophercite.storage.json_fields import decode_json, describe

_SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class WeightsError(ValueError):
    """A checkpoint that can't be imported; the message says which file or field, and why."""


class Checkpoint:
    """The tensors of a checkpoint, read slice by slice.

    Only the files' headers are read at first; each must match its file's length.

    Args:
      folder: the checkpoint's folder.

    Raises:
      WeightsError: there are no safetensors files, the index is invalid, or it leaves out a file
        that holds the whole model.
      TensorFileError: a file is missing, truncated or damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._tensors: dict[str, StoredTensor] = {}
        self._files: dict[str, str] = {}
        files = _file_names(folder)
        for file in files:
            tensors = TensorFile(folder / file)
            for name in tensors.names:
                if name in self._files:
                    raise WeightsError(
                        f"{folder / file}: tensor {name!r} is in {self._files[name]} too"
                    )
                self._files[name] = file
                self._tensors[name] = tensors.tensor(name)
        if (folder / _SINGLE).exists() and _SINGLE not in files:
            raise WeightsError(
                f"{folder}: holds both {_SINGLE} and {INDEX}, which lists other files: programs "
                "differ in which of them they read; move away what is not the model"
            )

    @property
    def names(self) -> frozenset[str]:
        """The tensors' names."""
        return frozenset(self._tensors)

    def place(self, name: str) -> str:
        """A tensor's location, for messages."""
        return f"{self._folder / self._files[name]}: tensor {name!r}"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._tensors[name].shape

    def dtype(self, name: str) -> np.dtype:
        """A tensor's dtype.

        Raises:
          WeightsError: it is not a dtype of unquantised published weights.
        """
        dtype = self._tensors[name].dtype
        if dtype not in DTYPES:
            raise WeightsError(f"{self.place(name)} is {dtype}; {', '.join(DTYPES)} are read")
        return DTYPES[dtype]

    def chunks(self, name: str, transposed: bool) -> Iterator[np.ndarray]:
        """The values of a tensor or of its transpose in row-major order, in chunks.

        Args:
          name: the tensor's name.
          transposed: yield the matrix's columns as rows.

        Yields:
          Rows of the result, at most `CHUNK_BYTES` together unless a single row is larger; a vector
          is one row. They are mapped, not copied: a row's part of the file is in memory while it is
          in use; a transposed matrix is in memory entirely.
        """
        tensor, shape = self._tensors[name], self.shape(name)
        if len(shape) < 2:
            yield tensor.mapped()
            return
        rows, *rest = shape[::-1] if transposed else shape
        step = max(1, CHUNK_BYTES // (self.dtype(name).itemsize * max(1, math.prod(rest))))
        columns = tensor.mapped().T if transposed else None
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            yield tensor.mapped(part) if columns is None else columns[part]


def _file_names(folder: pathlib.Path) -> list[str]:
    """The names of a checkpoint's tensor files."""
    index = folder / INDEX
    if not index.exists():
        if (folder / _SINGLE).exists():
            return [_SINGLE]
        raise WeightsError(
            f"{folder}: holds neither {_SINGLE} nor {INDEX}: only checkpoints in safetensors "
            "files are read"
        )
    value = read_json(index)
    files = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(files, dict) or not files:
        raise WeightsError(
            f"{index}: field 'weight_map' must give each tensor's file, got {describe(files)}"
        )
    for file in files.values():
        # An untrusted folder must not make us read files outside it.
        if not isinstance(file, str) or os.path.basename(file) != file or file in ("", ".", ".."):
            raise WeightsError(f"{index}: {describe(file)} is not the name of a file")
    return sorted(set(files.values()))


def read_json(path: pathlib.Path) -> object:
    """Decodes a JSON file.

    Raises:
      WeightsError: there is no such file, it can't be read, it is not JSON, or it has a string that
        is no text.
    """
    try:
        text = path.read_text("utf-8")
        if not text.strip():
            raise WeightsError(f"{path}: the file is empty")
        return decode_json(text)
    except WeightsError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise WeightsError(
            f"{path}: there is no such file: is {path.parent} the folder of a checkpoint?"
        ) from None
    except OSError as error:
        raise WeightsError(f"{path}: can't be read: {error.strerror or error}") from None
    except RecursionError:
        raise WeightsError(f"{path}: not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise WeightsError(f"{path}: not JSON: {error}") from None

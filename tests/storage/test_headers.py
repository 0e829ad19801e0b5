"""Headers of tensor files are taken or refused as the library does it for files on a disk."""

import json
import pathlib
import struct
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from etils import epath
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gophercite.model_folders.tensor_files import TensorFileError, _remote_header

NAMES = st.sampled_from(["a", "b", "c"])
WHOLE = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.float16),
    "c": np.zeros((0, 2), np.int8),
    "d": np.asarray([True, False, True]),
}
CHANGES = st.one_of(
    st.tuples(st.just("shape"), st.lists(st.integers(-1, 7), max_size=3)),
    st.tuples(st.just("dtype"), st.sampled_from(["F32", "F16", "BF16", "I8", "BOOL", "F33", 3])),
    st.tuples(st.just("data_offsets"), st.lists(st.integers(-1, 40), min_size=1, max_size=3)),
    st.tuples(st.just("more"), st.just(1)),
)


@settings(deadline=None, max_examples=300)
@given(
    changes=st.lists(st.tuples(NAMES, CHANGES), max_size=2),
    cut=st.sampled_from([0, 0, 0, -1, -30, 5]),
    dropped=st.none() | NAMES | st.just("shape"),
    length=st.sampled_from([0, 0, 0, 1, -1, 1 << 40]),
)
@example(changes=[("a", ("shape", [-2, -3]))], cut=0, dropped=None, length=0)
def test_headers_are_refused_where_the_library_refuses_them(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[str, tuple[str, Any]]],
    cut: int,
    dropped: str | None,
    length: int,
) -> None:
    data = safetensors.numpy.save(WHOLE, {"format": "pt"})
    (size,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + size]), data[8 + size :]
    for name, (field, value) in changes:
        header[name][field] = value
    if dropped in header:
        del header[dropped]
    elif dropped is not None:
        header["a"].pop(dropped, None)
    text = json.dumps(header).encode()
    rest = rest[:cut] if cut < 0 else rest + bytes(cut)
    path = tmp_path_factory.getbasetemp() / "header.safetensors"
    path.write_bytes(struct.pack("<Q", max(0, len(text) + length)) + text + rest)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            wanted = set(file.keys())
    except (safetensors.SafetensorError, OSError):
        with pytest.raises(TensorFileError):
            _remote_header(epath.Path(path))
        return
    begin, entries = _remote_header(epath.Path(path))
    assert set(entries) == wanted
    assert begin == 8 + len(text) + length


def test_an_empty_file_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(TensorFileError, match="cut short"):
        _remote_header(epath.Path(tmp_path / "empty"))

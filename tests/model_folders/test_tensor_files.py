"""Parts of tensors in safetensors files: the values, and no more of the file than is in use."""

import pathlib
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.model_folders import tensor_files
from gophercite.model_folders.tensor_files import TensorFile, TensorFileError
from gophercite.model_folders.tensors import TensorReader, write_tensors
from gophercite.partitioning import Partitioner, make_mesh

VALUES = np.arange(7 * 5 * 3).reshape(7, 5, 3) - 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("tensors")
    dtypes = {"half": np.float16, "brain": ml_dtypes.bfloat16, "single": np.float32}
    tensors = {name: VALUES.astype(dtype) for name, dtype in dtypes.items()}
    tensors["none"] = np.zeros((0, 4), np.float32)
    safetensors.numpy.save_file(tensors, folder / "a.safetensors", {"format": "pt"})
    return folder


def indices(sizes: tuple[int, ...]) -> st.SearchStrategy[tuple[int | slice, ...]]:
    def of(size: int) -> st.SearchStrategy[Any]:
        bounds = st.lists(st.integers(0, size), min_size=2, max_size=2).map(sorted)
        parts = bounds.map(lambda ends: slice(*ends))
        return st.integers(0, size - 1) | parts | st.just(slice(None))

    return st.tuples(*map(of, sizes))


@settings(deadline=None)
@given(
    index=indices(VALUES.shape),
    name=st.sampled_from(["half", "brain", "single"]),
    chunk=st.sampled_from([1, 70, 1000]),
    dtype=st.sampled_from([None, np.float32]),
    in_file=st.booleans(),
)
def test_a_part_has_the_values_of_the_whole(
    folder: pathlib.Path,
    index: tuple[int | slice, ...],
    name: str,
    chunk: int,
    dtype: Any,
    in_file: bool,
) -> None:
    tensor = TensorFile(folder / "a.safetensors").tensor(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_files, "CHUNK_BYTES", chunk)
        part = tensor.read(index, dtype, in_file=in_file)
    expected = VALUES[index].astype(tensor_files.DTYPES[tensor.dtype])
    assert part.dtype == (dtype or expected.dtype)
    np.testing.assert_array_equal(part.astype(np.float32), expected.astype(np.float32))


def test_rows_are_mapped_in_order_and_small_parts(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "CHUNK_BYTES", 130)  # of float32, two rows
    tensor = TensorFile(folder / "a.safetensors").tensor("single")
    chunks = list(tensor.chunks(slice(1, 6)))
    assert [places for places, _ in chunks] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    np.testing.assert_array_equal(np.concatenate([values for _, values in chunks]), VALUES[1:6])
    with pytest.raises(ValueError, match="read-only"):
        chunks[0][1][0] = 1


def test_an_empty_tensor_is_empty(folder: pathlib.Path) -> None:
    tensor = TensorFile(folder / "a.safetensors").tensor("none")
    assert tensor.mapped().shape == (0, 4)
    assert list(tensor.chunks()) == []


def test_a_file_that_is_none_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TensorFileError, match="is missing"):
        TensorFile(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(TensorFileError, match="cut short or damaged"):
        TensorFile(tmp_path / "a.safetensors")


def test_every_device_gets_its_part(tmp_path: pathlib.Path) -> None:
    """Whichever axes are cut, and however many devices have the same."""
    values = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
    stored = write_tensors(tmp_path, "a", {"x": jax.numpy.asarray(values)})
    partitioner = Partitioner(make_mesh(data=2, fsdp=2, model=2))
    mesh = partitioner.mesh
    for spec in (("fsdp", "model"), (None, "model"), (("fsdp", "model"), None), ()):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        read = TensorReader(tmp_path, stored).read("x", values.shape, sharding)
        assert read.sharding.is_equivalent_to(sharding, 2)
        for shard in read.addressable_shards:
            np.testing.assert_array_equal(shard.data, values[shard.index])

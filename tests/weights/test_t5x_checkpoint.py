"""T5X checkpoints that were made to harm or to confuse are refused before anything is read."""

import json
import pathlib
from typing import Any

import msgpack
import numpy as np
import pytest
import tensorstore

from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.t5x_architecture import read_network
from gophercite.weights.t5x_checkpoint import T5XCheckpoint

NORM, WIDE = "decoder/decoder_norm/scale", "decoder/layers_0/mlp/wi/kernel"


def orbax_store(folder: pathlib.Path, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, ...]:
    """A train state with arrays of which no chunk is written; returns the arrays."""
    state, tree, arrays = folder / "state", {}, []
    state.mkdir(parents=True)
    for name, shape in shapes.items():
        keys = ["target", *name.split("/")]
        tree[name] = {"key_metadata": [{"key": key, "key_type": 2} for key in keys]}
        base = {"driver": "file", "path": f"{state}/"}
        specification = {
            "driver": "zarr",
            "kvstore": {"driver": "ocdbt", "base": base, "path": f"{'.'.join(keys)}/"},
            "metadata": {
                "shape": shape,
                "chunks": [min(size, 1024) for size in shape],
                "dtype": "<f4",
                "fill_value": 0,
            },
        }
        arrays.append(tensorstore.open(specification, create=True).result())
    (state / "_METADATA").write_text(json.dumps({"tree_metadata": tree}))
    return tuple(arrays)


def test_zeros_that_orbax_left_out_are_read(tmp_path: pathlib.Path) -> None:
    norm, _ = orbax_store(tmp_path, {NORM: (3000,), WIDE: (8, 2000)})
    norm.write(np.arange(3000, dtype=np.float32)).result()
    checkpoint = T5XCheckpoint(tmp_path)
    np.testing.assert_array_equal(next(checkpoint.chunks(NORM, False)), np.arange(3000))
    assert not np.concatenate(list(checkpoint.chunks(WIDE, True))).any()


@pytest.mark.parametrize("shape", [(4_000_000_000,), (1024, 100_000)])
def test_arrays_far_larger_than_the_files_are_refused(
    shape: tuple[int, ...], tmp_path: pathlib.Path
) -> None:
    """Chunks that are not there are zeros, so that a few bytes could fill memory and disk."""
    orbax_store(tmp_path, {NORM: (16,), WIDE: shape})
    with pytest.raises(WeightsError, match=rf"{tmp_path}: .* bytes of parameters, its files hold"):
        T5XCheckpoint(tmp_path)


def test_a_vector_is_read_in_parts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gophercite.weights.t5x_checkpoint.CHUNK_BYTES", 4096)
    (norm,) = orbax_store(tmp_path, {NORM: (3000,)})
    norm.write(np.arange(3000, dtype=np.float32)).result()
    for transposed in (False, True):
        chunks = list(T5XCheckpoint(tmp_path).chunks(NORM, transposed))
        assert [len(chunk) for chunk in chunks] == [1024, 1024, 952]
        np.testing.assert_array_equal(np.concatenate(chunks), np.arange(3000))


def index(leaf: object) -> bytes:
    """An index with one parameter."""
    content: bytes = msgpack.packb({"optimizer": {"target": {"x": leaf}}})
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x81\x90\x01", "checkpoint: cut short, damaged, or no msgpack"),
        (b"\x81\x80\x01", "checkpoint: cut short, damaged, or no msgpack"),
        (index({"driver": {b"a": 1}, "kvstore": {}}), "parameter 'x': its driver is the object"),
        (
            index({"driver": "zarr", "kvstore": {"path": {b"a": 1}}}),
            "parameter 'x': the object .* is not the name of a folder",
        ),
    ],
)
def test_an_index_of_other_types_is_refused(
    content: bytes, message: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "checkpoint").write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        T5XCheckpoint(tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (5, "the number 5 are not the keys of a leaf"),
        ([{"key": "target"}, {"key": "\ud800"}], "not JSON: it holds the lone surrogate"),
    ],
)
def test_keys_of_other_types_are_refused(
    keys: object, message: str, tmp_path: pathlib.Path
) -> None:
    metadata = json.dumps({"tree_metadata": {"x": {"key_metadata": keys}}})
    (tmp_path / "_METADATA").write_text(metadata)
    with pytest.raises(WeightsError, match=message):
        T5XCheckpoint(tmp_path)


@pytest.mark.parametrize("value", ["5", "1.5", "(['x'],)", "{[]:1}", "['relu', 3]", "()", "''"])
def test_activations_that_are_no_names_are_refused(value: str, tmp_path: pathlib.Path) -> None:
    setting = f"network.TransformerConfig.mlp_activations = {value}"
    (tmp_path / "config.gin").write_text(setting)
    with pytest.raises(WeightsError, match=r"config\.gin.*: mlp_activations"):
        read_network(tmp_path, None, None)

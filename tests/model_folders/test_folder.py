"""Model folders: what is saved is loaded, wherever it shall live; what is damaged is named."""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from gophercite import cli
from gophercite.learning.optimizers import adafactor
from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.model_folders.description import contents_digest
from gophercite.model_folders.folder import (
    Model,
    ModelFolderError,
    describe_run,
    load_model,
    read_description,
    save_model,
)
from gophercite.model_folders.tensors import (
    Stream,
    TensorFileError,
    TensorReader,
    write_streams,
    write_tensors,
)
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import split_layers
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.training.checkpoints import Checkpoints
from gophercite.vocabularies import Vocabulary, train_sentencepiece
from tests.drawn_parameters import drawn_parameters

CONFIG = TransformerConfig(
    vocab_size=384,
    d_model=16,
    num_layers=4,
    num_heads=2,
    head_dim=8,
    d_ff=32,
    window=(None, 4, None, 4),
    position="rope",
    param_dtype="bfloat16",
)
TENSORS = "parameters.safetensors"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    texts = [f"The town of Aldgate number {i} lies on the river Orm." for i in range(200)]
    return train_sentencepiece(texts, 384)


@pytest.fixture(scope="module")
def model(vocabulary: Vocabulary) -> Model:
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    return Model(transformer, params, vocabulary, {"source": "a test", "seed": 0})


@pytest.fixture(scope="module")
def saved(model: Model, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("models") / "model"
    save_model(path, model)
    return path


@pytest.fixture
def copied(saved: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy to damage."""
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


def write_description(folder: pathlib.Path, description: dict[str, Any]) -> None:
    """Writes a `model.json` whose digest is right, whatever it says."""
    digest = contents_digest(description)
    (folder / "model.json").write_text(json.dumps(description | {"sha256": digest}))


def assert_same(found: Any, expected: Any) -> None:
    def check(a: jax.Array, b: jax.Array) -> None:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))

    jax.tree.map(check, found, expected)


def test_loaded_model_is_the_saved_one(saved: pathlib.Path, model: Model) -> None:
    loaded = load_model(saved)
    assert loaded.transformer == model.transformer
    assert loaded.provenance == model.provenance
    assert_same(loaded.params, model.params)
    text = "Aldgate, née “Orm” ☃"
    assert loaded.vocabulary.encode(text) == model.vocabulary.encode(text)
    assert not list(saved.parent.glob(".*"))


def test_file_is_plain_safetensors_in_bfloat16(saved: pathlib.Path, model: Model) -> None:
    tensors = safetensors.numpy.load_file(saved / TENSORS)
    assert tensors["embed/embedding"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(tensors["embed/embedding"], model.params["embed"]["embedding"])


def test_streams_make_the_files_that_arrays_do(model: Model, tmp_path: pathlib.Path) -> None:
    arrays = {name: np.asarray(x) for name, x in model.params["trained_layers"].items()}

    def stream(values: np.ndarray) -> Stream:
        halves = lambda: iter((values[:1], values[1:]))  # noqa: E731
        return Stream(values.shape, values.dtype, halves)

    streams = {name: stream(values) for name, values in arrays.items()}
    for folder in ("arrays", "streams"):
        (tmp_path / folder).mkdir()
    as_arrays = {name: jnp.asarray(values) for name, values in arrays.items()}
    expected = write_tensors(tmp_path / "arrays", "p", as_arrays, file_bytes=5000)
    assert write_streams(tmp_path / "streams", "p", streams, file_bytes=5000) == expected
    files = sorted({stored.file for stored in expected.values()})
    assert len(files) > 2
    for file in files:
        assert (tmp_path / "streams" / file).read_bytes() == (
            tmp_path / "arrays" / file
        ).read_bytes()
        for name, values in safetensors.numpy.load_file(tmp_path / "arrays" / file).items():
            np.testing.assert_array_equal(values, arrays[name])


def test_other_dtype(saved: pathlib.Path, model: Model) -> None:
    loaded = load_model(saved, param_dtype="float32")
    assert loaded.transformer.config.param_dtype == "float32"
    assert_same(loaded.params, jax.tree.map(lambda x: x.astype(jnp.float32), model.params))


def test_frozen_layers_are_split_at_load_and_merged_at_save(
    saved: pathlib.Path, model: Model, tmp_path: pathlib.Path
) -> None:
    loaded = load_model(saved, frozen_layers=3)
    assert_same(loaded.params, split_layers(model.params, 3))
    save_model(tmp_path / "again", loaded)
    assert (tmp_path / "again" / TENSORS).read_bytes() == (saved / TENSORS).read_bytes()


def test_sharded_load_puts_each_slice_where_it_belongs(saved: pathlib.Path, model: Model) -> None:
    partitioner = Partitioner(make_mesh(fsdp=4, model=2))
    transformer = model.transformer
    shardings = partitioner.shardings(transformer.logical_axes(1), transformer.abstract(1))
    loaded = load_model(saved, frozen_layers=1, shardings=shardings)
    assert_same(loaded.params, split_layers(model.params, 1))
    placed = jax.tree.map(
        lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), loaded.params, shardings
    )
    assert all(jax.tree.leaves(placed))
    embedding = loaded.params["embed"]["embedding"]
    assert embedding.addressable_shards[0].data.shape == (384 // 2, 16 // 4)


def test_saving_again_replaces_the_model(copied: pathlib.Path, model: Model) -> None:
    other = dataclasses.replace(model, provenance={"source": "another"})
    save_model(copied, other)
    assert load_model(copied).provenance == {"source": "another"}
    assert [path.name for path in copied.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("name", ["notes.txt", "checkpoints"])
def test_other_folders_are_not_replaced(tmp_path: pathlib.Path, model: Model, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ModelFolderError, match=str(tmp_path)):
        save_model(tmp_path, model)


def test_failed_save_leaves_what_was_there(
    copied: pathlib.Path, model: Model, saved: pathlib.Path
) -> None:
    integers = jax.tree.map(lambda x: x.astype(jnp.int32), model.params)
    with pytest.raises(TensorFileError, match="int32"):
        save_model(copied, dataclasses.replace(model, params=integers))
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_model(copied, dataclasses.replace(model, provenance={"x": object()}))
    assert [path.name for path in copied.parent.iterdir()] == ["model"]
    assert (copied / TENSORS).read_bytes() == (saved / TENSORS).read_bytes()


def test_flipped_bit_names_the_tensor(copied: pathlib.Path) -> None:
    data = bytearray((copied / TENSORS).read_bytes())
    header = int.from_bytes(data[:8], "little")
    fields = json.loads(data[8 : 8 + header])
    start, end = fields["embed/embedding"]["data_offsets"]
    data[8 + header + (start + end) // 2] ^= 0x10
    (copied / TENSORS).write_bytes(data)
    with pytest.raises(TensorFileError, match=r"tensor 'embed/embedding' is damaged") as raised:
        load_model(copied)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kept", [0, 5, 100, 0.5, 0.999])
def test_truncated_file_is_one_clear_line(copied: pathlib.Path, kept: float) -> None:
    data = (copied / TENSORS).read_bytes()
    (copied / TENSORS).write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    with pytest.raises(TensorFileError, match=r"parameters\.safetensors: .*cut short") as raised:
        load_model(copied)
    assert "\n" not in str(raised.value)


def test_missing_files_are_named(copied: pathlib.Path) -> None:
    (copied / TENSORS).unlink()
    with pytest.raises(TensorFileError, match=r"parameters\.safetensors: the file is missing"):
        load_model(copied)
    with pytest.raises(ModelFolderError, match=r"no model\.json"):
        load_model(copied.parent)
    with pytest.raises(ModelFolderError, match=r"no model\.json"):
        load_model(copied.parent / "nowhere")


def test_an_end_that_is_no_token_of_the_model_is_named(copied: pathlib.Path) -> None:
    (copied / "vocabulary" / "generation_config.json").write_text('{"eos_token_id": [1, 384]}')
    assert cli.main(["renew", str(copied)]) == 0
    with pytest.raises(ModelFolderError, match=r"eos_token_id names token 384, but .* 384 rows"):
        load_model(copied)


def test_missing_vocabulary_is_named(copied: pathlib.Path) -> None:
    shutil.rmtree(copied / "vocabulary")
    with pytest.raises(ModelFolderError, match="vocabulary"):
        load_model(copied)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 99, r"field 'format' is 99"),
        (("vocabulary",), 3, r"field 'vocabulary'"),
        (("architecture",), None, r"architecture: expected an object"),
        (("architecture", "num_layer"), 3, r"'num_layer' is unknown"),
        (("architecture", "num_layers"), "4", r"'num_layers': expected a whole number, got"),
        (
            ("architecture", "activation"),
            "tanh",
            r"'activation': expected 'gelu' or 'gelu_exact' or 'silu' or 'relu'",
        ),
        (("architecture", "num_heads"), 0, r"num_heads"),
        (("architecture", "d_model"), 10**2200, r"d_model = 1000.*: must be .* below 2147483648"),
        (("architecture", "num_layers"), 10**9, r"num_layers = 1000000000: must be at most 1000"),
        (("architecture", "window"), 2**31, r"window = 2147483648: must be"),
        (("architecture", "rope_theta"), 10**400, r"rope_theta = 1000.*: must be a finite number"),
        (("architecture", "norm_epsilon"), 10**400, r"norm_epsilon = 1000.*: must be a finite"),
        (("architecture", "norm_epsilon"), float("inf"), r"norm_epsilon = inf: must be a finite"),
        (
            ("architecture", "rope_scaling"),
            {
                "factor": 10**400,
                "low_frequency_factor": 1,
                "high_frequency_factor": 4,
                "original_length": 64,
            },
            r"rope_scaling.factor = 1000.*: must be a finite",
        ),
        (("architecture", "d_ff"), 64, r"has the shape \[4, 32, 16\]"),
        (("parameters", "embed/embedding"), 3, r"field 'parameters'"),
        (("parameters", "embed/embedding", "file"), "../other", r"field 'parameters'"),
        (("parameters", "embed/embedding", "file"), "..", r"field 'parameters'"),
        (("parameters", "embed/embedding", "sha256"), 7, r"field 'parameters'"),
        (("parameters", "embed/embedding", "file"), "\ud800", r"the lone surrogate '\\ud800'"),
        (("parameters", "reward/kernel"), {"file": TENSORS, "sha256": ""}, r"'reward/kernel'"),
        (("provenance",), [], r"field 'provenance'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_fields_are_named(
    copied: pathlib.Path, path: tuple[str, ...], value: Any, message: str
) -> None:
    description = json.loads((copied / "model.json").read_text())
    target = description
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    write_description(copied, description)
    with pytest.raises((ModelFolderError, TensorFileError), match=message) as raised:
        load_model(copied)
    assert str(copied) in str(raised.value)


@pytest.mark.parametrize("field", ["num_layers", "vocab_size"])
def test_missing_architecture_field_is_named(copied: pathlib.Path, field: str) -> None:
    description = json.loads((copied / "model.json").read_text())
    del description["architecture"][field]
    write_description(copied, description)
    with pytest.raises(ModelFolderError, match=f"field '{field}' is missing"):
        load_model(copied)


def test_missing_tensor_is_named(copied: pathlib.Path) -> None:
    description = json.loads((copied / "model.json").read_text())
    del description["parameters"]["final_norm/scale"]
    write_description(copied, description)
    with pytest.raises(ModelFolderError, match="'final_norm/scale' is missing"):
        load_model(copied)


def test_text_that_is_no_json_is_named(copied: pathlib.Path) -> None:
    (copied / "model.json").write_text("{")
    with pytest.raises(ModelFolderError, match=r"model\.json: not JSON"):
        load_model(copied)


def test_run_folder_without_checkpoint_says_so(tmp_path: pathlib.Path, model: Model) -> None:
    describe_run(tmp_path, model.transformer, model.vocabulary, model.provenance)
    assert read_description(tmp_path).config == CONFIG
    with pytest.raises(ModelFolderError, match="without a checkpoint"):
        load_model(tmp_path)


def save_run(folder: pathlib.Path, model: Model, scores: dict[int, float | None]) -> None:
    """A run's folder with checkpoints whose parameters are the model's times the step."""
    describe_run(folder, model.transformer, model.vocabulary, model.provenance)
    checkpoints = Checkpoints(folder, keep_newest=len(scores))
    for step, score in scores.items():
        params = jax.tree.map(lambda x, step=step: x * step, split_layers(model.params, 1))
        optimizer = adafactor().init({"trained_layers": params["trained_layers"]})
        key = jax.random.key(0)
        found = None if score is None else Score(score)
        checkpoints.save(TrainState(jnp.int32(step), params, optimizer, None, key), {}, found)
    checkpoints.close()


@pytest.mark.parametrize(
    ("scores", "taken"), [({1: 0.5, 2: 0.2, 3: 0.4}, 2), ({1: None, 2: None}, 2)], ids=str
)
def test_run_folder_is_a_model_folder(
    tmp_path: pathlib.Path, model: Model, scores: dict[int, float | None], taken: int
) -> None:
    save_run(tmp_path, model, scores)
    expected = jax.tree.map(lambda x: x * taken, model.params)
    loaded = load_model(tmp_path)
    assert_same(loaded.params, expected)
    assert loaded.provenance == {**model.provenance, "step": taken}
    partitioner = Partitioner(make_mesh(fsdp=4, model=2))
    transformer = Transformer(dataclasses.replace(CONFIG, param_dtype="float32"))
    shardings = partitioner.shardings(transformer.logical_axes(2), transformer.abstract(2))
    loaded = load_model(tmp_path, param_dtype="float32", frozen_layers=2, shardings=shardings)
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), expected)
    assert_same(loaded.params, split_layers(wide, 2))
    assert loaded.params["embed"]["embedding"].addressable_shards[0].data.shape == (192, 4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tied_embeddings": False}, "'unembed/kernel' is missing"),
        ({"d_ff": 64}, r"'trained_layers/down' has the shape \[4, 32, 16\]"),
    ],
)
def test_run_of_another_architecture_is_refused(
    tmp_path: pathlib.Path, model: Model, other: dict[str, Any], message: str
) -> None:
    save_run(tmp_path, model, {1: None})
    describe_run(tmp_path, Transformer(dataclasses.replace(CONFIG, **other)), model.vocabulary, {})
    with pytest.raises(ModelFolderError, match=message):
        load_model(tmp_path)


def test_large_models_are_spread_over_files(tmp_path: pathlib.Path) -> None:
    arrays = {f"part/{i}": jnp.full((4, 8), i, jnp.float32) for i in range(5)}
    stored = write_tensors(tmp_path, "parameters", arrays, file_bytes=300)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"parameters-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    reader = TensorReader(tmp_path, stored)
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for name, array in arrays.items():
        reader.check(name, array.shape)
        np.testing.assert_array_equal(reader.read(name, array.shape, here), array)
    part = reader.read("part/3", (4, 8), here, layers=slice(1, 3))
    np.testing.assert_array_equal(part, np.full((2, 8), 3, np.float32))


def test_of_several_damaged_tensors_the_first_is_named(tmp_path: pathlib.Path) -> None:
    # Threads check the small ones sooner.
    arrays = {f"{i}": jnp.zeros(2**20 if i == 1 else 4, jnp.float32) for i in range(6)}
    stored = write_tensors(tmp_path, "parameters", arrays)
    damaged = {name: each._replace(sha256="0" * 64) for name, each in stored.items() if name != "0"}
    reader = TensorReader(tmp_path, stored | damaged)
    with pytest.raises(TensorFileError, match="tensor '1' is damaged"):
        reader.check_all({name: array.shape for name, array in arrays.items()})


def test_what_is_read_goes_to_a_cpu_device_without_a_copy(tmp_path: pathlib.Path) -> None:
    arrays = {str(rows): jnp.ones((rows, 3), jnp.bfloat16) for rows in range(1, 30)}
    reader = TensorReader(tmp_path, write_tensors(tmp_path, "parameters", arrays))
    for name, array in arrays.items():
        values = reader.part(name, array.shape, (slice(None), slice(None)))
        placed = jax.device_put(values, jax.devices("cpu")[0])
        assert placed.unsafe_buffer_pointer() == values.ctypes.data


def test_parameters_can_stay_in_their_file(tmp_path: pathlib.Path) -> None:
    """Where they are aligned, on one device and of the dtype wanted; a donated one is a copy."""
    arrays = {
        "whole": jnp.arange(64, dtype=jnp.float32).reshape(4, 16),
        "odd": jnp.ones((3,), jnp.float32),
        "after": jnp.ones((16,), jnp.float32),
    }
    stored = write_tensors(tmp_path, "parameters", arrays)
    reader = TensorReader(tmp_path, stored, in_file=True)
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    whole, layers, other, after = reader.read_all(
        [
            ("whole", (4, 16), here, None, None),
            ("whole", (4, 16), here, jnp.float32, slice(2, 4)),
            ("whole", (4, 16), here, jnp.bfloat16, None),
            ("after", (16,), here, None, None),
        ]
    )
    copied = TensorReader(tmp_path, stored).read("whole", (4, 16), here)
    twice = jax.jit(lambda x: 2 * x, donate_argnums=0)(reader.read("whole", (4, 16), here))
    np.testing.assert_array_equal(twice, 2 * arrays["whole"])
    reader.check("whole", (4, 16))
    (file,) = {tmp_path / each.file for each in stored.values()}
    written = file.read_bytes()
    places = written.index(np.asarray(arrays["whole"]).tobytes()), len(written) - 4
    with file.open("r+b") as out:
        for place in (places[0] + 4 * 63, places[1]):
            out.seek(place)
            out.write(np.float32(-1).tobytes())
    assert (whole[3, 15], layers[1, 15]) == (-1, -1)
    assert (copied[3, 15], other[3, 15], after[15]) == (63, 63, 1)

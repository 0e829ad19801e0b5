"""What is exported is what was imported or trained, in the families' own form."""

import dataclasses
import json
import pathlib
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from vocabulary_fixtures import trained

from gophercite import cli
from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.model_folders.folder import (
    Model,
    describe_run,
    load_model,
    read_description,
    save_model,
)
from gophercite.model_folders.tensors import TensorFileError
from gophercite.models.config import TransformerConfig
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.training.checkpoints import Checkpoints
from gophercite.weights.architectures import read_architecture
from gophercite.weights.checkpoint import INDEX, Checkpoint
from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights
from gophercite.weights.model_types import write_architecture
from tests.drawn_parameters import drawn_heads
from tests.weights import parity
from tests.weights.samples import CHECKPOINTS, FAMILIES, WITH_IMAGES, checkpoint

Imported = tuple[str, pathlib.Path]

TINY = TransformerConfig(
    vocab_size=512,
    d_model=8,
    num_layers=2,
    num_heads=2,
    head_dim=4,
    d_ff=12,
    gated_mlp=True,
    activation="silu",
    position="rope",
    dtype="float32",
)


@pytest.fixture(scope="module", params=FAMILIES)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """A family, and the folder with its checkpoint `source` and the imported `model`."""
    folder = tmp_path_factory.mktemp(request.param)
    import_weights(checkpoint(request.param, folder / "source"), folder / "model")
    return request.param, folder


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("qwen")
    import_weights(checkpoint("qwen2", folder / "source"), folder / "model")
    return folder / "model"


def tensors_of(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """A checkpoint's tensors, in float32."""
    tensors: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= safetensors.numpy.load_file(path)
    return {name: values.astype(np.float32) for name, values in tensors.items()}


def test_round_trip_is_exact(imported: Imported, tmp_path: pathlib.Path) -> None:
    family, folder = imported
    export_weights(folder / "model", tmp_path / "exported")
    theirs, ours = tensors_of(folder / "source"), tensors_of(tmp_path / "exported")
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values, err_msg=f"{family}: {name}")
    again = import_weights(tmp_path / "exported", tmp_path / "again")
    first = read_description(folder / "model")
    assert again.config == first.config
    assert again.parameters == first.parameters  # digests of all tensors among them


def test_transformers_computes_of_an_export_what_it_did_of_the_original(
    imported: Imported, tmp_path: pathlib.Path
) -> None:
    """Our own reader would forgive our own mistakes."""
    torch = pytest.importorskip("torch", reason="compared with torch, which is not in the lock")
    transformers = pytest.importorskip(
        "transformers", reason="compared with transformers, which is not in the lock"
    )
    family, folder = imported
    export_weights(folder / "model", tmp_path / "exported")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "exported", dtype=torch.float32, attn_implementation="eager"
    )
    sequences, expected = parity.reference(family)
    with torch.no_grad():
        found = [model(torch.from_numpy(row)[None]).logits[0].numpy() for row in sequences]
    assert parity.largest_difference(found, expected) < 1e-4


def test_parts_are_put_together_in_order(
    imported: Imported, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = imported
    monkeypatch.setattr("gophercite.weights.export.CHUNK_BYTES", 400)
    done = export_weights(folder / "model", tmp_path / "exported", file_bytes=20_000)
    assert len(done.files) > 1
    index = json.loads((tmp_path / "exported" / INDEX).read_text("utf-8"))
    assert set(index["weight_map"].values()) == set(done.files)
    whole = tensors_of(folder / "source")
    assert index["weight_map"].keys() == whole.keys()
    assert Checkpoint(tmp_path / "exported").names == whole.keys()
    for name, values in tensors_of(tmp_path / "exported").items():
        np.testing.assert_array_equal(values, whole[name])


def test_the_family_and_its_settings_are_written(imported: Imported) -> None:
    family, folder = imported
    theirs = json.loads((CHECKPOINTS / family / "config.json").read_text("utf-8"))
    config = read_description(folder / "model").config
    ours = write_architecture(config)
    assert ours["model_type"] == theirs["model_type"]
    assert ours["architectures"] == theirs["architectures"]
    found = read_architecture(ours)
    assert dataclasses.replace(found, dtype=config.dtype, param_dtype=config.param_dtype) == config


def test_files_say_what_loaders_ask_for(qwen: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = export_weights(qwen, tmp_path)
    assert (done.model_type, done.dtype, done.files) == (
        "qwen2",
        "bfloat16",
        ("model.safetensors",),
    )
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert (config["torch_dtype"], config["eos_token_id"]) == ("bfloat16", 0)
    generation = json.loads((tmp_path / "generation_config.json").read_text("utf-8"))
    assert generation == {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": None}
    exported = (tmp_path / "tokenizer.json").read_bytes()
    assert exported == (qwen.parent / "source" / "tokenizer.json").read_bytes()


def test_what_was_published_beside_the_architecture_is_kept(tmp_path: pathlib.Path) -> None:
    source = checkpoint("llama3", tmp_path / "source")
    ends = {"eos_token_id": [0, 5, 7], "temperature": 0.6}
    (source / "generation_config.json").write_text(json.dumps(ends), "utf-8")
    import_weights(source, tmp_path / "model")
    assert load_model(tmp_path / "model").vocabulary.other_eos_ids == (5, 7)
    export_weights(tmp_path / "model", tmp_path / "exported")
    read = lambda name: json.loads((tmp_path / "exported" / name).read_text("utf-8"))  # noqa: E731
    assert read("generation_config.json")["eos_token_id"] == [0, 5, 7]
    assert read("config.json")["eos_token_id"] == [0, 5, 7]
    assert read("config.json")["max_position_embeddings"] == 64
    again = import_weights(tmp_path / "exported", tmp_path / "again").config
    assert again == read_description(tmp_path / "model").config
    assert load_model(tmp_path / "again").vocabulary.other_eos_ids == (5, 7)


def test_a_model_with_images_is_exported_as_its_text_part(tmp_path: pathlib.Path) -> None:
    source = checkpoint(WITH_IMAGES, tmp_path / "source")
    import_weights(source, tmp_path / "model")
    done = export_weights(tmp_path / "model", tmp_path / "exported")
    assert done.model_type == "gemma3_text"
    theirs, ours = tensors_of(source), tensors_of(tmp_path / "exported")
    for name, values in ours.items():
        np.testing.assert_array_equal(theirs[f"language_model.{name}"], values)
    again = import_weights(tmp_path / "exported", tmp_path / "again")
    assert again.config == read_description(tmp_path / "model").config


def test_another_dtype(qwen: pathlib.Path, tmp_path: pathlib.Path) -> None:
    export_weights(qwen, tmp_path / "exported", dtype="float32")
    norm = safetensors.numpy.load_file(tmp_path / "exported" / "model.safetensors")
    assert norm["model.norm.weight"].dtype == np.float32


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model of our own, with its SentencePiece model."""
    transformer, draw = Transformer(TINY), np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), leaf.dtype), transformer.abstract()
    )
    folder = tmp_path_factory.mktemp("own") / "model"
    save_model(folder, Model(transformer, params, trained(), {}))
    return folder


def test_a_model_of_our_own_with_its_vocabulary(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert export_weights(own, tmp_path / "exported").model_type == "llama"
    again = import_weights(tmp_path / "exported", tmp_path / "again")
    assert again.parameters == read_description(own).parameters
    assert load_model(tmp_path / "again").vocabulary.encode("née ☃") == trained().encode("née ☃")


def test_a_run_exports_what_its_checkpoint_holds(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model, key = load_model(own), jax.random.key(0)
    describe_run(tmp_path / "run", model.transformer, model.vocabulary, {})
    checkpoints = Checkpoints(tmp_path / "run", keep_newest=1)
    checkpoints.save(TrainState(jnp.int32(1), model.params, {}, None, key), {}, Score(0.5))
    checkpoints.close()
    for source, name in ((tmp_path / "run", "of the run"), (own, "of the folder")):
        export_weights(source, tmp_path / name)
    expected = tensors_of(tmp_path / "of the folder")
    found = tensors_of(tmp_path / "of the run")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


REFUSED = {
    "transformer_xl": ({"position": "transformer_xl"}, r"position = 'transformer_xl'"),
    "windows": ({"window": (2, 3)}, r"no window = \(2, 3\)"),
    "capped scores": (
        {
            "attention_softcap": 50.0,
            "query_key_norm": True,
            "zero_centered_norms": True,
            "post_norms": True,
            "scale_embeddings": True,
            "tied_embeddings": True,
        },
        "has no .*attention_softcap = 50.0|comes nearest, but has no .*query_key_norm = True",
    ),
    "activation": ({"activation": "gelu", "gated_mlp": False}, "no .*gated_mlp = False"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_family_has_is_named(name: str, tmp_path: pathlib.Path) -> None:
    changes, message = REFUSED[name]
    transformer = Transformer(dataclasses.replace(TINY, **changes))
    describe_run(tmp_path / "run", transformer, trained(), {})
    with pytest.raises(ValueError, match=rf"\A[^\n]*no published family .*{message}[^\n]*\Z"):
        export_weights(tmp_path / "run", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_reward_models_are_refused(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = load_model(own)
    heads = drawn_heads(RewardModel(model.transformer), 1)
    rewarding = dataclasses.replace(model, params={**model.params, "heads": heads})
    save_model(tmp_path / "rewards", rewarding)
    with pytest.raises(ValueError, match="rewards: the model has heads, so it is a reward model"):
        export_weights(tmp_path / "rewards", tmp_path / "exported")


def test_damage_is_found_and_nothing_stays(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = shutil.copytree(own, tmp_path / "model")
    path = model / "parameters.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(TensorFileError, match="is damaged"):
        export_weights(model, tmp_path / "exported")
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_other_files_are_never_replaced(qwen: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="export into a new or empty folder"):
        export_weights(qwen, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_command(
    qwen: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "exported")
    assert cli.main(["export-weights", str(qwen), folder]) == 0
    line = rf"{re.escape(folder)}: [\d,]+ parameters in bfloat16, model_type qwen2\n"
    assert re.fullmatch(line, capsys.readouterr().out)
    assert cli.main(["export-weights", str(qwen), folder, "--json"]) == 1
    assert capsys.readouterr().err.startswith(f"gophercite export-weights: {folder}: exists")
    assert cli.main(["export-weights", str(qwen), folder + "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["model.safetensors"]

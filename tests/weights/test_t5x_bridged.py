"""Checkpoints in the form in which T5X keeps a model of ours; what T5X itself does with them is in
tests/test_t5x_itself.py.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

from gophercite import cli
from gophercite.model_folders.folder import read_description, save_model
from gophercite.models.config import TransformerConfig
from gophercite.weights.t5x_bridged import export_bridged, import_bridged
from gophercite.weights.t5x_checkpoint import T5XCheckpoint
from tests.weights.t5x_samples import random_model

# Transformer-XL positions: what no published family has.
TINY = TransformerConfig(
    vocab_size=512, d_model=8, num_layers=3, num_heads=2, head_dim=4, d_ff=12, dtype="float32"
)


def save(folder: pathlib.Path, config: TransformerConfig) -> pathlib.Path:
    save_model(folder, random_model(config, {"step": 7}))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return save(tmp_path_factory.mktemp("models") / "tiny", TINY)


def test_round_trip_is_exact(
    model: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("t5x_bridged", "t5x_checkpoint", "export"):
        monkeypatch.setattr(f"gophercite.weights.{module}.CHUNK_BYTES", 400)
    assert export_bridged(model, tmp_path / "t5x").files == ("checkpoint_7",)
    checkpoint = T5XCheckpoint(tmp_path / "t5x" / "checkpoint_7")
    assert len(list(checkpoint.chunks("trained_layers/query", transposed=False))) > 1
    again = import_bridged(tmp_path / "t5x" / "checkpoint_7", tmp_path / "again", model)
    first = read_description(model)
    assert again.parameters == first.parameters  # digests of all tensors among them
    assert again.config == first.config
    assert again.provenance == {"imported_from": "checkpoint_7", "dtype": "float32", "step": 7}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_ff": 16}, "has the shape .*, .* makes it "),
        ({"num_layers": 2}, "has the shape "),
        ({"tied_embeddings": False}, "'unembed/kernel' is missing of "),
        ({"position": "rope"}, "has no place in the architecture of "),
    ],
)
def test_another_architecture_is_refused(
    changes: dict[str, object], message: str, model: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    export_bridged(model, tmp_path / "t5x")
    other = save(tmp_path / "other", dataclasses.replace(TINY, **changes))
    with pytest.raises(ValueError, match=message):
        import_bridged(tmp_path / "t5x" / "checkpoint_7", tmp_path / "again", other)
    assert not (tmp_path / "again").exists()


def test_a_training_that_diverged_is_refused(tmp_path: pathlib.Path) -> None:
    diverged = random_model(TINY, {"step": 7})
    scale = diverged.params["final_norm"]["scale"]
    diverged.params["final_norm"]["scale"] = scale.at[3].set(np.nan)
    save_model(tmp_path / "model", diverged)
    export_bridged(tmp_path / "model", tmp_path / "t5x")
    with pytest.raises(ValueError, match="'final_norm/scale' holds a number that is not finite"):
        import_bridged(tmp_path / "t5x" / "checkpoint_7", tmp_path / "again", tmp_path / "model")
    assert not (tmp_path / "again").exists()


def test_commands(
    model: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t5x, again = str(tmp_path / "t5x"), str(tmp_path / "again")
    command = ["export-weights", str(model), t5x, "--t5x", "bridge", "--dtype", "bfloat16"]
    assert cli.main(command) == 0
    assert capsys.readouterr().out.endswith("in bfloat16, model_type t5x_bridge\n")
    assert cli.main(command) == 1
    assert "export into a new or empty folder" in capsys.readouterr().err
    assert cli.main(["import-weights", f"{t5x}/checkpoint_7", again, "--like", str(model)]) == 0
    assert read_description(again).config.param_dtype == "bfloat16"
    stored = T5XCheckpoint(pathlib.Path(t5x) / "checkpoint_7")
    assert {np.dtype(stored.dtype(name)).name for name in stored.names} == {"bfloat16"}

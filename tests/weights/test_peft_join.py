"""Two trainings in turn, published as adapters of the first model."""

import pathlib
from collections.abc import Callable

import numpy as np
import pytest
import safetensors.numpy

from gophercite import cli
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.peft import export_adapters
from gophercite.weights.peft_import import merge_adapters
from tests.long_forms import LONG
from tests.weights.test_peft import save_run
from tests.weights.test_peft_import import TENSORS, assert_same, edited, made

MODULE = "base_model.model.model.layers.1.mlp.up_proj"
Tensors = dict[str, np.ndarray]


def in_turn(family: str, folder: pathlib.Path) -> pathlib.Path:
    """A folder with `base`, its adapters `peft`, both `merged`, and a run `second` from there."""
    made(family, folder)
    merge_adapters(folder / "peft", folder / "base", folder / "merged")
    save_run(folder / "second", folder / "merged", rank=3, alpha=1.5, seed=1)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return in_turn("llama3", tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("family", [pytest.param("gpt_neox", marks=LONG), "gpt2", "llama3"])
def test_joined_adapters_of_the_first_base_are_the_second_run(
    family: str, tmp_path: pathlib.Path
) -> None:
    folder = in_turn(family, tmp_path)
    command = ["export-weights", str(folder / "second"), str(folder / "joined"), "--adapters"]
    assert cli.main([*command, "--after", str(folder / "peft")]) == 0
    merge_adapters(folder / "joined", folder / "base", folder / "whole")
    assert_same(folder / "whole", folder / "second", rtol=1e-4)


def test_other_adapters_than_the_merged_ones_are_refused(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    export_adapters(llama / "second", tmp_path / "other")
    with pytest.raises(WeightsError, match="the run began with other adapters"):
        export_adapters(llama / "second", tmp_path / "x", after=tmp_path / "other")
    with pytest.raises(WeightsError, match="the run began with a model without adapters"):
        export_adapters(llama / "run", tmp_path / "x", after=llama / "peft")
    unnamed = edited(llama, tmp_path / "unnamed")
    (unnamed / "gophercite.json").unlink()
    with pytest.raises(WeightsError, match="digest of the adapters' base"):
        export_adapters(llama / "second", tmp_path / "x", after=unnamed)
    assert not (tmp_path / "x").exists()


def without_one(tensors: Tensors) -> None:
    for part in "AB":
        del tensors[f"{MODULE}.lora_{part}.weight"]


def of_another_rank(tensors: Tensors) -> None:
    a, b = f"{MODULE}.lora_A.weight", f"{MODULE}.lora_B.weight"
    tensors[a] = np.concatenate([tensors[a]] * 2)
    tensors[b] = np.concatenate([tensors[b]] * 2, axis=1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without_one, "module 'model.layers.1.mlp.up_proj' is adapted either here or by the run"),
        (of_another_rank, "one rank for all modules"),
    ],
)
def test_adapters_that_do_not_fit_together_are_refused(
    llama: pathlib.Path, tmp_path: pathlib.Path, change: Callable[[Tensors], None], named: str
) -> None:
    changed = edited(llama, tmp_path / "changed")
    tensors = safetensors.numpy.load_file(changed / TENSORS)
    change(tensors)
    safetensors.numpy.save_file(tensors, changed / TENSORS)
    merge_adapters(changed, llama / "base", tmp_path / "merged")
    save_run(tmp_path / "second", tmp_path / "merged")
    with pytest.raises(WeightsError, match=named):
        export_adapters(tmp_path / "second", tmp_path / "x", after=changed)


def test_after_is_for_adapters(
    llama: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export-weights", str(llama / "second"), str(tmp_path / "x")]
    assert cli.main([*command, "--after", str(llama / "peft")]) == 1
    assert "--after is only for --adapters" in capsys.readouterr().err

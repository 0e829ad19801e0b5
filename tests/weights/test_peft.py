"""Adapters in PEFT's form: with the exported base they make the exported merged model."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from gophercite import cli
from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_files import Base
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.model_folders.folder import describe_run, load_model, model_digest
from gophercite.models.lora import LoRA, adaptable
from gophercite.models.parameters import ADAPTERS, HEADS
from gophercite.models.reward_model import SUPPORTED_AND_PLAUSIBLE, RewardModel
from gophercite.models.transformer import Transformer
from gophercite.training.checkpoints import Checkpoints
from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights
from gophercite.weights.peft import export_adapters
from tests.drawn_parameters import drawn_heads
from tests.weights.samples import checkpoint

WRAPPED = "base_model.model."


def save_run(
    folder: pathlib.Path,
    base: pathlib.Path,
    rank: int = 2,
    alpha: float = 6.0,
    seed: int = 0,
    *,
    reward_model: bool = False,
) -> None:
    """A checkpoint with adapters of all matrices but those of the first layer."""
    model = load_model(base)
    config = model.transformer.config
    transformer = Transformer(config, LoRA(rank=rank, alpha=alpha, targets=adaptable(config)))
    draw = np.random.default_rng(seed)
    shapes = transformer.abstract(1)[ADAPTERS]
    adapters = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape), x.dtype), shapes)
    assert transformer.lora is not None
    describe_run(folder, transformer, model.vocabulary, {}, base)
    trained_on = Base(transformer.lora.to_json(), {"model": model_digest(base)})
    checkpoints = Checkpoints(folder, base=trained_on)
    params = {**model.params, ADAPTERS: adapters}
    if reward_model:
        heads = drawn_heads(RewardModel(transformer), seed)
        heads[SUPPORTED_AND_PLAUSIBLE]["bias"] += 0.75
        params[HEADS] = heads
    checkpoints.save(TrainState(jnp.int32(1), params, {}, None, jax.random.key(0)), {}, Score(0.5))
    checkpoints.close()


def loaded(folder: pathlib.Path, name: str = "model.safetensors") -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / name)


@pytest.mark.parametrize("family", ["llama3", "gpt_neox", "gpt2"])
def test_adapters_beside_the_base_make_the_merged_model(
    family: str, tmp_path: pathlib.Path
) -> None:
    base, run = tmp_path / "base", tmp_path / "run"
    import_weights(checkpoint(family, tmp_path / "source"), base, dtype="float32")
    save_run(run, base)
    export_weights(base, tmp_path / "exported")
    export_weights(run, tmp_path / "merged")
    assert cli.main(["export-weights", str(run), str(tmp_path / "peft"), "--adapters"]) == 0
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["layers_to_transform"] == [1, 2]
    tensors = loaded(tmp_path / "peft", "adapter_model.safetensors")
    whole = loaded(tmp_path / "exported")
    for name in tensors:
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix(WRAPPED).removesuffix(".lora_A.weight")
        ending = next(each for each in config["target_modules"] if module.endswith(f".{each}"))
        alpha = config["alpha_pattern"].get(ending, config["lora_alpha"])
        rank = config["rank_pattern"].get(ending, config["r"])
        a, b = tensors[name], tensors[name.replace("lora_A", "lora_B")]
        assert a.shape[0] == b.shape[1] == rank
        added = alpha / rank * b @ a
        whole[f"{module}.weight"] += added.T if config["fan_in_fan_out"] else added
    merged = loaded(tmp_path / "merged")
    assert merged.keys() == whole.keys()
    for name, values in merged.items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_whole_model_has_no_adapters(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_weights(checkpoint("llama3", tmp_path / "source"), tmp_path / "base")
    with pytest.raises(ValueError, match="base: has no adapters: it holds a whole model"):
        export_adapters(tmp_path / "base", tmp_path / "peft")
    save_run(tmp_path / "run", tmp_path / "base")
    done = export_adapters(tmp_path / "run", tmp_path / "peft", dtype="bfloat16", base="there")
    assert done.dtype == "bfloat16"
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "there"
    command = ["export-weights", str(tmp_path / "run"), str(tmp_path / "peft"), "--adapters"]
    assert cli.main(command) == 1
    assert "exists; export into a new or empty folder" in capsys.readouterr().err

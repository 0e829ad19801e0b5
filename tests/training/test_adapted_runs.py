"""Runs that train adapters: what they save, how they go on, and the model that they are."""

import dataclasses
import functools
import json
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.learning.optimizers import adam
from gophercite.learning.supervised import SupervisedLearner
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.checkpoint_files import (
    name_leaves,
    read_metadata,
    read_parameters,
    saved_steps,
)
from gophercite.model_folders.folder import (
    Model,
    ModelFolderError,
    describe_run,
    load_model,
    save_model,
)
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import LoRA
from gophercite.models.parameters import ADAPTERS, FROZEN, TRAINED, merge_layers, split_layers
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.training.initialisation import PretrainedInitialisation, RandomInitialisation
from gophercite.training.loop import train
from gophercite.training.settings import TrainSettings
from gophercite.weights.export import export_weights
from tests.drawn_parameters import drawn_parameters
from tests.learning.test_supervised import make_batch
from tests.vocabulary_fixtures import trained

pytestmark = pytest.mark.usefixtures("compiled_once")

CONFIG = TransformerConfig(
    vocab_size=480,
    d_model=16,
    num_layers=3,
    num_heads=2,
    head_dim=8,
    d_ff=32,
    gated_mlp=True,
    activation="silu",
    position="rope",
    tied_embeddings=False,
    dtype="float32",
    remat_every=2,
    attention_block=16,
)
LORA = LoRA(rank=2, alpha=8.0, targets=("query", "value", "down"))
STEPS = 4


def save_base(folder: pathlib.Path, seed: int = 0) -> None:
    transformer = Transformer(dataclasses.replace(CONFIG, param_dtype="bfloat16"))
    params = drawn_parameters(transformer, seed)
    save_model(folder, Model(transformer, params, trained(), {"seed": seed}))


@functools.cache
def learner_of(lora: LoRA | None) -> SupervisedLearner:
    transformer = Transformer(CONFIG, lora)
    return SupervisedLearner(transformer, adam(), lambda step: jnp.float32(0.05), ema_decay=0.5)


def run(
    folder: pathlib.Path, base: pathlib.Path, lora: LoRA | None = LORA, frozen: int = 1
) -> None:
    """Four steps on two devices, with a checkpoint in their middle."""
    transformer = Transformer(CONFIG, lora)
    train(
        TrainSettings(str(folder), STEPS, 4, evaluate_every=STEPS, save_every=2, log_every=1),
        learner_of(lora),
        PretrainedInitialisation(transformer, base, frozen),
        Partitioner(make_mesh(1, 2, 1, devices=jax.devices()[:2])),
        lambda first: (make_batch(4, seed=n) for n in range(first, STEPS + 3)),
        {},
        describe=lambda where: describe_run(where, transformer, trained(), {}, base),
        quiet=True,
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """A base model's folder, and that of a run that adapted it."""
    root = tmp_path_factory.mktemp("runs")
    save_base(root / "base")
    run(root / "run", root / "base")
    return root / "base", root / "run"


def expected_params(base: pathlib.Path, run: pathlib.Path, dtype: str) -> dict[str, Any]:
    """Merged by hand, of the averages that the run kept."""
    params = load_model(base, param_dtype="float32").params
    for name, adapter in read_parameters(run, STEPS)[ADAPTERS].items():
        product = LORA.scale * jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        params[TRAINED][name] = params[TRAINED][name].at[1:].add(product)
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


def assert_same(found: Any, expected: Any, **tolerance: float) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), **tolerance
        ),
        found,
        expected,
    )


def bits(tree: Any) -> dict[str, bytes]:
    return {name: np.asarray(leaf).tobytes() for name, leaf in name_leaves(tree).items()}


def test_a_checkpoint_holds_the_adapters_alone(folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    base, folder = folders
    metadata = read_metadata(folder, STEPS)
    parts = {name.split("/")[1] for name in metadata.arrays if name.startswith(("params/", "ema/"))}
    assert parts == {ADAPTERS}
    values = sum(np.prod(array.shape) for array in metadata.arrays.values())
    assert values < 6 * 2 * LORA.rank * (16 + 16 + 16 + 16 + 32 + 16)
    assert metadata.base is not None
    assert metadata.base.lora == LORA.to_json()
    described = json.loads((folder / "model.json").read_text())
    assert described["base"] == str(base)
    assert "frozen" in (folder / "parameters.txt").read_text().split("trained_layers/down")[1]


def test_a_run_that_goes_on_ends_alike(
    folders: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    base, whole = folders
    broken = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(broken / "checkpoints" / str(STEPS))
    moved = shutil.copytree(base, tmp_path / "base")  # what counts is what it holds
    run(broken, moved)
    assert saved_steps(broken) == [2, STEPS]
    first, second = (read_metadata(each, STEPS).arrays for each in (whole, broken))
    assert first == second
    assert bits(read_parameters(whole, STEPS)) == bits(read_parameters(broken, STEPS))


def test_the_folder_is_the_merged_model(
    folders: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    base, folder = folders
    expected = expected_params(base, folder, "float32")
    model = load_model(folder)
    assert model.provenance == {"step": STEPS}
    assert model.transformer.lora is None
    assert_same(model.params, expected, rtol=1e-6, atol=1e-7)
    assert np.any(model.params[TRAINED]["down"][1] != load_model(base).params[TRAINED]["down"][1])

    # What the run itself computed, its adapters beside the base.
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    start = PretrainedInitialisation(Transformer(CONFIG, LORA), base, 1)
    places = jax.tree.map(lambda _: here, start.shapes())
    params = start.parameters(jax.random.key(0), places) | read_parameters(folder, STEPS)
    batch = make_batch(2)
    tokens = (batch["tokens"], batch["positions"], batch["segments"])
    both = ((start.transformer, params), (model.transformer, model.params))
    one, other = (jax.jit(each.apply)(weights, *tokens)[0] for each, weights in both)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

    # Split and cut, in another dtype; rounded once.
    transformer = Transformer(dataclasses.replace(CONFIG, param_dtype="bfloat16"))
    partitioner = Partitioner(make_mesh(1, 2, 2, devices=jax.devices()[:4]))
    cuts = partitioner.shardings(transformer.logical_axes(2), transformer.abstract(2))
    cut = load_model(folder, param_dtype="bfloat16", frozen_layers=2, shardings=cuts)
    assert cut.params[FROZEN]["query"].sharding == cuts[FROZEN]["query"]
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params)
    assert bits(cut.params) == bits(split_layers(half, 2))

    # Further training begins with it, and so does a folder that is saved of it.
    further = PretrainedInitialisation(Transformer(CONFIG), folder)
    places = jax.tree.map(lambda _: here, further.shapes())
    assert bits(further.parameters(jax.random.key(0), places)) == bits(model.params)
    save_model(tmp_path / "saved", model)
    assert bits(load_model(tmp_path / "saved").params) == bits(model.params)
    with_adapters = Model(start.transformer, params, trained(), {})
    save_model(tmp_path / "merged", with_adapters)
    merged = load_model(tmp_path / "merged").params
    assert bits(merged) == bits(start.transformer.lora.merge(merge_layers(params)))  # type: ignore[union-attr]


def test_export_writes_the_merged_model(
    folders: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    import safetensors.numpy

    _, folder = folders
    model = load_model(folder)
    save_model(tmp_path / "saved", model)
    found = []
    for source, name in ((folder, "of the run"), (tmp_path / "saved", "of the model")):
        export_weights(source, tmp_path / name)
        found.append(safetensors.numpy.load_file(tmp_path / name / "model.safetensors"))
    assert_same(found[0], found[1], rtol=1e-6, atol=1e-7)
    assert "model.layers.2.mlp.down_proj.weight" in found[0]


def test_adapters_of_a_model_that_is_gone_or_another_are_refused(
    folders: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    base, folder = (shutil.copytree(each, tmp_path / each.name) for each in folders)
    describe_run(folder, Transformer(CONFIG), trained(), {}, base)
    load_model(folder)
    shutil.rmtree(base)
    gone = r"\A[^\n]*run/model.json: field 'base': [^\n]*base: not a model folder[^\n]*\Z"
    with pytest.raises(ModelFolderError, match=gone):
        load_model(folder)
    save_base(base, seed=1)
    other = r"\A[^\n]*run: the adapters were trained on another model than the one [^\n]*base"
    for use in (load_model, lambda it: export_weights(it, tmp_path / "exported")):
        with pytest.raises(ModelFolderError, match=other):
            use(folder)
    with pytest.raises(CheckpointError, match=r"checkpoint 4 was trained from another model than"):
        run(folder, base)


@pytest.mark.parametrize(
    ("lora", "frozen", "message"),
    [
        (None, 1, "checkpoint 4 holds only adapters, but this run trains all parameters"),
        (
            dataclasses.replace(LORA, alpha=2.0),
            1,
            "has adapters with .*8.0.* this run's have .*2.0",
        ),
        (
            LORA,
            0,
            r"down/a is float32\[2, 32, 2\] in the checkpoint, but float32\[3, 32, 2\] in this run",
        ),
    ],
)
def test_a_run_with_other_adapters_does_not_go_on(
    folders: tuple[pathlib.Path, pathlib.Path], lora: LoRA | None, frozen: int, message: str
) -> None:
    base, folder = folders
    with pytest.raises(CheckpointError, match=message):
        run(folder, base, lora, frozen)


def test_adapters_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="set INITIAL_CHECKPOINT"):
        RandomInitialisation(Transformer(CONFIG, LORA))

"""Adapters by launch/train.py: a run from a model's folder to one that merges them."""

import dataclasses
import json

import configuration
import gin_files
import jax
import numpy as np
import pytest
import train
from tiny_runs import TINY

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import cli
from gophercite.model_folders.checkpoint_files import read_metadata
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.parameters import ADAPTERS, HEADS, REWARD_MODEL, TEACHER, VALUE_HEAD
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import read_metrics
from gophercite.training.checkpoints import Checkpoints
from gophercite.training.program import Program
from tests.drawn_parameters import drawn_heads, drawn_parameters

pytestmark = pytest.mark.usefixtures("two_devices")

RUN = "gin_configs/sft_lora_sample_world.gin"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small model of random weights."""
    gin_files.load(["gin_configs/sft_sample_world.gin"], TINY | _paths("x", None))
    config = configuration.build().transformer.config
    model = Transformer(dataclasses.replace(config, param_dtype="bfloat16"))
    folder = tmp_path_factory.mktemp("models") / "base"
    params = drawn_parameters(model, 3)
    save_model(folder, Model(model, params, bundled_vocabulary(), {}))
    return folder


def _paths(folder, start):
    return {"MODEL_DIR": repr(str(folder)), "INITIAL_CHECKPOINT": repr(start and str(start))}


def test_a_supervised_run_learns_by_adapters_alone(tmp_path, base, capsys):
    folder = tmp_path / "run"
    settings = TINY | _paths(folder, base) | {"TRAIN_STEPS": "24", "LENGTH": "96"}
    settings |= {
        "linear_warmup_cosine.learning_rate": "0.03",
        "SupervisedLearner.microbatches": "1",
    }
    settings |= {"train.log_every": "1", "Run.answers": "None", "LoRA.rank": "4"}
    settings |= {"LoRA.targets": "('query', 'up')"}  # to compile less
    settings |= {"Run.evaluations": "{}"}
    flags = [f"--gin_file={RUN}", f"--compilation_cache={tmp_path / 'cache'}"]
    assert train.main([*flags, *(f"--gin.{name}={value}" for name, value in settings.items())]) == 0
    losses = [line["loss/nll"] for line in read_metrics(folder)]
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.3
    start, model = load_model(base), load_model(folder)
    jax.tree.map(np.testing.assert_array_equal, model.params["embed"], start.params["embed"])
    assert np.any(model.params["trained_layers"]["up"] != start.params["trained_layers"]["up"])
    capsys.readouterr()
    assert cli.main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["base"] == str(base)


def test_a_run_with_adapters_begins_with_a_model(tmp_path, capsys):
    settings = TINY | _paths(tmp_path / "run", None)
    flags = [f"--gin_file={RUN}", *(f"--gin.{name}={value}" for name, value in settings.items())]
    assert train.main(flags) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "Transformer.lora adapts a model that is already trained: set INITIAL_CHECKPOINT" in line


def test_reinforcement_learning_holds_the_base_once(tmp_path, base):
    """As the run's first state has it; both models are named by what they hold."""
    start = load_model(base)
    heads = drawn_heads(RewardModel(start.transformer), 4)
    judge = dataclasses.replace(start, params={**start.params, HEADS: heads})
    save_model(tmp_path / "judge", judge)
    settings = TINY | _paths("x", base) | {"REWARD_MODEL": repr(str(tmp_path / "judge"))}
    files = ["gin_configs/a2c_sample_world.gin", "gin_configs/lora.gin"]
    gin_files.load(files, settings)
    run = configuration.build()
    program = Program(run.learner, run.initialisation, run.partitioner)
    state = program.initial_state(seed=0)
    assert state.params[TEACHER] == {}
    assert state.optimizer.statistics.keys() == {ADAPTERS, VALUE_HEAD}
    jax.tree.map(
        np.testing.assert_array_equal, state.params[REWARD_MODEL]["embed"], start.params["embed"]
    )
    digests = run.initialisation.base().digests
    assert digests.keys() == {"model", "reward_model"}
    assert len(set(digests.values())) == 2

    # A checkpoint holds neither model, and gives back both.
    checkpoints = Checkpoints(tmp_path / "run", base=run.initialisation.base())
    checkpoints.save(state, {})
    checkpoints.wait()
    names = read_metadata(tmp_path / "run", 0).arrays
    assert {name.split("/")[1] for name in names if name.startswith("params/")} == {
        ADAPTERS,
        VALUE_HEAD,
    }
    again = checkpoints.restore(
        program.state_target(), run.learner.init_state, lambda: program.initial_parameters(seed=1)
    )
    jax.tree.map(np.testing.assert_array_equal, again.state.params, state.params)
    checkpoints.close()

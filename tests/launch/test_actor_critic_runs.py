"""Reinforcement learning by launch/train.py: from folders of models to a policy, and on from it."""

import io
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import configuration
import dry_run
import gin_files
import jax
import numpy as np
import pytest
import train
from tiny_runs import TINY

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.model_folders.checkpoint_files import read_parameters, saved_steps
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.parameters import HEADS, REWARD_MODEL, TEACHER, TRAINED, VALUE_HEAD
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import read_metrics
from tests.drawn_parameters import drawn_heads, drawn_parameters
from tests.long_forms import IS_LONG, LONG

pytestmark = pytest.mark.usefixtures("two_devices", "same_programs")

RUN = "gin_configs/a2c_sample_world.gin"
TOGETHER = pathlib.Path(__file__).with_name("train_together.py")
SMALL = TINY | {
    "TRAIN_STEPS": "4",
    "MAX_TOKENS": "16",
    "rollout_plan.samples_per_prompt": "2",
    "A2CLearner.microbatches": "1",
    "A2CLearner.value_width": "8",
    "linear_warmup_cosine.learning_rate": "1e-2",
    "train.save_every": "2",
    "train.log_every": "1",
    "train.profile_step": "1",
    # Evaluations and answers of such a run are in notebooks/test_notebooks.py.
    "Run.evaluations": "{}",
    "train.early_stopping": "None",
    "train.best_metric": "None",
    "Run.answers": "None",
}
UNPROFILED = {"train.profile_step": "None"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A policy and a reward model of random weights."""
    root = tmp_path_factory.mktemp("models")
    settings = {"MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"}
    gin_files.load(["gin_configs/sft_sample_world.gin"], TINY | settings)
    transformer = Transformer(configuration.build().transformer.config)
    params = drawn_parameters(transformer, 3)
    vocabulary = bundled_vocabulary()
    save_model(root / "policy", Model(transformer, params, vocabulary, {}))
    heads = drawn_heads(RewardModel(transformer), 4)
    save_model(root / "judge", Model(transformer, {**params, HEADS: heads}, vocabulary, {}))
    return {
        "INITIAL_CHECKPOINT": repr(str(root / "policy")),
        "REWARD_MODEL": repr(str(root / "judge")),
    }


def lines(folder):
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
        for line in read_metrics(folder)
    ]


def flags(models, folder, **others):
    settings = {**SMALL, **models, "MODEL_DIR": repr(str(folder)), **others}
    return [f"--gin_file={RUN}", *(f"--gin.{name}={value}" for name, value in settings.items())]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, folders, cache):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train.main([*flags(folders, folder), cache]) == 0
    return folder


def test_a_run_and_one_that_goes_on_from_its_middle_end_alike(tmp_path, folders, cache, whole):
    """Bit for bit, rollouts included; and the run's folder is a language model's."""
    assert saved_steps(whole) == [2, 4]
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoints" / "4")
    assert train.main([*flags(folders, broken, **UNPROFILED), cache]) == 0
    first, second = (read_parameters(folder, 4) for folder in (whole, broken))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    steps = [line for line in lines(whole) if line["split"] == "train"]
    assert steps == [line for line in lines(broken) if line["split"] == "train"]
    assert [line["faults/any"] for line in steps] == [0] * 4
    assert steps[0]["objective/kl"] == pytest.approx(0, abs=1e-4)
    assert steps[-1]["objective/kl"] > 0
    (profile,) = [line for line in read_metrics(whole) if line["split"] == "profile"]
    phases = "sampling", "rewards", "teacher", "policy", "values", "distributions", "optimizer"
    assert all(profile[f"time/phase/{phase}"] > 0 for phase in phases)

    start = load_model(folders["INITIAL_CHECKPOINT"].strip("'")).params
    jax.tree.map(np.testing.assert_array_equal, first[TEACHER][TRAINED], _last(start[TRAINED]))
    assert np.any(first[VALUE_HEAD]["last"]["kernel"])
    policy = load_model(whole)
    assert set(policy.params) == set(start)
    jax.tree.map(np.testing.assert_array_equal, policy.params[TRAINED], first[TRAINED])
    assert np.any(first[TRAINED]["down"] != start[TRAINED]["down"])


def _last(stack):
    """The trained one of two layers."""
    return jax.tree.map(lambda leaf: leaf[1:], stack)


@LONG  # two processes: learning, training/test_two_processes.py; drawing, test_eval.py
def test_two_processes_draw_and_learn_what_one_does(tmp_path, folders, cache, whole):
    """Each with two devices and half of the prompts, against one with two devices."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    alone = UNPROFILED | {"train.total_steps": "2"}  # of the same schedule
    command = [sys.executable, str(TOGETHER), "2"]
    command += [*flags(folders, tmp_path / "two", **alone), cache]
    command += [f"--coordinator_address=localhost:{port}"]
    paths = [str(TOGETHER.parents[2]), str(pathlib.Path(train.__file__).parent)]
    four = {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.pathsep.join(paths)}
    pair = subprocess.run(
        command,
        env=os.environ | four,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert pair.returncode == 0, pair.stderr
    found, expected = (
        [line for line in lines(folder) if line.pop("split") == "train"][:2]
        for folder in (tmp_path / "two", whole)
    )
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3)


def test_a_dry_run_shows_the_first_prompt(folders, request):
    """Its step is compiled in the long form: test_train.py and learning/test_rollouts.py do it."""
    free = {**SMALL, **folders, "MODEL_DIR": "x", "QUOTES": "None"}
    gin_files.load([RUN], free)
    if not IS_LONG:
        request.getfixturevalue("uncompiled")
    out = io.StringIO()
    dry_run.show(configuration.build(), out)
    text = out.getvalue()
    assert "Question: " in text
    assert "--- samples are free, and tracked for faults" in text
    assert f"{REWARD_MODEL}/heads/reward/kernel" in text

"""Reward models by launch/train.py: a run from files to a model that judges, and its dry run."""

import io

import configuration
import dry_run
import gin_files
import jax
import numpy as np
import pytest
import train
from etils import epath
from tiny_runs import TINY

from data_pipelines.sample_world.convert import to_comparison
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import prompts, records
from gophercite.model_folders.folder import (
    Model,
    ModelFolderError,
    load_model,
    load_reward_model,
    save_model,
)
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import read_metrics
from tests.drawn_parameters import drawn_parameters

pytestmark = pytest.mark.usefixtures("two_devices")

RUN = "gin_configs/rm_sample_world.gin"
SMALL = TINY | {"LENGTH": "128", "RewardLearner.microbatches": "1"}


@pytest.fixture
def comparisons(tmp_path):
    """Bindings for files of a few comparisons."""
    files = {}
    for split in ("train", "validation"):
        world = World(split=split)
        files[split] = str(tmp_path / f"{split}.jsonl")
        made = [to_comparison(world.comparison(index)) for index in range(12)]
        records.write(files[split], made)
    return {
        "MIXTURE_OR_TASK_NAME": "@add_comparisons()",
        "add_comparisons.name": '"own"',
        "add_comparisons.files": repr(files),
        "add_comparisons.vocabulary": repr(str(VOCABULARY_FOLDER)),
    }


def test_a_run_from_a_language_model_ends_in_a_model_that_judges(tmp_path, comparisons):
    vocabulary, folder, start = bundled_vocabulary(), tmp_path / "run", tmp_path / "model"
    settings = {**SMALL, **comparisons, "MODEL_DIR": str(folder)}
    gin_files.load([RUN], {**settings, "INITIAL_CHECKPOINT": "None"})
    transformer = Transformer(configuration.build().transformer.config)
    params = drawn_parameters(transformer, 3)
    save_model(start, Model(transformer, params, vocabulary, {}))

    # The run begins with that model's parameters.
    gin_files.load([RUN], {**settings, "INITIAL_CHECKPOINT": str(start)})
    initial = configuration.build().initialisation
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    places = jax.tree.map(lambda _: here, initial.shapes())
    found = initial.parameters(jax.random.key(0), places)
    assert set(found.pop("heads")) == {"reward", "supported_and_plausible"}
    jax.tree.map(np.testing.assert_array_equal, found, params)

    flags = [f"--gin_file={RUN}", f"--compilation_cache={tmp_path / 'cache'}"]
    flags += [f"--gin.{name}={value}" for name, value in settings.items()]
    assert train.main([*flags, f"--gin.INITIAL_CHECKPOINT={start}"]) == 0
    lines = [line for line in read_metrics(folder) if line["split"] == "validation"]
    assert [line["step"] for line in lines] == [0, 2]
    for name in ("preference_accuracy", "supported_and_plausible_auc"):
        assert 0 <= lines[-1][f"eval/validation/{name}"] <= 1

    trained = load_reward_model(folder)
    assert trained.provenance["step"] == 2
    save_model(tmp_path / "saved", trained)
    saved = load_reward_model(tmp_path / "saved")
    assert saved.provenance == trained.provenance
    jax.tree.map(np.testing.assert_array_equal, saved.params, trained.params)
    triples = to_comparison(World(split="test").comparison(0)).responses[0]
    tokens = np.array([prompts.encode_judged(saved.vocabulary, "When?", triples)])
    model = RewardModel(saved.transformer)
    verdict = model.judge(saved.params, tokens, np.array([tokens.shape[1]]))
    assert verdict.reward.shape == (1,)
    assert np.isfinite(verdict.supported_and_plausible).all()

    # Neither kind of model is taken for the other.
    with pytest.raises(ModelFolderError, match=r"model: the model has no heads"):
        load_reward_model(start)
    for of_reward in (folder, tmp_path / "saved"):
        with pytest.raises(ModelFolderError, match="the model has heads, so it is a reward model"):
            load_model(of_reward)


@pytest.mark.parametrize("start", ["None", "%sample_world.MODEL"])
def test_a_run_is_described_whatever_it_begins_with(tmp_path, comparisons, start):
    """Pairs are no text that a language model was trained on, nor rows of tokens."""
    small = {} if start != "None" else TINY
    settings = {**small, **comparisons, "MODEL_DIR": "x", "INITIAL_CHECKPOINT": start}
    gin_files.load([RUN], settings)
    configuration.build().describe(epath.Path(tmp_path))
    assert (tmp_path / "model.json").exists()


@pytest.mark.usefixtures("uncompiled")
def test_a_dry_run_shows_the_first_pair(comparisons):
    settings = {**SMALL, **comparisons, "MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"}
    gin_files.load([RUN], settings)
    out = io.StringIO()
    dry_run.show(configuration.build(), out)
    text = out.getvalue()
    assert "--- first response: " in text
    assert "--- probability that the second is preferred: " in text
    assert "heads/reward/kernel" in text


def test_real_comparisons_are_read_from_all_folders(tmp_path):
    folders, questions = [], set()
    for place in range(2):
        folders.append(str(tmp_path / str(place)))
        (tmp_path / str(place)).mkdir()
        for split in ("train", "validation"):
            world = World(seed=place, split=split)
            made = [to_comparison(world.comparison(index)) for index in range(4)]
            records.write(tmp_path / str(place) / f"comparisons_{split}.jsonl", made)
            questions |= {one.question for one in made if split == "train"}
    settings = {"MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None", "BATCH_SIZE": "8", "LENGTH": "128"}
    settings |= {"DATA_DIR": repr(folders), "VOCABULARY": repr(str(VOCABULARY_FOLDER))}
    settings["RewardLearner.microbatches"] = "1"
    gin_files.load(["gin_configs/rm_real_comparisons.gin"], settings)
    run = configuration.build()
    batches = list(run.input.one_pass())
    assert [batch["tokens"].shape for batch in batches] == [(8, 2, 128)]
    texts = [
        run.input.vocabulary.decode(row.tolist()) for b in batches for row in b["tokens"][:, 0]
    ]
    assert {text.split("\n")[0].removeprefix("Question: ") for text in texts} == questions

"""Models cut over devices answer as they do on one, and no device holds a whole one."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import jax
import pytest

from gophercite.answering.answerer import AnsweringSettings
from gophercite.answering.loading import inference_partitioner, load_answerer
from gophercite.answering.pages import FoundPages
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model, load_reward_model, save_model
from gophercite.model_folders.placement import folder_shardings
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.retrieval.contexts import SearchResult
from gophercite.vocabularies import load_vocabulary

VOCABULARY = (
    pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model" / "vocabulary"
)
PATIENCE = 600  # seconds, on the slowest of machines
CONFIG = TransformerConfig(
    vocab_size=2048, d_model=16, num_layers=1, num_heads=2, head_dim=8, position="rope",
    dtype="float32", scan_layers=False,
)  # fmt: skip
SETTINGS = AnsweringSettings(
    samples=4,
    prompt_tokens=120,
    sampling=SamplingSettings(max_tokens=32),
    quotes=QuoteSettings(maximum_claim=8, maximum_quote=16),
)
FOUND = FoundPages(
    (
        SearchResult(Document("m", "The mill", "The mill burned in 1874.")),
        SearchResult(Document("r", "The river", "The river is 310 kilometres long.")),
    )
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """Of a language model and a reward model."""
    folder = tmp_path_factory.mktemp("models")
    transformer, vocabulary = Transformer(CONFIG), load_vocabulary(VOCABULARY)
    params = transformer.init(jax.random.key(0))
    save_model(folder / "model", Model(transformer, params, vocabulary, {}))
    heads = {HEADS: RewardModel(transformer).init_heads(jax.random.key(1))}
    save_model(folder / "rewards", Model(transformer, {**params, **heads}, vocabulary, {}))
    return folder / "model", folder / "rewards"


def test_four_devices_answer_what_one_does(folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    model, rewards = folders
    alone, cut = (
        load_answerer(model, SETTINGS, reward_model=rewards, partitioner=partitioner)
        for partitioner in (None, inference_partitioner(model_parallel=2, data_parallel=2))
    )
    one, other = (
        answerer.answer("When did the mill burn?", FOUND, seed=3, keep_samples=True)
        for answerer in (alone, cut)
    )
    assert len(one.samples) == 4
    assert [sample.text for sample in other.samples] == [sample.text for sample in one.samples]
    assert other.text == one.text
    assert (other.model, other.reward_model) == (str(model), str(rewards))
    for here, there in zip(one.samples, other.samples, strict=True):
        assert there.score == pytest.approx(here.score, abs=1e-4)
        assert there.likelihood == pytest.approx(here.likelihood, abs=1e-3)


def test_no_device_holds_more_than_its_share(folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    partitioner = inference_partitioner(model_parallel=2)
    assert partitioner is not None
    model, rewards = folders
    placed = (
        load_model(model, shardings=folder_shardings(model, partitioner)),
        load_reward_model(
            rewards, shardings=folder_shardings(rewards, partitioner, with_heads=True)
        ),
    )
    for each in placed:
        matrices = [leaf for leaf in jax.tree.leaves(each.params) if leaf.size >= 16 * 16]
        assert len(matrices) >= 6
        for leaf in matrices:
            assert [shard.data.size for shard in leaf.addressable_shards] == [leaf.size // 2] * 2


def test_what_does_not_go_is_refused(folders: tuple[pathlib.Path, pathlib.Path]) -> None:
    assert inference_partitioner() is None
    with pytest.raises(ValueError, match=r"model_parallel = 4 .* needs 12 devices, .* are 8"):
        inference_partitioner(4, 3)
    for name in ("model_parallel", "data_parallel"):
        with pytest.raises(ValueError, match=f"{name} = 0: must be at least 1"):
            inference_partitioner(**{name: 0})
    for folder, reward_model in (folders, (folders[1], None)):
        with pytest.raises(
            ValueError, match="2 attention heads can't be split evenly over 4 devices"
        ):
            load_answerer(folder, reward_model=reward_model, partitioner=inference_partitioner(4))


def test_two_processes_with_parts_of_a_model_answer_what_one_does(
    folders: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """For a model that is larger than a host."""
    script = pathlib.Path(__file__).with_name("answer_together.py")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    files = [tmp_path / f"{number}.json" for number in (0, 1)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2])}
    pair = [
        subprocess.Popen(
            [sys.executable, script, *folders, file, str(number), port],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for number, file in enumerate(files)
    ]  # fmt: skip
    for process in pair:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    model, rewards = folders
    alone = load_answerer(model, SETTINGS, reward_model=rewards)
    one = alone.answer("When did the mill burn?", FOUND, seed=3, keep_samples=True)
    for file in files:
        found = json.loads(file.read_text())
        assert "needs 3 devices, and there are 2" in found["refused"]
        assert found["text"] == one.text
        for (text, score, likelihood), sample in zip(found["samples"], one.samples, strict=True):
            assert text == sample.text
            assert score == pytest.approx(sample.score, abs=1e-4)
            assert likelihood == pytest.approx(sample.likelihood, abs=1e-3)

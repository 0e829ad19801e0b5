"""Models cut over devices answer as they do on one, and no device holds a whole one."""

import collections
import dataclasses
import pathlib
import shutil
from collections.abc import Iterator

import jax
import pytest

from gophercite.answering.loading import inference_partitioner, load_answerer
from gophercite.answering.pages import FoundPages
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model, load_reward_model, save_model
from gophercite.model_folders.placement import folder_shardings
from gophercite.model_folders.tensors import TensorFileError
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.retrieval.contexts import SearchResult
from gophercite.vocabularies import load_vocabulary
from tests.drawn_parameters import drawn_heads, drawn_parameters

VOCABULARY = (
    pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model" / "vocabulary"
)
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
    params = drawn_parameters(transformer)
    save_model(folder / "model", Model(transformer, params, vocabulary, {}))
    heads = {HEADS: drawn_heads(RewardModel(transformer), 1)}
    save_model(folder / "rewards", Model(transformer, {**params, **heads}, vocabulary, {}))
    return folder / "model", folder / "rewards"


@pytest.fixture
def compiled() -> Iterator[collections.Counter[str]]:
    """How often each program is compiled, by its name."""
    count: collections.Counter[str] = collections.Counter()

    def listen(event: str, seconds: float, **details: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            count[str(details["fun_name"])] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


def test_four_devices_answer_what_one_does(
    folders: tuple[pathlib.Path, pathlib.Path], compiled: collections.Counter[str]
) -> None:
    """Also where their program is compiled while parameters are read; then it is not made twice."""
    model, rewards = folders
    alone = load_answerer(model, SETTINGS, reward_model=rewards, wait=False)
    partitioner = inference_partitioner(model_parallel=2, data_parallel=2)
    cut = load_answerer(model, SETTINGS, reward_model=rewards, partitioner=partitioner, wait=False)
    ask = "When did the mill burn?", FOUND
    one = alone.answer(*ask, seed=3, keep_samples=True)
    assert compiled["jit(decode)"] == 1
    other = cut.answer(*ask, seed=3, keep_samples=True)
    assert cut.answer(*ask, seed=3, keep_samples=True) == other
    assert compiled["jit(decode)"] == 2
    assert len(one.samples) == 4
    assert [sample.text for sample in other.samples] == [sample.text for sample in one.samples]
    assert other.text == one.text
    assert (other.model, other.reward_model) == (str(model), str(rewards))
    for here, there in zip(one.samples, other.samples, strict=True):
        assert there.score == pytest.approx(here.score, abs=1e-4)
        assert there.likelihood == pytest.approx(here.likelihood, abs=1e-3)


def test_damage_is_found_when_parameters_are_needed(
    folders: tuple[pathlib.Path, pathlib.Path],
    tmp_path: pathlib.Path,
    compiled: collections.Counter[str],
) -> None:
    """And the program is compiled before."""
    shutil.copytree(folders[0], tmp_path / "model")
    file = tmp_path / "model" / "parameters.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    others = dataclasses.replace(SETTINGS, samples=6)
    answerer = load_answerer(tmp_path / "model", others, wait=False)
    prepared = answerer.prepare("When did the mill burn?", FOUND)
    with pytest.raises(TensorFileError, match=r"parameters\.safetensors: tensor .* is damaged"):
        answerer.answer_batch(answerer.batch([prepared]), [0])
    assert compiled["jit(decode)"] == 1
    with pytest.raises(TensorFileError, match="is damaged"):
        load_answerer(tmp_path / "model", SETTINGS)


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

"""Runs whose paths are all of a bucket: the paper's own gin files, and one from start to end."""

from collections.abc import Iterator

import configuration
import dry_run
import gin_files
import pytest
import train
from google_storage import BUCKET, Storage, google_storage
from tiny_runs import TINY

from data_pipelines.sample_world import convert
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import read_metrics
from tests.drawn_parameters import drawn_heads, drawn_parameters

pytestmark = pytest.mark.usefixtures("two_devices", "same_programs")

# The architecture of these files is Gopher's; here it is a tiny one, on one device.
SMALL = TINY | {
    "TransformerConfig.num_layers": "1",
    "Transformer.config": "@TransformerConfig()",
    "TransformerConfig.vocab_size": "2048",
    "partitioner.model": "1",
    "LENGTH": "256",
    "VOCABULARY": f"'{BUCKET}/vocabulary'",
    "INITIAL_CHECKPOINT": f"'{BUCKET}/models/start'",
    "MODEL_DIR": f"'{BUCKET}/runs/new'",
}
SOURCES = {name: f"'{BUCKET}/{name}'" for name in ("NQ", "ELI5", "SQUAD", "TRIVIA_QA", "FEVER")}
ANSWERS, QUESTIONS = f"{BUCKET}/answers.jsonl", f"{BUCKET}/questions.jsonl.gz"
FILES = {
    "sft_gopher_280b": {
        "TRAIN_FILES": f"['{ANSWERS}']",
        "ELI5_FILE": f"'{ANSWERS}'",
        "NQ_FILE": f"'{ANSWERS}'",
        "SupervisedLearner.microbatches": "1",
        "BATCH_SIZE": "2",
        "LENGTH": "600",  # 256 are the response's
    },
    "rm_gopher_1_4b": SOURCES | {"RewardLearner.microbatches": "1"},
    "rm_gopher_7b": SOURCES | {"RewardLearner.microbatches": "1"},
    "a2c_gopher_280b": {
        "REWARD_MODEL": f"'{BUCKET}/models/judge'",
        "NQ_FILE": f"'{QUESTIONS}'",
        "ELI5_FILE": f"'{QUESTIONS}'",
        "VALIDATION_FILE": f"'{QUESTIONS}'",
        "A2CLearner.microbatches": "1",
        "A2CLearner.rollout_pieces": "1",
        "MAX_TOKENS": "64",
    },
}


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """A vocabulary, two models, and records of each kind."""
    with google_storage() as found:
        found.upload(VOCABULARY_FOLDER, "vocabulary")
        world = World(split="train")
        records.write(ANSWERS, (convert.to_rated_answer(world.rated_answer(n)) for n in range(4)))
        records.write(QUESTIONS, (convert.to_question(world.question(n)) for n in range(12)))
        pairs = [convert.to_comparison(world.comparison(n)) for n in range(12)]
        for source in SOURCES:
            for split in ("train", "validation"):
                records.write(f"{BUCKET}/{source}/comparisons_{split}.jsonl", pairs)
        gin_files.load(
            ["gin_configs/sft_gopher_280b.gin"],
            SMALL | FILES["sft_gopher_280b"] | {"INITIAL_CHECKPOINT": "None"},
        )
        transformer = Transformer(configuration.build().transformer.config)
        params = drawn_parameters(transformer)
        save_model(f"{BUCKET}/models/start", Model(transformer, params, bundled_vocabulary(), {}))
        heads = drawn_heads(RewardModel(transformer), 1)
        judge = Model(transformer, {**params, "heads": heads}, bundled_vocabulary(), {})
        save_model(f"{BUCKET}/models/judge", judge)
        yield found


@pytest.mark.parametrize("name", FILES)
def test_the_paper_s_runs_read_all_their_files_from_a_bucket(storage: Storage, name: str) -> None:
    gin_files.load([f"gin_configs/{name}.gin"], SMALL | FILES[name])
    run = configuration.build()
    shown = dry_run.first_of(next(run.input.batches()), run.input.vocabulary)
    assert "Question: " in shown
    for each in run.evaluations.values():
        assert next(iter(each.one_pass()))


def test_a_run_does_not_overwrite_a_model_in_a_bucket(
    storage: Storage, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = storage.read("models/start/model.json")
    model = {"MODEL_DIR": f"'{BUCKET}/models/start'", "train.total_steps": "1"}
    bindings = SMALL | FILES["sft_gopher_280b"] | model
    flags = [f"--gin.{name}={value}" for name, value in bindings.items()]
    assert train.main(["--gin_file=gin_configs/sft_gopher_280b.gin", cache, *flags]) == 1
    assert "models/start': this folder holds a model, which the run" in capsys.readouterr().err
    assert storage.read("models/start/model.json") == before


def test_a_run_in_a_bucket_goes_on_and_ends_in_a_model(storage: Storage, cache: str) -> None:
    settings = SMALL | FILES["sft_gopher_280b"] | {"MODEL_DIR": f"'{BUCKET}/runs/sft'"}
    settings |= {"train.early_stopping": "None"}  # so few steps may teach it nothing
    found = []
    unevaluated = {"Run.evaluations": "{}", "train.best_metric": "None"}
    for steps, more in (("1", {}), ("2", unevaluated)):  # of the same schedule
        bindings = settings | {"train.total_steps": steps} | more
        flags = [f"--gin.{name}={value}" for name, value in bindings.items()]
        assert train.main(["--gin_file=gin_configs/sft_gopher_280b.gin", cache, *flags]) == 0
        found.append(read_metrics(f"{BUCKET}/runs/sft"))
    before, lines = found
    assert lines[: len(before)] == before  # times and all: none of it was done again
    assert [line["step"] for line in lines if line["split"] == "train"] == [1, 2]
    assert load_model(f"{BUCKET}/runs/sft").provenance["step"] in (1, 2)
    names = storage.names()
    assert "runs/sft/config.gin" in names
    assert any(name.startswith("runs/sft/events.out.tfevents") for name in names)

"""The gin files for text of one's own, on a few pages and questions written here."""

import dataclasses
from pathlib import Path

import configuration
import gin
import gin_files
import jax
import pytest
import setting_checks
from etils import epath

from data_pipelines.sample_world.convert import to_rated_answer
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.model_folders.folder import read_description, read_vocabulary
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.search_results import SearchReport, SearchSettings, with_search_results
from gophercite.vocabularies.prompt_form import PromptForm

PARAMETERS_AT_MOST = 4_000_000


@pytest.fixture
def folders(tmp_path):
    """Two folders of records, as converters write them; eight pages and answers a split in each."""
    for index, name in enumerate(("one", "two")):
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "validation", "test"):
            world = World(split=split, good_fraction=1.0)
            places = range(8 * index, 8 * index + 8)
            pages = [world.page(place).document for place in places]
            records.write(folder / f"documents_{split}.jsonl", pages)
            answers = [to_rated_answer(world.rated_answer(place)) for place in places]
            records.write(folder / f"rated_answers_{split}.jsonl", answers)
    return [str(tmp_path / "one"), str(tmp_path / "two")]


def _build(file, folders, **bindings):
    settings = {"DATA_DIR": repr(folders), "VOCABULARY": str(VOCABULARY_FOLDER), "BATCH_SIZE": "8"}
    settings["SupervisedLearner.microbatches"] = "1"  # one row on each of eight devices
    gin_files.load([f"gin_configs/{file}"], {"MODEL_DIR": "unused", **settings, **bindings})
    return configuration.build()


def _count(run):
    shapes = run.initialisation.shapes()
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _text(run, batches):
    rows = [row.tolist() for batch in batches for row in batch["tokens"]]
    return "\n".join(map(run.input.vocabulary.decode, rows))


@pytest.mark.parametrize("file", ["pretrain_textbooks.gin", "pretrain_real_questions.gin"])
def test_pretraining_mixes_prose_and_clozes_of_all_folders(file, folders):
    run = _build(file, folders, INITIAL_CHECKPOINT="None")
    assert _count(run) <= PARAMETERS_AT_MOST
    batches = list(run.input.one_pass())
    text = _text(run, batches)
    for folder in folders:
        for page in records.read(f"{folder}/documents_train.jsonl", records.Document):
            assert f"Page: {page.title}\n" in text
            assert text.count(f"{page.title}\n{page.text}") == 2  # as prose, and with clozes
    assert text.count("Question:") == text.count("Answer:") > 16
    # Prose has weight 1 from its first prediction on, pages of clozes less.
    beginnings = {round(float(row[0]), 6) for batch in batches for row in batch["weights"]}
    assert {0.2, 1.0} <= beginnings
    assert "add_mixture" in gin.operative_config_str()
    assert sum(1 for _ in run.evaluations["validation"].one_pass()) >= 1


@pytest.mark.parametrize("file", ["copy_textbooks.gin", "copy_real_questions.gin"])
def test_copying_shows_stretches_of_all_folders_twice(file, folders):
    run = _build(file, folders)
    assert _count(run) <= PARAMETERS_AT_MOST
    stretches = _text(run, run.input.one_pass()).split("\n")
    for folder in folders:
        for page in records.read(f"{folder}/documents_train.jsonl", records.Document):
            assert sum(len(s) > 20 and s in page.text for s in stretches) >= 2


@pytest.mark.parametrize("file", ["sft_squad.gin", "sft_real_questions.gin"])
def test_fine_tuning_reads_the_answers_of_all_folders(file, folders):
    run = _build(file, folders, INITIAL_CHECKPOINT="None")
    assert _count(run) <= PARAMETERS_AT_MOST
    text = _text(run, run.input.one_pass())
    assert text.count("Answer: %<") == 16


def test_fine_tuning_can_show_several_documents(folders):
    bindings = {
        "add_rated_answers.contexts": "@ContextSettings()",
        "ContextSettings.response_tokens": "128",
        "LENGTH": "256",
        "INITIAL_CHECKPOINT": "None",
    }
    run = _build("sft_squad.gin", folders, **bindings)
    assert _text(run, run.input.one_pass()).count("Answer: %<") == 16
    assert "ContextSettings.response_tokens = 128" in gin.operative_config_str()


def test_fine_tuning_on_search_results(folders):
    folder = Path(folders[0])
    corpus = folder / "corpus.db"
    with DocumentIndex(corpus, write=True) as index:
        path = folder / "rated_answers_train.jsonl"
        answers = list(records.read(path, records.RatedAnswer))
        index.add(page for answer in answers for page in answer.documents)
        for split in ("train", "validation"):
            report = SearchReport()
            found = [with_search_results(a, index, SearchSettings(), report) for a in answers]
            assert report.recall(10) > 0.5
            records.write(folder / f"found_{split}.jsonl", found)
    bindings = {"DATA_DIR": repr(str(folder)), "INDEX": str(corpus), "LENGTH": "512"}
    run = _build("sft_long_pages.gin", folders, INITIAL_CHECKPOINT="None", **bindings)
    text = _text(run, run.input.one_pass())
    assert text.count("Answer: %<") == 8
    assert text.count("Page: ") > 8  # several pages in some prompts
    assert sum(1 for _ in run.evaluations["validation"].one_pass()) >= 1


def test_the_papers_run_shows_several_documents(folders):
    file = f"{folders[0]}/rated_answers_train.jsonl"
    bindings = {"TRAIN_FILES": repr([file]), "ELI5_FILE": repr(file), "NQ_FILE": repr(file)}
    settings = {"VOCABULARY": str(VOCABULARY_FOLDER), "MODEL_DIR": "unused"}
    settings["INITIAL_CHECKPOINT"] = "None"
    gin_files.load(["gin_configs/sft_gopher_280b.gin"], {**settings, **bindings})
    paper = gin.get_configurable("ContextSettings")()
    assert gin.query_parameter("%LENGTH") - paper.response_tokens == 3840
    assert "add_rated_answers.contexts = @ContextSettings()" in gin.config_str()


def test_a_published_model_brings_its_architecture_and_single_fields_can_be_changed(
    folders, tmp_path
):
    model = str(VOCABULARY_FOLDER.parent)
    settings = {"DATA_DIR": repr(folders), "INITIAL_CHECKPOINT": model, "MODEL_DIR": "unused"}
    settings |= {
        "BATCH_SIZE": "8",
        "LoRA.targets": '("query", "value")',
        "model_config.attention_block": "16",
    }
    setting_checks.check(["gin_configs/sft_imported.gin"], settings)
    gin_files.load(["gin_configs/sft_imported.gin"], settings)
    run = configuration.build()
    published = read_description(model).config
    changed = {"dtype": "float32", "scan_layers": True, "attention_block": 16}
    assert run.transformer.config == dataclasses.replace(published, **changed)
    assert run.transformer.config != published
    assert run.transformer.lora.targets == ("query", "value")
    assert "%<" in _text(run, run.input.one_pass())
    settings["model_vocabulary.question_first"] = "True"
    settings["model_vocabulary.several_pages"] = "True"
    gin_files.load(["gin_configs/sft_imported.gin"], settings)
    run = configuration.build()
    text = _text(run, run.input.one_pass())
    assert 0 < 2 * text.count("Answer:") == text.count("Question: ")
    assert text.startswith("Question: ")
    run.describe(epath.Path(tmp_path / "described"))
    described = read_vocabulary(tmp_path / "described")
    assert PromptForm.of(described) == PromptForm(True, 448, several_pages=True)
    run.input.vocabulary.trained_length = 1024  # of an earlier training with longer prompts
    run.describe(epath.Path(tmp_path / "longer"))
    assert read_vocabulary(tmp_path / "longer").trained_length == 1024
    settings["model_config.attention_blok"] = "16"
    with pytest.raises(gin_files.ConfigurationError, match=r"model_config\.attention_block"):
        setting_checks.check(["gin_configs/sft_imported.gin"], settings)

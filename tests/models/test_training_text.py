"""Whether pages are anything like what a model was trained on: told by the vocabulary alone."""

import gzip
import json
import pathlib
import random

import pytest

from data_pipelines.sample_world.world import World
from gophercite.model_folders.folder import read_description, read_vocabulary
from gophercite.models.training_text import FIELD, training_text, unlike_training

ROOT = pathlib.Path(__file__).parents[2]
MODEL = ROOT / "data_pipelines" / "sample_world" / "model"
SHARED = ROOT.parent / "shared" / "data" / "squad"
VOCABULARY = read_vocabulary(MODEL)
PROVENANCE = read_description(MODEL).provenance


def refused(pages: list[str]) -> float:
    """The share of pages that, each alone, are unlike what the bundled model has read."""
    unlike = [unlike_training(PROVENANCE, VOCABULARY, [page]) for page in pages]
    return sum(each is not None for each in unlike) / len(pages)


def test_pages_of_its_world_are_like_it() -> None:
    world = World(0, "test")
    pages = [world.page(index).document.text for index in range(300)]
    assert refused(pages) == 0
    assert refused([path.read_text() for path in (ROOT / "examples" / "towns").iterdir()]) == 0


def test_pages_of_ours_are_not() -> None:
    notes = [path.read_text() for path in (ROOT / "examples" / "notes").iterdir()]
    assert refused(notes) == 1
    said = unlike_training(PROVENANCE, VOCABULARY, notes)
    assert said is not None
    assert "here a token spells 2." in said
    assert "in the training text 3.8" in said


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/data")
def test_real_pages_are_not() -> None:
    with gzip.open(SHARED / "wikipedia.json.gz") as file:
        articles = json.load(file)["data"]
    pages = [page["context"] for article in articles for page in article["paragraphs"]]
    assert refused(random.Random(0).sample(pages, 200)) > 0.95


def test_what_is_known_goes_on_from_model_to_model() -> None:
    rows = [
        VOCABULARY.encode("Boravel lies on the banks of the River Istira."),
        [VOCABULARY.pad_id],
    ]
    own = training_text(VOCABULARY, rows)
    assert own is not None
    tokens = len(rows[0])
    assert own["bytes_per_token"] == pytest.approx(46 / tokens, abs=1e-3)  # padding doesn't count
    # Of two kinds of text the one that is spelled worse decides: either may be asked about.
    assert training_text(VOCABULARY, rows, {FIELD: {"bytes_per_token": 9.0}}) == own
    assert training_text(VOCABULARY, rows, {FIELD: {"bytes_per_token": 1.5}}) == {
        "bytes_per_token": 1.5
    }
    assert training_text(VOCABULARY, None, {FIELD: own}) == own
    # Nobody knows what a published model has read.
    assert training_text(VOCABULARY, rows, {"source": "downloads/llama"}) is None
    assert training_text(VOCABULARY, None) is None


@pytest.mark.parametrize("value", [None, 7, {}, *({"bytes_per_token": x} for x in
    (None, "3", True, 0, -1, float("nan"), float("inf")))], ids=str)  # fmt: skip
def test_what_means_nothing_is_passed_over(value: object) -> None:
    assert unlike_training({FIELD: value}, VOCABULARY, ["zq" * 500]) is None


def test_without_text_nothing_is_said() -> None:
    assert unlike_training(PROVENANCE, VOCABULARY, [""]) is None
    assert unlike_training(PROVENANCE, VOCABULARY, []) is None

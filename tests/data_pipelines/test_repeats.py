"""Stretches of pages, shown again and again."""

import random

from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import tasks
from data_pipelines.inputs import Input
from data_pipelines.repeats import repeats
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import records
from gophercite.documents import Document

WORDS = [f"word{n}" for n in range(200)]
PAGE = Document("p", "A page", " ".join(WORDS))


@given(st.integers(0, 1000))
def test_the_same_run_of_the_page_stands_there_again_and_again(seed):
    parts = repeats(PAGE, random.Random(seed))
    first, *others = parts
    assert not first.predictable
    assert others
    assert all(part.predictable and part.text == first.text for part in others)
    assert first.text.strip() in PAGE.text
    assert 5 <= len(first.text.split()) <= 50
    assert sum(len(part.text) for part in parts) <= max(600, 2 * len(first.text))


def test_stretches_differ_in_place_and_length():
    stretches = {repeats(PAGE, random.Random(seed))[0].text for seed in range(50)}
    assert len(stretches) > 45
    assert len({len(stretch.split()) for stretch in stretches}) > 20


@given(st.text(), st.text(), st.integers(0, 100))
def test_any_document_becomes_a_text(title, text, seed):
    parts = repeats(Document("d", title, text), random.Random(seed))
    assert len({part.text for part in parts}) == 1
    assert len(parts) >= 2


def test_a_task_weighs_what_was_shown_before(tmp_path):
    path = tmp_path / "documents.jsonl"
    records.write(path, [PAGE])
    vocabulary = bundled_vocabulary()
    name = tasks.add_repeats("page_repeats", {"train": path}, vocabulary)
    batch = next(Input(name, "train", 1024, 1, seed=0, pack=False).batches())
    tokens, weights = batch["targets"][0], batch["weights"][0].round(6)
    foretold = vocabulary.decode(tokens[weights == 1].tolist())
    stretch = foretold.strip().split("\n")[0]
    assert stretch in PAGE.text
    assert vocabulary.decode(tokens[weights == 0.2].tolist()).strip() in stretch

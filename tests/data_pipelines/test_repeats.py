"""Stretches of pages, each shown twice."""

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
def test_runs_of_the_page_stand_there_twice(seed):
    parts = repeats(PAGE, random.Random(seed))
    for first, second in zip(parts[::2], parts[1::2], strict=True):
        assert (first.predictable, second.predictable) == (False, True)
        assert first.text == second.text
        assert first.text.strip() in PAGE.text
        assert len(first.text.split()) <= 50
    assert sum(len(part.text) for part in parts) <= 602


def test_stretches_differ_in_place_and_length():
    stretches = {repeats(PAGE, random.Random(seed))[0].text for seed in range(50)}
    assert len(stretches) > 45
    assert len({len(stretch.split()) for stretch in stretches}) > 20


@given(st.text(), st.text(), st.integers(0, 100))
def test_any_document_becomes_a_text(title, text, seed):
    parts = repeats(Document("d", title, text), random.Random(seed))
    assert [part.text for part in parts[::2]] == [part.text for part in parts[1::2]]
    assert len(parts) >= 2


def test_a_task_weighs_what_was_shown_before(tmp_path):
    path = tmp_path / "documents.jsonl"
    records.write(path, [PAGE])
    vocabulary = bundled_vocabulary()
    name = tasks.add_repeats("page_repeats", {"train": path}, vocabulary)
    batch = next(Input(name, "train", 1024, 1, seed=0, pack=False).batches())
    tokens, weights = batch["targets"][0], batch["weights"][0].round(6)
    first, second = (
        vocabulary.decode(tokens[weights == weight].tolist()).strip().split("\n")
        for weight in (0.2, 1)
    )
    assert first == second
    assert all(stretch in PAGE.text for stretch in first)

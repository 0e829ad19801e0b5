"""Examples without tokens, marks of edits, and plans that can't be read."""

import time

import numpy as np
import pytest
import seqio
import tensorflow as tf

from data_pipelines import filters, packing, row_plan
from data_pipelines.features import SeqioVocabulary, output_features
from data_pipelines.inputs import Input
from data_pipelines.packing import Example, PackingReport
from data_pipelines.sample_world.vocabulary import bundled_vocabulary


def example(size):
    return Example(np.full(size, 7, np.int32), np.ones(size, np.float32))


@pytest.mark.parametrize("share_beginnings", [False, True])
def test_examples_without_tokens_are_dropped_and_counted(share_beginnings):
    report = PackingReport()
    examples = [example(size) for size in (0, 3, 0, 2, 0)]
    rows = list(packing.group(examples, 8, report, share_beginnings=share_beginnings))
    assert [len(each.tokens) for row in rows for segment in row for each in segment] == [3, 2]
    assert (report.packed, report.dropped, report.empty, report.tokens) == (2, 0, 3, 5)
    for row in rows:
        packing.build_row(row, 8, branches=share_beginnings)


def test_a_task_with_examples_without_tokens_has_batches():
    def dataset(split, shuffle_files, seed=None):
        numbers = tf.data.Dataset.range(0, 5)
        return numbers.map(
            lambda n: {"tokens": tf.repeat(tf.cast(n, tf.int32), n), "weights": tf.ones(n)}
        )

    if "empty" in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove("empty")
    source = seqio.FunctionDataSource(dataset, splits=("train",))
    features = output_features(SeqioVocabulary(bundled_vocabulary()))
    seqio.TaskRegistry.add("empty", source, preprocessors=[], output_features=features)
    read = Input("empty", "train", 8, 2, seed=0)
    assert sum(int((batch["segments"] > 0).sum()) for batch in read.one_pass()) == 10
    assert read.report.empty == 1
    batch = next(read.batches())
    assert (batch["segments"] > 0).any(axis=1).all()


@pytest.mark.parametrize(
    "text",
    [
        "Edit: thanks", "edit :", "EDIT #2: more", "edit2 - more", "Well. edited – more", "edit 3:",
        "edit   \t:", "edit #:", "edit#12 —x", "so edit  -",
    ],
)  # fmt: skip
def test_marks_of_an_edit(text):
    assert filters._EDITED.search(f"It is so. {text}")


@pytest.mark.parametrize("text", ["to edit: this", "edit-", "edit 3 4:", "edits:", "credit: him"])
def test_no_marks_of_an_edit(text):
    assert not filters._EDITED.search(f"It is so. {text}")


@pytest.mark.parametrize("text", ["edit" + " " * 60_000, "edit #" + "1" * 60_000, "edit " * 20_000])
def test_an_edit_before_blanks_takes_linear_time(text):
    start = time.process_time()
    filters._EDITED.search(f"An {text}x")
    assert time.process_time() - start < 2


def test_a_folder_in_place_of_a_plan_is_named_and_the_plan_made_again(tmp_path, caplog):
    def measure(records):
        return row_plan.RowPlan.of([[[row_plan.Ref(int(n), 0)]] for n in records], False)

    folder = tmp_path / "rows-key" / "000000.npz"
    folder.mkdir(parents=True)
    plan = row_plan.plan_rows(np.arange(3), measure, tmp_path, "key")
    assert len(plan) == 3
    assert str(folder) in caplog.text
    assert [path.name for path in folder.parent.iterdir()] == ["000000.npz"]

"""Packing: what a row holds, that nothing is cut, lost or mixed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import packing
from data_pipelines.packing import Example, PackingReport

LENGTH = 12


def _example(first, size):
    tokens = np.arange(first, first + size, dtype=np.int32)
    return Example(tokens, np.linspace(0.5, 1, size, dtype=np.float32))


def _examples(sizes):
    starts = np.cumsum([1, *sizes])
    return [_example(int(start), size) for start, size in zip(starts, sizes, strict=False)]


def test_a_row_by_hand():
    row = packing.build_row(
        [
            Example(np.array([5, 6, 7], np.int32), np.array([0, 0, 1], np.float32)),
            Example(np.array([8, 9], np.int32), np.array([0, 0.5], np.float32)),
        ],
        length=7,
    )
    np.testing.assert_array_equal(row["tokens"], [5, 6, 7, 8, 9, 0, 0])
    np.testing.assert_array_equal(row["targets"], [6, 7, 0, 9, 0, 0, 0])
    np.testing.assert_array_equal(row["weights"], [0, 1, 0, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(row["positions"], [0, 1, 2, 0, 1, 0, 0])
    np.testing.assert_array_equal(row["segments"], [1, 1, 1, 2, 2, 0, 0])
    assert {name: feature.dtype for name, feature in row.items()} == packing.BATCH_FEATURES


@given(st.lists(st.integers(1, 16), max_size=60), st.booleans(), st.integers(1, 5))
def test_every_example_that_fits_is_in_one_row_whole(sizes, pack, open_rows):
    report = PackingReport()
    examples = _examples(sizes)
    groups = list(packing.group(examples, LENGTH, report, pack=pack, open_rows=open_rows))
    rows = [packing.build_row(group, LENGTH) for group in groups]

    found = []
    for row in rows:
        for segment in range(1, row["segments"].max() + 1):
            mask = row["segments"] == segment
            found.append(row["tokens"][mask].tolist())
            np.testing.assert_array_equal(row["positions"][mask], np.arange(mask.sum()))
            np.testing.assert_array_equal(row["targets"][mask][:-1], row["tokens"][mask][1:])
            assert row["targets"][mask][-1] == row["weights"][mask][-1] == 0
        padding = row["segments"] == 0
        assert not any(row[name][padding].any() for name in row)

    fitting = [e.tokens.tolist() for e in examples if len(e.tokens) <= LENGTH]
    assert sorted(found) == sorted(fitting)
    assert report.dropped == len(examples) - len(fitting)
    assert report.packed == len(fitting)
    assert report.tokens == sum(map(len, fitting))
    assert report.rows == len(rows)
    if not pack:
        assert found == fitting


def test_packing_fills_rows():
    report = PackingReport()
    sizes = np.random.default_rng(0).integers(1, LENGTH, 2000).tolist()
    rows = list(packing.group(_examples(sizes), LENGTH, report))
    assert report.tokens / (len(rows) * LENGTH) > 0.95


def test_the_longest_dropped_example_is_reported():
    report = PackingReport()
    assert list(packing.group(_examples([13, 40, 20]), LENGTH, report)) == []
    assert (report.dropped, report.longest_dropped) == (3, 40)


def test_no_rows_stack_to_an_empty_batch():
    batch = packing.stack_rows([], LENGTH)
    assert {name: feature.shape for name, feature in batch.items()} == dict.fromkeys(
        packing.BATCH_FEATURES, (0, LENGTH)
    )

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
            [Example(np.array([5, 6, 7], np.int32), np.array([0, 0, 1], np.float32))],
            [Example(np.array([8, 9], np.int32), np.array([0, 0.5], np.float32))],
        ],
        length=7,
    )
    np.testing.assert_array_equal(row["tokens"], [5, 6, 7, 8, 9, 0, 0])
    np.testing.assert_array_equal(row["targets"], [6, 7, 0, 9, 0, 0, 0])
    np.testing.assert_array_equal(row["weights"], [0, 1, 0, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(row["positions"], [0, 1, 2, 0, 1, 0, 0])
    np.testing.assert_array_equal(row["segments"], [1, 1, 1, 2, 2, 0, 0])
    assert {name: feature.dtype for name, feature in row.items()} == packing.BATCH_FEATURES


def test_a_row_that_branches_by_hand():
    beginning = [3, 4, 5]
    first = Example(np.array([*beginning, 6, 7], np.int32), np.array([0, 0, 0, 0, 1], np.float32))
    other = Example(np.array([*beginning, 8, 9], np.int32), np.array([0, 0, 0, 0, 2], np.float32))
    row = packing.build_row([[first, other]], length=8, branches=True)
    np.testing.assert_array_equal(row["tokens"], [3, 4, 5, 6, 7, 8, 9, 0])
    np.testing.assert_array_equal(row["targets"], [4, 5, 0, 7, 0, 9, 0, 0])
    np.testing.assert_array_equal(row["weights"], [0, 0, 0, 1, 0, 2, 0, 0])
    np.testing.assert_array_equal(row["positions"], [0, 1, 2, 3, 4, 3, 4, 0])
    np.testing.assert_array_equal(row["segments"], [1, 1, 1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(row["branches"], [0, 0, 0, 1, 1, 2, 2, 0])


# Pages of 20 to 40 tokens, and for each some answers: the same first tokens or not, a prompt's rest
# without weight, and weighted tokens after it.
ANSWERS_BY_PAGE = st.lists(
    st.tuples(
        st.integers(20, 40),
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 30)),
            min_size=1,
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=12,
)


@given(ANSWERS_BY_PAGE, st.booleans())
def test_examples_that_begin_alike_are_whole_in_their_branches(pages, pack):
    examples, length, token = [], 80, 1000
    for page, answers in pages:
        beginning = np.arange(token, token + page)
        token += page
        for alike, prompt, response in answers:
            asked = np.concatenate([[1, 2, 3][:alike], np.arange(token, token + prompt)])
            tokens = np.concatenate([beginning, asked, np.arange(token, token + response)])
            weights = np.zeros(len(tokens))
            weights[-response:] = np.arange(1, response + 1)
            token += prompt + response
            examples.append(Example(tokens.astype(np.int32), weights.astype(np.float32)))
    report = PackingReport()
    rows = [
        packing.build_row(row, length, branches=True)
        for row in packing.group(examples, length, report, pack=pack, share_beginnings=True)
    ]

    fitting = [example for example in examples if len(example.tokens) <= length]
    found = []
    for row in rows:
        for segment in range(1, row["segments"].max() + 1):
            inside = row["segments"] == segment
            for branch in range(1, row["branches"][inside].max() + 1) or [0]:
                seen = inside & np.isin(row["branches"], [0, branch])
                own = inside & (row["branches"] == branch)
                np.testing.assert_array_equal(row["positions"][seen], np.arange(seen.sum()))
                np.testing.assert_array_equal(row["targets"][own][:-1], row["tokens"][own][1:])
                assert row["targets"][own][-1] == row["weights"][own][-1] == 0
                of_shared = row["weights"][inside & (row["branches"] == 0)]
                assert branch == 0 or not of_shared.any()
                found.append((row["tokens"][seen].tolist(), row["weights"][own].sum()))
    expected = [(example.tokens.tolist(), example.weights[1:].sum()) for example in fitting]
    assert sorted(found) == sorted(expected)
    assert report.packed == len(fitting)
    assert report.tokens == sum((row["segments"] > 0).sum() for row in rows)


def test_questions_about_one_page_share_it():
    page = np.arange(100, 130)
    answers = [
        Example(
            np.concatenate([page, [5, number, 7, 8]]).astype(np.int32),
            np.r_[np.zeros(33), 1].astype(np.float32),
        )
        for number in range(4)
    ]
    other = _example(500, 34)  # all its tokens have weights
    report = PackingReport()
    group = packing.group([*answers, other, other], 200, report, share_beginnings=True)
    (row,) = [[len(segment) for segment in row] for row in group]
    assert row == [4, 1, 1]
    assert report.tokens == (31 + 4 * 3) + 2 * 34


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

"""Agreement: against nltk's, against sums by hand, and intervals that hold what they say."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.metrics.agreement import AnnotationTask
from nltk.metrics.distance import interval_distance

from gophercite.ratings.agreement import Agreement, interval, krippendorff, percent

TABLES = st.lists(st.lists(st.sampled_from("abc"), min_size=2, max_size=5), min_size=1, max_size=12)


def value(found: Agreement | None) -> float:
    assert found is not None
    assert found.low - 1e-12 <= found.high
    return found.value


def task(items: list[list[object]], **options: object) -> AnnotationTask:
    """The same labels as nltk has them: coder, item, label."""
    rows = [(f"r{r}", f"i{i}", label) for i, ls in enumerate(items) for r, label in enumerate(ls)]
    return AnnotationTask(rows, **options)


@given(TABLES)
def test_alpha_is_nltks(items: list[list[str]]) -> None:
    if len({label for labels in items for label in labels}) == 1:
        assert krippendorff(items) is None  # where nltk has 1, though nothing could be told apart
        return
    assert value(krippendorff(items)) == pytest.approx(task(items).alpha(), abs=1e-9)


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=4), min_size=2, max_size=8).filter(
        lambda items: len({label for labels in items for label in labels}) > 1
    )
)
def test_alpha_of_numbers_is_nltks(items: list[list[int]]) -> None:
    expected = task(items, distance=interval_distance).alpha()
    assert value(krippendorff(items, interval)) == pytest.approx(expected, abs=1e-9)


def test_alpha_of_krippendorffs_own_example() -> None:
    """Content Analysis, table 11.1 with gaps: nominal 0.743, interval 0.849."""
    coders = [
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    ]
    columns = zip(*(row.split() for row in coders), strict=True)
    items = [[int(label) for label in column if label != "."] for column in columns]
    assert value(krippendorff(items)) == pytest.approx(0.743, abs=5e-4)
    assert value(krippendorff(items, interval)) == pytest.approx(0.849, abs=5e-4)


def test_percent_by_hand() -> None:
    items = [["a", "a", "tie"], ["b", "b"], ["a"], ["tie", "tie"], ["a", "b"]]
    # Pairs: aa, a-tie, a-tie; bb; tie-tie; ab.
    assert value(percent(items, neutral={"tie"})) == pytest.approx((1 + 0.5 + 0.5 + 1 + 1 + 0) / 6)
    assert value(percent(items)) == pytest.approx(3 / 6)
    assert percent(items).items == 4  # type: ignore[union-attr]
    assert percent([["a"], []]) is None
    assert krippendorff([]) is None


def test_intervals_hold_the_truth_nine_times_in_ten() -> None:
    """Of two raters who agree in 80 of 100; 300 experiments of 60 items."""
    draw = random.Random(0)
    inside = 0
    for seed in range(300):
        items = [["a", "a" if draw.random() < 0.8 else "b"] for _ in range(60)]
        found = percent(items, seed=seed)
        assert found is not None
        inside += found.low <= 0.8 <= found.high
    assert 0.84 < inside / 300 < 0.95


def test_more_items_narrow_the_interval_and_a_seed_repeats_it() -> None:
    draw = np.random.default_rng(0)
    labels = [list(map(str, row)) for row in draw.integers(0, 2, (400, 3))]
    few, many = krippendorff(labels[:40]), krippendorff(labels)
    assert few is not None
    assert many is not None
    assert many.high - many.low < 0.5 * (few.high - few.low)
    assert krippendorff(labels) == many

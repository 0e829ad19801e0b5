"""Early stopping: any one set that stalls ends the run."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.training.early_stopping import EarlyStopping, Watch

values = st.floats(0, 10, allow_nan=False)


def stops_at(rule: EarlyStopping, *sequences: list[float]) -> int | None:
    watch = Watch()
    for number, row in enumerate(zip(*sequences, strict=True)):
        watch = watch.observe(rule, dict(zip(rule.metrics, row, strict=True)))
        if watch.stopped(rule):
            return number
    return None


def test_the_first_of_two_sets_to_stall_stops_the_run():
    rule = EarlyStopping(("eval/a/loss", "eval/b/loss"), patience=2)
    falling, stalling = [5.0, 4.0, 3.0, 2.0, 1.0], [5.0, 4.0, 4.5, 4.2, 4.1]
    assert stops_at(rule, falling, stalling) == 3
    assert stops_at(rule, stalling, falling) == 3
    assert stops_at(rule, falling, falling) is None


def test_small_gains_don_t_count_and_rising_metrics_may_be_watched():
    assert stops_at(EarlyStopping(("a",), min_delta=0.1), [1.0, 0.95]) == 1
    assert stops_at(EarlyStopping(("a",), min_delta=0.1), [1.0, 0.85]) is None
    assert stops_at(EarlyStopping(("a",), higher_is_better=True), [0.5, 0.6, 0.6]) == 2


def test_a_value_that_is_not_a_number_is_no_improvement():
    assert stops_at(EarlyStopping(("a",), patience=2), [1.0, math.nan, math.nan]) == 2
    assert stops_at(EarlyStopping(("a",)), [math.nan, 1.0]) == 0


@given(st.lists(values, min_size=1, max_size=20), st.integers(1, 4), st.floats(0, 2))
def test_it_stops_where_the_definition_says(sequence, patience, min_delta):
    expected = None
    best, since = math.inf, 0
    for number, value in enumerate(sequence):
        improved = value < best if math.isinf(best) else best - value > min_delta
        best, since = (value, 0) if improved else (best, since + 1)
        if since >= patience:
            expected = number
            break
    assert stops_at(EarlyStopping(("a",), patience, min_delta), sequence) == expected


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="metrics is empty"):
        EarlyStopping(())
    with pytest.raises(ValueError, match="patience = 0"):
        EarlyStopping(("a",), patience=0)
    with pytest.raises(ValueError, match="names 'b'; evaluations give a"):
        Watch().observe(EarlyStopping(("b",)), {"a": 1.0})

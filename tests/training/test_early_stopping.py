"""Early stopping: any one set that stalls ends the run."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.training.clock import Clock, judge
from gophercite.training.early_stopping import EarlyStopping, Watch
from gophercite.training.settings import TrainSettings

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
    with pytest.raises(ValueError, match="names 'b', but evaluations report a"):
        Watch().observe(EarlyStopping(("b",)), {"a": 1.0})


def scores(values, **settings):
    """The scores of states, by which the lowest is the best."""
    made = TrainSettings("x", 4, 4, **settings)
    return [judge(made, Clock(), {"set": {METRIC: value}})[1] for value in values]


METRIC = "eval/set/accuracy"
RISING = EarlyStopping((METRIC,), higher_is_better=True)


def test_the_best_checkpoint_has_the_highest_accuracy_with_and_without_early_stopping():
    for settings in ({"early_stopping": RISING}, {"best_mode": "max"},
                     {"early_stopping": RISING, "best_mode": "max"}):  # fmt: skip
        assert scores([0.5, 0.9, 0.7], best_metric=METRIC, **settings) == [-0.5, -0.9, -0.7]
    assert scores([0.5, 0.9], early_stopping=RISING) == [-0.5, -0.9]
    assert scores([0.5, 0.9], best_metric=METRIC, best_mode="min") == [0.5, 0.9]
    other = EarlyStopping(("eval/set/reward",), higher_is_better=True)
    assert TrainSettings("x", 4, 4, best_metric="eval/set/loss", early_stopping=other)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"best_metric": METRIC}, "set best_mode to 'max' if high values"),
        ({"best_metric": METRIC, "best_mode": "highest"}, "must be 'min' or 'max'"),
        ({"best_metric": METRIC, "best_mode": "min", "early_stopping": RISING}, "same metric"),
        ({"best_metric": "eval/set/loss", "best_mode": "max"}, "highest loss is the worst"),
    ],
)
def test_it_is_never_guessed_which_way_is_better(settings, said):
    with pytest.raises(ValueError, match=said):
        TrainSettings("x", 4, 4, **settings)

"""Early stopping: any one set that stalls ends the run."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.training.clock import Clock, judge
from gophercite.training.early_stopping import EarlyStopping, UnknownMetricError, Watch
from gophercite.training.settings import TrainSettings

METRIC = "eval/set/accuracy"
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


KL = "eval/set/kl"
LIMITED = EarlyStopping((METRIC,), higher_is_better=True, limits={KL: 0.5})


def test_a_stop_holds_only_under_a_rule_that_would_stop():
    def ended(*results: dict[str, float], rule: EarlyStopping) -> Clock:
        clock = Clock()
        for values in results:
            clock, _ = judge(TrainSettings("x", 4, 4, early_stopping=rule), clock, {"set": values})
        assert clock.stopped
        return Clock.from_json(json.loads(json.dumps(dataclasses.asdict(clock))))

    patient = dataclasses.replace(LIMITED, patience=2)
    stale = ended({METRIC: 0.5, KL: 0.1}, {METRIC: 0.4, KL: 0.1}, rule=LIMITED)
    assert stale.under(LIMITED) == stale
    assert stale.under(patient).stopped is None
    assert stale.under(None).stopped is None
    beyond = ended({METRIC: 0.5, KL: 0.6}, rule=LIMITED)
    assert beyond.under(patient) == beyond
    assert beyond.under(dataclasses.replace(patient, limits={KL: 0.7})).stopped is None
    assert beyond.under(dataclasses.replace(patient, limits={"eval/set/new": 0.7})).stopped is None
    # A checkpoint of before does not say how far beyond its limit it is.
    assert dataclasses.replace(beyond, limited=None).under(patient).stopped == beyond.stopped
    going = Clock(step=3, watch=stale.watch)
    assert going.under(LIMITED) == going  # a lower patience stops no run before it is evaluated


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"best_metric": "eval/set/acuracy", "best_mode": "max"},
            "TrainSettings.best_metric names 'eval/set/acuracy', but evaluations report eval/set/a",
        ),
        (
            {"early_stopping": EarlyStopping(("eval/set/los",))},
            "EarlyStopping.metrics names 'eval/set/los', but evaluations report eval/set/accuracy",
        ),
        (
            {"early_stopping": EarlyStopping(("eval/set/accuracy",), limits={"eval/set/k": 1.0})},
            "EarlyStopping.limits names 'eval/set/k', but evaluations report eval/set/accuracy",
        ),
    ],
)
def test_a_metric_that_no_evaluation_reports_is_named(settings, said):
    with pytest.raises(UnknownMetricError, match=said):
        judge(TrainSettings("x", 4, 4, **settings), Clock(), {"set": {METRIC: 0.5}})


def scores(values, **settings):
    """The scores of states, by which the lowest is the best."""
    made = TrainSettings("x", 4, 4, **settings)
    return [judge(made, Clock(), {"set": {METRIC: value}})[1].rank() for value in values]


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

"""Coverage curves, and promises that are kept as often as they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gophercite.evaluation.abstention import (
    TooFewLabelsError,
    clopper_pearson,
    coverage_curve,
    promise_quality,
)


def world(random, questions):
    """Answers whose chance to be good rises with their score."""
    scores = random.normal(size=questions)
    return scores, random.random(questions) < 1 / (1 + np.exp(-1.5 - 1.5 * scores))


def quality_above(threshold):
    """What share of the world's answers from a threshold on is good, by integration."""
    scores = np.linspace(threshold, 8, 20_001)
    density = stats.norm.pdf(scores)
    return np.sum(density / (1 + np.exp(-1.5 - 1.5 * scores))) / np.sum(density)


labelled = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=40)


@given(labelled)
def test_a_curve_is_what_its_thresholds_do(drawn):
    scores, good = (np.array(part) for part in zip(*drawn, strict=True))
    curve = coverage_curve(scores, good)
    assert len(curve.threshold) == len(set(scores.tolist()))
    for point, threshold in enumerate(curve.threshold):
        answered = scores >= threshold
        assert curve.coverage[point] == pytest.approx(answered.mean())
        assert curve.quality[point] == pytest.approx(good[answered].mean())
        assert curve.low[point] <= curve.quality[point] <= curve.high[point]
    assert curve.coverage[-1] == 1
    assert 0 <= curve.area <= 1


def test_scores_that_know_have_more_area():
    scores, good = world(np.random.default_rng(0), 2000)
    knowing = coverage_curve(scores, good).area
    blind = coverage_curve(np.random.default_rng(1).normal(size=2000), good).area
    assert knowing > blind + 0.05
    assert blind == pytest.approx(good.mean(), abs=0.03)


def test_limits_are_scipy_s():
    for right, count in ((0, 5), (3, 10), (10, 10)):
        low, high = clopper_pearson(np.array(right), np.array(count), 0.9)
        interval = stats.binomtest(right, count).proportion_ci(0.9, method="exact")
        assert (float(low), float(high)) == pytest.approx(tuple(interval))


def test_promises_are_kept():
    """Of 400 thresholds from 300 labels each, at most a tenth may break a promise of 90 %."""
    random = np.random.default_rng(0)
    kept, made, coverage = 0, 0, []
    for _ in range(400):
        try:
            promise = promise_quality(*world(random, 300), quality=0.85, confidence=0.9)
        except TooFewLabelsError:
            continue
        made += 1
        kept += quality_above(promise.threshold) >= 0.85
        coverage.append(promise.coverage)
    assert made > 300
    assert kept / made >= 0.9
    assert np.mean(coverage) > 0.4  # and not by answering hardly anything


def test_what_can_t_be_promised_is_said():
    with pytest.raises(TooFewLabelsError, match="it would take 51"):
        promise_quality(np.arange(20.0), np.ones(20, bool), quality=0.9)
    with pytest.raises(TooFewLabelsError, match="over all of them 0%"):
        promise_quality(np.arange(100.0), np.zeros(100, bool), quality=0.9)
    promise = promise_quality(np.arange(60.0), np.ones(60, bool), quality=0.9)
    assert (promise.threshold, promise.coverage) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("scores", "good", "quality", "said"),
    [
        ([1.0], [True, False], 0.9, "shape"),
        ([], [], 0.9, "at least one"),
        ([float("nan")], [True], 0.9, "not a number"),
        ([1.0], [True], 1.0, "quality = 1.0"),
    ],
)
def test_nonsense_is_refused_by_name(scores, good, quality, said):
    with pytest.raises(ValueError, match=said):
        promise_quality(np.array(scores), np.array(good, bool), quality)

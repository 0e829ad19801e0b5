"""Coverage curves: what thresholds do, with exact limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gophercite.evaluation.abstention import clopper_pearson, coverage_curve


def world(random, questions):
    """Answers whose chance to be good rises with their score."""
    scores = random.normal(size=questions)
    return scores, random.random(questions) < 1 / (1 + np.exp(-1.5 - 1.5 * scores))


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

"""The estimator against what it estimates: all subsets, looked at one by one."""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.evaluation.best_of_n import best_of_n


def brute_force(chosen_by, judged_by, n):
    """The mean over all subsets of n, and over all that are best in each."""
    worths = []
    for subset in itertools.combinations(range(len(chosen_by)), n):
        best = max(chosen_by[i] for i in subset)
        worths.append(statistics.fmean(judged_by[i] for i in subset if chosen_by[i] == best))
    return statistics.fmean(worths)


samples = st.tuples(st.integers(-3, 3), st.integers(-5, 5))  # equal scores are common


@given(st.lists(samples, min_size=1, max_size=8))
def test_it_is_the_mean_over_all_subsets(drawn):
    chosen_by, judged_by = np.array(drawn, float).T
    sizes = range(1, len(drawn) + 1)
    found = best_of_n(chosen_by[None], judged_by[None], sizes)[0]
    expected = [brute_force(chosen_by, judged_by, n) for n in sizes]
    np.testing.assert_allclose(found, expected, atol=1e-12)


FAR_APART = np.array([-np.inf, -1e300, -1e18, 0.0, 1.0, 1e18, np.inf])


@given(st.lists(st.tuples(samples, st.booleans()), min_size=1, max_size=8), st.booleans())
def test_what_comes_last_is_chosen_only_alone(drawn, are_far_apart):
    chosen_by, judged_by = np.array([scores for scores, _ in drawn], float).T
    if are_far_apart:
        chosen_by = FAR_APART[chosen_by.astype(int) + 3]
    last = np.array([is_last for _, is_last in drawn])
    sizes = range(1, len(drawn) + 1)
    found = best_of_n(chosen_by[None], judged_by[None], sizes, last[None])[0]
    keys = list(zip((~last).tolist(), chosen_by.tolist(), strict=True))
    expected = [brute_force(keys, judged_by, n) for n in sizes]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_many_samples_neither_overflow_nor_lose_precision():
    scores = np.arange(2000.0)[None]
    found = best_of_n(scores, scores, [1, 2, 1000, 2000])[0]
    # The expected maximum of n of the numbers 0 … N - 1 is n (N + 1) / (n + 1) - 1.
    np.testing.assert_allclose(found, [n * 2001 / (n + 1) - 1 for n in (1, 2, 1000, 2000)])


@pytest.mark.parametrize(
    ("chosen_by", "judged_by", "sizes", "said"),
    [
        ([[1.0, 2.0]], [[1.0]], [1], "shape"),
        ([[1.0, 2.0]], [[1.0, 2.0]], [3], "n = 3"),
        ([[1.0, 2.0]], [[1.0, 2.0]], [0], "n = 0"),
        ([[1.0, float("nan")]], [[1.0, 2.0]], [1], "is NaN"),
    ],
)
def test_what_has_no_answer_is_refused(chosen_by, judged_by, sizes, said):
    with pytest.raises(ValueError, match=said):
        best_of_n(np.array(chosen_by), np.array(judged_by), sizes)

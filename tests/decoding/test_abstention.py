"""Promises of quality that are kept as often as they say."""

import numpy as np
import pytest

from gophercite.decoding.abstention import TooFewLabelsError, promise_quality


def continuous():
    """Scores, and the chance to be good that rises with them."""
    scores = np.linspace(-4, 4, 801)
    weights = np.exp(-(scores**2) / 2)
    return scores, weights / weights.sum(), 1 / (1 + np.exp(-1.5 - 1.5 * scores))


def few_values():
    """Many answers have the same score, and a higher one is not always better."""
    return (
        np.arange(5.0),
        np.array([0.3, 0.2, 0.2, 0.2, 0.1]),
        np.array([0.3, 0.5, 0.99, 0.97, 0.8]),
    )


@pytest.mark.parametrize("world", [continuous, few_values])
def test_promises_are_kept(world):
    """Of 400 thresholds from 300 labels each, at most a tenth may break a promise of 90 %."""
    random = np.random.default_rng(0)
    values, chances, quality = world()
    broken, coverage = 0, []
    for _ in range(400):
        drawn = random.choice(len(values), 300, p=chances)
        good = random.random(300) < quality[drawn]
        try:
            promise = promise_quality(values[drawn], good, quality=0.85, confidence=0.9)
        except TooFewLabelsError:
            continue
        given = values > promise.threshold
        broken += np.average(quality[given], weights=chances[given]) < 0.85
        coverage.append(promise.coverage)
        answered = values[drawn] > promise.threshold
        assert promise.coverage == answered.mean()
        assert promise.observed_quality == good[answered].mean()
    assert len(coverage) > 200
    assert broken <= 40
    assert np.mean(coverage) > 0.35  # and not by answering hardly anything


def test_what_can_t_be_promised_is_said():
    with pytest.raises(TooFewLabelsError, match=r"confidence 95%: .*, it would take 57"):
        promise_quality(np.arange(20.0), np.ones(20, bool), quality=0.9)
    with pytest.raises(TooFewLabelsError, match="no threshold on 57 labelled answers"):
        promise_quality(np.arange(57.0), np.arange(57) > 0, quality=0.9)
    with pytest.raises(TooFewLabelsError, match="of all of them 0%"):
        promise_quality(np.arange(100.0), np.zeros(100, bool), quality=0.9)


def test_one_label_can_promise_hardly_anything() -> None:
    promise = promise_quality(np.array([1.0]), np.array([True]), quality=0.001)
    assert (promise.coverage, promise.observed_quality) == (1.0, 1.0)


def test_when_all_may_be_given_there_is_no_threshold():
    promise = promise_quality(np.arange(57.0), np.ones(57, bool), quality=0.9)
    assert (promise.threshold, promise.coverage) == (-np.inf, 1.0)


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

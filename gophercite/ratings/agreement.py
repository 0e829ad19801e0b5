"""Agreement of raters: percent and Krippendorff's alpha, each with an interval.

Both are ratios of sums over items, so the bootstrap is a matrix product: each item's terms are
computed once, and each resample is a vector of how often each item counts.
"""

import itertools
import typing
from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np
from jaxtyping import Float

Label = Hashable

RESAMPLES = 1000
_TAIL = 5  # percent cut off at each end: 90 % intervals, as in the paper


class Agreement(typing.NamedTuple):
    """An agreement with its 90 % bootstrap interval over items.

    Attributes:
      value: 1 for complete agreement.
      low, high: the interval.
      items: number of items with at least two raters.
    """

    value: float
    low: float
    high: float
    items: int


def percent(
    items: Sequence[Sequence[Label]], neutral: Collection[Label] = (), seed: int = 0
) -> Agreement | None:
    """Returns how often two raters of an item agree, as a share in [0, 1].

    A neutral label and another label count as half an agreement (WebGPT, section C.2).

    Args:
      items: for each item, the labels that its raters gave.
      neutral: labels such as `tie`.
      seed: seed of the bootstrap.

    Returns:
      The agreement; None if no item has two labels.
    """
    rated = [labels for labels in items if len(labels) > 1]
    sums = []
    for labels in rated:
        pairs = list(itertools.combinations(labels, 2))
        alike = sum(_alike(one, other, neutral) for one, other in pairs)
        sums.append((alike, float(len(pairs))))
    if not rated:
        return None
    return _with_interval(np.array(sums), lambda s: s[:, 0] / s[:, 1], seed)


def krippendorff(
    items: Sequence[Sequence[Label]],
    distance: Callable[[typing.Any, typing.Any], float] | None = None,
    seed: int = 0,
) -> Agreement | None:
    """Returns Krippendorff's alpha: 1 minus the observed over the expected disagreement.

    Each rater may have rated any of the items. See Krippendorff, Content Analysis (2004), chapter
    11.

    Args:
      items: for each item, the labels that its raters gave.
      distance: a symmetric distance between two labels, 0 if they are equal. With None, the
        distance of different labels is 1. For numeric labels, use `interval`.
      seed: seed of the bootstrap.

    Returns:
      Alpha; None if it is undefined, because no item has two labels or all labels are the same.
    """
    rated = [labels for labels in items if len(labels) > 1]
    if not rated:
        return None
    kinds = list(dict.fromkeys(itertools.chain.from_iterable(rated)))
    place = {label: number for number, label in enumerate(kinds)}
    distances = np.array([[_distance(a, b, distance) for b in kinds] for a in kinds])
    coincidences = np.zeros((len(rated), len(kinds), len(kinds)))
    for number, labels in enumerate(rated):
        counts = np.bincount([place[label] for label in labels], minlength=len(kinds))
        pairs = np.outer(counts, counts) - np.diag(counts)
        coincidences[number] = pairs / (len(labels) - 1)

    def alpha(sums: Float[np.ndarray, "n pairs"]) -> Float[np.ndarray, " n"]:
        both = sums.reshape(-1, len(kinds), len(kinds))
        totals = both.sum(2)
        observed = (both * distances).sum((1, 2))
        expected = np.einsum("na,nb,ab->n", totals, totals, distances)
        return 1 - (totals.sum(1) - 1) * observed / expected

    return _with_interval(coincidences.reshape(len(rated), -1), alpha, seed)


def interval(one: float, other: float) -> float:
    """The squared difference of numbers, as a distance for `krippendorff`."""
    return (one - other) ** 2


def _alike(one: Label, other: Label, neutral: Collection[Label]) -> float:
    if one == other:
        return 1.0
    return 0.5 if (one in neutral) != (other in neutral) else 0.0


def _distance(
    one: Label, other: Label, distance: Callable[[typing.Any, typing.Any], float] | None
) -> float:
    return float(one != other) if distance is None else distance(one, other)


def _with_interval(
    sums: Float[np.ndarray, "items parts"],
    ratio: Callable[[Float[np.ndarray, "n parts"]], Float[np.ndarray, " n"]],
    seed: int,
) -> Agreement | None:
    """The ratio of the items' sums, and its interval; undefined resamples are left out."""
    count = len(sums)
    # Items with equal terms are drawn together: even among many items, there are few kinds.
    kinds, sizes = np.unique(sums, axis=0, return_counts=True)
    draws = np.random.default_rng(seed).multinomial(count, sizes / count, RESAMPLES)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(ratio(sums.sum(0, keepdims=True))[0])
        resampled = ratio(draws @ kinds)
    if not np.isfinite(value):
        return None
    low, high = np.percentile(resampled[np.isfinite(resampled)], [_TAIL, 100 - _TAIL])
    return Agreement(value, float(low), float(high), count)

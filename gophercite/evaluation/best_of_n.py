"""Quality of the best of n answers, for all n, from one set of samples (WebGPT, appendix I).

Drawing n new answers for every n and every trial would cost many samples. Instead, all subsets of n
of a question's N samples are evaluated together: after sorting by the score to choose by, the i-th
sample is the best of exactly C(i - 1, n - 1) subsets.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def best_of_n(
    chosen_by: Float[np.ndarray, "questions samples"],
    judged_by: Float[np.ndarray, "questions samples"],
    sizes: Sequence[int],
    last: Bool[np.ndarray, "questions samples"] | None = None,
) -> Float[np.ndarray, "questions sizes"]:
    """Estimates, without bias, the judged score of the best of n samples.

    The score that samples are chosen by, such as a reward model's, overrates its own choices: judge
    by something else, such as a reward model trained on other comparisons, or people.

    Args:
      chosen_by: score of each sample; the highest is chosen, at random on a tie.
      judged_by: judged score of each sample.
      sizes: the values of n.
      last: samples that are chosen only if there is no other among the n, whatever their score,
        such as those whose quote lacks their claim (`decoding.claim_in_quote`).

    Returns:
      The expected judged score of the best of n samples of each question.

    Raises:
      ValueError: shapes differ, a score is not a number, or an n is not from 1 to the sample count.
    """
    chosen_by, judged_by = np.asarray(chosen_by, float), np.asarray(judged_by, float)
    if chosen_by.shape != judged_by.shape or chosen_by.ndim != 2:
        raise ValueError(
            f"scores to choose by have shape {chosen_by.shape}, scores to judge by "
            f"{judged_by.shape}: both must be [questions, samples]"
        )
    if np.isnan(chosen_by).any():
        raise ValueError("a score to choose by is NaN")
    if last is not None:
        chosen_by = put_last(chosen_by, last)
    samples = chosen_by.shape[1]
    for n in sizes:
        if not 1 <= n <= samples:
            raise ValueError(f"n = {n}: must be from 1 to the {samples} samples of a question")
    order = np.argsort(chosen_by, axis=1, kind="stable")
    keys = np.take_along_axis(chosen_by, order, axis=1)
    worth = _mean_among_equals(keys, np.take_along_axis(judged_by, order, axis=1))
    return worth @ np.stack([_chances(samples, n) for n in sizes], axis=1)


def put_last(
    scores: Float[np.ndarray, "questions samples"], last: Bool[np.ndarray, "questions samples"]
) -> Float[np.ndarray, "questions samples"]:
    """Returns the ranks of scores, some of them below all others.

    Equal scores have equal ranks, and the order within either kind is that of the scores. Scores
    may be of any size: lowering them by their range would round some to the same number.
    """
    ranks = np.unique(scores, return_inverse=True)[1].reshape(scores.shape).astype(float)
    return np.where(last, ranks - ranks.size, ranks)


def _chances(samples: int, n: int) -> Float[np.ndarray, " samples"]:
    """Each rank's probability, from the worst, of being the best of n drawn without replacement."""
    chances = np.zeros(samples)
    chance = n / samples  # C(N - 1, n - 1) / C(N, n): both would overflow for large N
    for place in range(samples, n - 1, -1):
        chances[place - 1] = chance
        if place > 1:
            chance *= (place - n) / (place - 1)
    return chances


def _mean_among_equals(
    keys: Float[np.ndarray, "questions samples"], worth: Float[np.ndarray, "questions samples"]
) -> Float[np.ndarray, "questions samples"]:
    """Gives samples with equal keys their mean worth, since ties are broken uniformly."""
    means = np.empty_like(worth)
    for row, (key, value) in enumerate(zip(keys, worth, strict=True)):
        _, group, count = np.unique(key, return_inverse=True, return_counts=True)
        means[row] = (np.bincount(group, value) / count)[group]
    return means

"""How good the best of n answers is, for all n, from one set of samples (WebGPT, appendix I).

Sampling n answers anew for every n and every trial would cost many samples. Instead, all subsets of
n among the N samples of a question are looked at together: sorted by what they are chosen by, the
i-th is the best of exactly C(i - 1, n - 1) subsets.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def best_of_n(
    chosen_by: Float[np.ndarray, "questions samples"],
    judged_by: Float[np.ndarray, "questions samples"],
    sizes: Sequence[int],
) -> Float[np.ndarray, "questions sizes"]:
    """Estimates, without bias, how the best of n samples is judged.

    What samples are chosen by, a reward model for one, looks better than it is at its own choice:
    judge by something else, such as a reward model trained on other comparisons, or people.

    Args:
      chosen_by: score of each sample; the highest is chosen, by lot among equals.
      judged_by: what it is worth.
      sizes: the n.

    Returns:
      The expected worth of the best of n samples of each question.

    Raises:
      ValueError: shapes differ, a score is not a number, or some n is not from 1 to the samples.
    """
    chosen_by, judged_by = np.asarray(chosen_by, float), np.asarray(judged_by, float)
    if chosen_by.shape != judged_by.shape or chosen_by.ndim != 2:
        raise ValueError(
            f"scores to choose by have shape {chosen_by.shape}, to judge by {judged_by.shape}: "
            "both must be [questions, samples]"
        )
    if np.isnan(chosen_by).any():
        raise ValueError("a score to choose by is not a number")
    samples = chosen_by.shape[1]
    for n in sizes:
        if not 1 <= n <= samples:
            raise ValueError(f"n = {n}: must be from 1 to the {samples} samples of a question")
    order = np.argsort(chosen_by, axis=1, kind="stable")
    keys = np.take_along_axis(chosen_by, order, axis=1)
    worth = _mean_among_equals(keys, np.take_along_axis(judged_by, order, axis=1))
    return worth @ np.stack([_chances(samples, n) for n in sizes], axis=1)


def _chances(samples: int, n: int) -> Float[np.ndarray, " samples"]:
    """The chance of each place, from the worst, to be the best of n drawn without replacement."""
    chances = np.zeros(samples)
    chance = n / samples  # C(N - 1, n - 1) / C(N, n): neither could be written out for large N
    for place in range(samples, n - 1, -1):
        chances[place - 1] = chance
        if place > 1:
            chance *= (place - n) / (place - 1)
    return chances


def _mean_among_equals(
    keys: Float[np.ndarray, "questions samples"], worth: Float[np.ndarray, "questions samples"]
) -> Float[np.ndarray, "questions samples"]:
    """Gives samples with the same key their mean worth: the lot among them is fair."""
    means = np.empty_like(worth)
    for row, (key, value) in enumerate(zip(keys, worth, strict=True)):
        _, group, count = np.unique(key, return_inverse=True, return_counts=True)
        means[row] = (np.bincount(group, value) / count)[group]
    return means

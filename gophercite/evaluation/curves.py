"""Curves from result lines: how well scores predict quality, and the quality of the best of N.

A result line is what `results.sample_line` returns and PREFIX.jsonl and PREFIX_samples.jsonl hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gophercite.evaluation.abstention import CoverageCurve, coverage_curve
from gophercite.evaluation.best_of_n import best_of_n
from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.evaluation.roc import RocCurve, roc_curve

Line = Mapping[str, Any]

# The scores of answers, with their names in figures.
SCORES = {
    "reward": "reward",
    "supported_and_plausible": "reward model's S&P",
    "consensus": "consensus",
    "log_prob": "log-probability",
}
# Judgements that can define a good answer; the first that is known is used.
GOOD = ("supported", "claim_correct")


def good_by(lines: Iterable[Line]) -> str | None:
    """Returns the judgement that defines a good answer: the first of `GOOD` that is known."""
    lines = list(lines)
    known = (name for name in GOOD if any(line.get(name) is not None for line in lines))
    return next(known, None)


def coverage_curves(lines: Sequence[Line], good: str) -> dict[str, CoverageCurve]:
    """Returns quality by coverage for each score that all answers have.

    Args:
      lines: the selected answers, one per question.
      good: name of the judgement.
    """
    found = {}
    for score, name in SCORES.items():
        scores, labels = _scores_and_labels(lines, score, good)
        if len(labels):
            found[name] = coverage_curve(scores, labels)
    return found


def roc_curves(lines: Sequence[Line], good: str) -> dict[str, RocCurve]:
    """Returns the ROC curve of each score that all answers have, if some are good and some bad.

    Args:
      lines: answers.
      good: name of the judgement.
    """
    found = {}
    for score, name in SCORES.items():
        scores, labels = _scores_and_labels(lines, score, good)
        if 0 < labels.sum() < len(labels):
            found[name] = roc_curve(scores, labels)
    return found


def best_of(lines: Iterable[Line], score: str, good: str) -> dict[int, Estimate]:
    """Returns how often the best of N samples is good, for N = 1, 2, 4 … and all.

    Estimated without bias from all subsets of the samples (`best_of_n`). The intervals are over
    questions; questions with fewer samples than the most common number are left out, and those with
    more count with all of their samples.

    Args:
      lines: all samples of all questions.
      score: the score that the best is chosen by.
      good: name of the judgement.
    """
    by_question: dict[str, list[Line]] = {}
    for line in lines:
        if line.get(score) is not None and line.get(good) is not None:
            by_question.setdefault(line["question_id"], []).append(line)
    if not by_question:
        return {}
    counts = [len(samples) for samples in by_question.values()]
    count = max(set(counts), key=counts.count)
    kept = [samples for samples in by_question.values() if len(samples) >= count]
    sizes = sorted({2**power for power in range(count.bit_length()) if 2**power <= count} | {count})
    of_question = [
        best_of_n(
            np.array([[line[score] for line in samples]], float),
            np.array([[line[good] for line in samples]], float),
            sizes,
            np.array([[line.get("quote_lacks_claim") is True for line in samples]]),
        )
        for samples in kept
    ]
    worth = np.clip(np.concatenate(of_question), 0.0, 1.0)
    return {size: estimate(worth[:, place].tolist()) for place, size in enumerate(sizes)}


def _scores_and_labels(
    lines: Sequence[Line], score: str, good: str
) -> tuple[np.ndarray, np.ndarray]:
    """The scores and labels of all answers, or none if some answer has no score."""
    known = [line for line in lines if line.get(good) is not None]
    if any(line.get(score) is None for line in known):
        known = []
    scores = np.array([line[score] for line in known], float)
    return scores, np.array([bool(line[good]) for line in known], bool)

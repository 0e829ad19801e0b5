"""Results of browsing policies: one episode, the best of n, and one policy against another.

Results are what launch/browse_questions.py wrote: a folder with `summary.json` and `scores.jsonl`.
Answers are judged by the truth, if questions have evidence, and by reward models. The best of n
episodes is chosen by the first reward model (WebGPT, section 5, appendix I).
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float
from scipy import special

from gophercite.evaluation import line_fields
from gophercite.evaluation.best_of_n import best_of_n
from gophercite.storage.json_fields import JsonFields, RecordError
from gophercite.storage.json_lines import read_json_lines, read_one
from gophercite.storage.paths import storage_path

CHOSEN_BY = "reward"
VALIDATION, TRUTH = "validation_reward", "supported"
JUDGES = {VALIDATION: "validation reward model", TRUTH: "truth: supported"}
_REWARDS = ("reward", VALIDATION)
_JUDGEMENTS = ("right", TRUTH)
_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean over questions with its 90 % interval, by resampling questions.

    If no interval is known, both ends equal the mean, and only the mean is printed.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """As `0.52 (0.41–0.63)`."""
        ends = f" ({self.low:.2f}–{self.high:.2f})" if self.low < self.high else ""
        return f"{self.mean:.2f}{ends}"

    @property
    def percent(self) -> str:
        """As `52.0 (41.0–63.0)`."""
        ends = f" ({100 * self.low:.1f}–{100 * self.high:.1f})" if self.low < self.high else ""
        return f"{100 * self.mean:.1f}{ends}"


@dataclasses.dataclass(frozen=True)
class BrowsedPolicy:
    """A policy's episodes, several per question.

    Attributes:
      name: the policy's name.
      summary: summary of the run that produced them.
      questions: the questions' ids.
      scores: arrays of [questions, episodes], by the name of the score; only scores that all
        episodes have.
    """

    name: str
    summary: dict[str, Any]
    questions: tuple[str, ...]
    scores: dict[str, Float[np.ndarray, "questions episodes"]]

    @property
    def episodes(self) -> int:
        """Number of episodes per question."""
        return next(iter(self.scores.values())).shape[1] if self.scores else 0

    @property
    def sizes(self) -> list[int]:
        """Values of n for the best of n: 1, 2, 4 … up to the episode count; only 1 if unscored."""
        most = self.episodes if CHOSEN_BY in self.scores else 1
        return [2**power for power in range(most.bit_length()) if 2**power <= most]

    def best_of(self, judged_by: str, sizes: Sequence[int]) -> Float[np.ndarray, "questions sizes"]:
        """Returns the judged score of the best of n episodes of each question (appendix I).

        Args:
          judged_by: a name in `scores`.
          sizes: the values of n; without rewards to choose by, only 1.

        Raises:
          ValueError: some n exceeds the number of episodes, or there are no rewards to choose by.
        """
        judged = self.scores[judged_by]
        if CHOSEN_BY not in self.scores and set(sizes) != {1}:
            raise ValueError(
                f"{self.name}: the episodes have no rewards, so the best can't be chosen"
            )
        return best_of_n(self.scores.get(CHOSEN_BY, judged), judged, sizes)


def read_policy(name: str, folder: epath.PathLike) -> BrowsedPolicy:
    """Reads the scores of a policy's episodes.

    Args:
      name: the policy's name.
      folder: what launch/browse_questions.py wrote, on a disk or in a bucket.

    Raises:
      FileNotFoundError: the folder has no results.
      StorageError: its bucket can't be used.
      ValueError: the summary or a line of scores is not valid, which names the file and the field;
        or questions have different numbers of episodes.
    """
    folder = storage_path(folder)
    summary = read_one(folder / "summary.json", _summary)
    path = folder / "scores.jsonl"
    rows: dict[str, list[dict[str, float | None]]] = {}
    for number, value in read_json_lines(path):
        try:
            question, line = _scores_of(value)
        except RecordError as error:
            raise RecordError(error.problem, error.field, path, number) from None
        rows.setdefault(question, []).append(line)
    sizes = {len(each) for each in rows.values()}
    if not rows:
        raise ValueError(f"{path}: holds no scores")
    if len(sizes) > 1:
        raise ValueError(f"{path}: questions have from {min(sizes)} to {max(sizes)} episodes")
    scores = {}
    for score in (*_REWARDS, *_JUDGEMENTS):
        if all(line[score] is not None for group in rows.values() for line in group):
            scores[score] = np.array(
                [[line[score] for line in group] for group in rows.values()], float
            )
    return BrowsedPolicy(name, summary, tuple(rows), scores)


def _summary(value: object) -> dict[str, Any]:
    """A run's summary, whose numbers the report computes with."""
    fields = JsonFields(value, None, Counter())
    for name in ("actions", "invalid", "operations", "parameters"):
        number = fields.optional_number(name)
        if number is None and name in ("actions", "invalid"):  # the others came later
            raise fields.error(name, "is missing: expected a number")
        if number is not None and number < 0:
            raise fields.error(name, f"expected a number from 0, got {number:g}")
    return fields.values


def _scores_of(value: object) -> tuple[str, dict[str, float | None]]:
    """The question of a line of scores, and its scores; true and false count as 1 and 0."""
    if isinstance(value, RecordError):
        raise value
    fields = JsonFields(value, None, Counter())
    scores = {name: line_fields.number(fields, name) for name in _REWARDS}
    scores |= {name: line_fields.share(fields, name) for name in _JUDGEMENTS}
    return fields.text("question_id", raw=True), scores


def resampled(by_question: Float[np.ndarray, " questions"]) -> Interval:
    """Returns a mean over questions with its 90 % interval."""
    draws = np.random.default_rng(0)
    picked = draws.integers(0, len(by_question), (_RESAMPLES, len(by_question)))
    low, high = np.quantile(by_question[picked].mean(axis=1), (0.05, 0.95))
    return Interval(float(by_question.mean()), float(low), float(high))


def preferred(
    policy: BrowsedPolicy, n: int, other: BrowsedPolicy, m: int, judged_by: str
) -> Interval | None:
    """Predicts how often the best of n of a policy is preferred over the best of m of another.

    By a reward model, this is the sigmoid of the difference of mean scores, which are Elo scores
    (section 5.2). By the truth, it is how often only the first is good, plus half of the ties. It
    covers the questions that both answered, with a 90 % interval over them.

    Args:
      policy: the policy whose preference is predicted.
      n: number of its episodes that the best is chosen from.
      other: the policy that it is compared with.
      m: number of the other's episodes that the best is chosen from.
      judged_by: `VALIDATION` or `TRUTH`.

    Returns:
      The share; None if either has no such scores, or they share no question.
    """
    shared = sorted({*policy.questions} & {*other.questions})
    if not shared or judged_by not in policy.scores or judged_by not in other.scores:
        return None
    columns = []
    for each, size in ((policy, n), (other, m)):
        places = {id: place for place, id in enumerate(each.questions)}
        judged = each.best_of(judged_by, [size])[:, 0]
        columns.append(judged[[places[id] for id in shared]])
    difference = resampled(columns[0] - columns[1])
    ends = (difference.mean, difference.low, difference.high)
    if judged_by == TRUTH:
        return Interval(*(0.5 + end / 2 for end in ends))
    return Interval(*(float(special.expit(end)) for end in ends))


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the points that no equally cheap or cheaper point surpasses, by cost (figure 8).

    Args:
      points: cost and worth of each point.
    """
    found: list[tuple[float, float]] = []
    for cost, worth in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or worth > found[-1][1]:
            found.append((cost, worth))
    return found


def effect_of_doubling(points: Sequence[tuple[Sequence[float], float]]) -> list[float | None]:
    """Returns how much the worth grows with each doubling of each amount (section 5.2).

    Fitted by least squares on the logarithms of all amounts together. None for an amount that does
    not vary; None for all if there are too few points to tell.

    Args:
      points: the amounts, all above 0, and the worth of each point.
    """
    amounts = np.log2(np.array([amounts for amounts, _ in points], float))
    worths = np.array([worth for _, worth in points])
    varies = np.ptp(amounts, axis=0) > 0
    columns = np.column_stack([np.ones(len(points)), amounts[:, varies]])
    if np.linalg.matrix_rank(columns) < columns.shape[1]:
        return [None] * amounts.shape[1]
    slopes = iter(np.linalg.lstsq(columns, worths, rcond=None)[0][1:].tolist())
    return [next(slopes) if each else None for each in varies]

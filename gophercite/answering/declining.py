"""Declining to answer below a threshold that comes with a guarantee (GopherCite, section 2.9).

A calibration holds labelled answers: each one's score, and whether it is good. For any wanted
quality it gives the threshold that keeps the promise (`gophercite.decoding.abstention`). The
promise covers similar questions, answered in the same way; a calibration records which way that is.
"""

import collections
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from gophercite.answering.answerer import Answerer
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.abstention import Promise, promise_quality
from gophercite.records.answers import Answer
from gophercite.storage.json_fields import JsonFields
from gophercite.storage.json_lines import read_one
from gophercite.text.counting import percent

By = Literal["score", "likelihood", "consensus"]
_NAMES = {"likelihood": "log-probability", "consensus": "consensus"}

# Settings that are not recorded: the number of answers drawn at a time changes no answer, and the
# length of answers is the sampling's.
_LEFT_OUT = ("max_num_seqs", "max_tokens")


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Labelled answers of one system.

    Attributes:
      model: the model that answered.
      reward_model: the reward model that chose; None where none chose.
      scored_by: what the answers' `score` is.
      by: what thresholds apply to: the answer's `score`, or its `likelihood` or `consensus`,
        whatever chose it.
      settings: how the questions were answered (JSON); None where that is not known.
      scores: value of `by` for each answer.
      good: whether each answer is good; in the paper, supported and plausible.
    """

    model: str
    reward_model: str | None
    scored_by: str
    by: By
    settings: Mapping[str, Any] | None
    scores: tuple[float, ...]
    good: tuple[bool, ...]

    def promise(self, quality: float, confidence: float = 0.95) -> Promise:
        """The threshold for a quality; arguments and errors are those of `promise_quality`."""
        return promise_quality(np.array(self.scores), np.array(self.good), quality, confidence)

    def require_same(self, answerer: Answerer, pages: int) -> None:
        """Refuses to promise anything about answers that are produced in another way.

        Args:
          answerer: the one that is going to answer.
          pages: number of pages it is given.

        Raises:
          ValueError: with what differs.
        """
        current = {
            "model": answerer.name,
            "reward model": answerer.reward_name,
            "score": answerer.scored_by,
        }
        recorded: dict[str, Any] = {
            "model": self.model,
            "reward model": self.reward_model,
            "score": self.scored_by,
        }
        if self.settings is not None:
            current |= answering_settings(answerer, pages)
            recorded |= self.settings
        for name in sorted(current.keys() | recorded.keys()):
            if current.get(name) != recorded.get(name):
                raise ValueError(
                    f"the calibration was made from answers with {name} = {recorded.get(name)!r}, "
                    f"not {current.get(name)!r}, so it promises nothing here; use the same "
                    "settings, or make a new calibration"
                )


def answering_settings(answerer: Answerer, pages: int) -> dict[str, Any]:
    """How an answerer answers, as JSON: its settings, its models' provenance, the number of pages.

    Leaves out the number of answers drawn at a time, which changes speed and memory, not the
    answers.
    """
    value = dataclasses.asdict(answerer.settings)
    for name in _LEFT_OUT:
        del value[name]
    value |= {"pages": pages, "provenance": answerer.provenance}
    settings: dict[str, Any] = json.loads(json.dumps(value))
    return settings


def settings_among(run: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `answering_settings` from the record of a run of many questions.

    Raises:
      ValueError: when a field is missing.
    """
    fields = (field.name for field in dataclasses.fields(AnsweringSettings))
    names = [*(name for name in fields if name not in _LEFT_OUT), "pages", "provenance"]
    missing = [name for name in names if name not in run]
    if missing:
        raise ValueError(f"does not say with which {', '.join(missing)} the answers were made")
    return {name: run[name] for name in names}


def calibrate(
    labelled: Iterable[tuple[Answer, bool]],
    by: By = "score",
    settings: Mapping[str, Any] | None = None,
) -> Calibration:
    """Makes a calibration of labelled answers.

    Args:
      labelled: answers that are not declined, each with whether it is good. Their questions must
        not have been used to train the model that scores.
      by: what thresholds apply to.
      settings: how the questions were answered, where that is known (`answering_settings`).

    Returns:
      The calibration.

    Raises:
      ValueError: there are no answers, they are not all of one system, or one has no such score.
    """
    systems: collections.Counter[tuple[str, str | None, str | None]] = collections.Counter()
    scores, labels = [], []
    for answer, good in labelled:
        systems[answer.model, answer.reward_model, answer.scored_by] += 1
        scores.append(score_of(answer, by))
        labels.append(good)
    if not scores:
        raise ValueError("no answer has a label")
    if len(systems) > 1:
        (first, _), (second, _) = systems.most_common(2)
        raise ValueError(f"the answers were made by different systems: {first} and {second}")
    ((model, reward_model, scored_by),) = systems
    if scored_by is None:
        raise ValueError("the answers do not say what their score is ('scored_by')")
    return Calibration(
        model, reward_model, scored_by, by, settings, tuple(scores), tuple(labels)
    )  # fmt: skip


def score_of(answer: Answer, by: By) -> float:
    """The value that a threshold is compared with.

    Raises:
      ValueError: the answer has no such score.
    """
    value: float | None = getattr(answer, by)
    if value is None:
        raise ValueError(f"the answer to {answer.question!r} has no {by}")
    return value


def decline(answer: Answer, promise: Promise, by: By) -> Answer:
    """Returns the answer if it is above the threshold; otherwise says why it is not given.

    Args:
      answer: from the system that the promise is about.
      promise: the threshold.
      by: what the threshold applies to.
    """
    if answer.declined:
        return answer
    if promise.threshold == -math.inf:
        return answer
    answer = dataclasses.replace(answer, threshold=promise.threshold)
    score = score_of(answer, by)
    if score > promise.threshold:
        return answer
    name = _NAMES.get(by, answer.scored_by)
    reason = (
        f"the best answer's {name}, {score:.4g}, is not above {promise.threshold:.4g}; above it, "
        f"{percent(promise.quality)} of the answers are good with confidence "
        f"{percent(promise.confidence)}"
    )
    return dataclasses.replace(
        answer, citations=(), text="", supported_and_plausible=None, reason=reason
    )


# --- JSON ---


def calibration_to_json(calibration: Calibration) -> dict[str, Any]:
    """Returns the JSON object of a calibration."""
    value = dataclasses.asdict(calibration)
    del value["scores"], value["good"]
    pairs = zip(calibration.scores, calibration.good, strict=True)
    return {**value, "answers": [{"score": score, "good": good} for score, good in pairs]}


def read_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Reads a file that holds a calibration.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when it holds something else, with the file and the field.
    """
    return read_one(path, _from_json)


def _from_json(value: object) -> Calibration:
    fields = JsonFields(value, _FIELDS, collections.Counter())
    by = fields.text("by")
    if by not in get_args(By):
        raise fields.error("by", f"must be one of {', '.join(get_args(By))}, got {by!r}")
    settings = fields.values.get("settings")
    if not isinstance(settings, dict | None):
        raise fields.error("settings", "must be an object or null")
    scores, good = [], []
    for answer in fields.objects("answers", ("score", "good"), required=True):
        score, label = answer.optional_number("score"), answer.flag("good")
        if score is None or label is None:
            raise answer.error("score" if score is None else "good", "is missing")
        scores.append(score)
        good.append(label)
    return Calibration(
        model=fields.text("model"),
        reward_model=fields.optional_text("reward_model"),
        scored_by=fields.text("scored_by"),
        by=by,  # type: ignore[arg-type]
        settings=settings,
        scores=tuple(scores),
        good=tuple(good),
    )


_FIELDS = {field.name for field in dataclasses.fields(Calibration)} - {"scores", "good"} | {
    "answers"
}

"""Declining to answer below a threshold that comes with a guarantee (GopherCite, section 2.9).

A calibration holds labelled answers: each one's score, and whether it is good. For any wanted
quality it gives the threshold that keeps the promise (`gophercite.decoding.abstention`). The
promise covers similar questions, answered in the same way; a calibration records which way that is.
It also tells of any answer how good those were that are about as sure. A model's folder may hold
one, `calibration.json`.
"""

import collections
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np
from etils import epath

from gophercite.answering.answerer import Answerer
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.abstention import Promise, promise_quality
from gophercite.model_folders.folder_contents import CALIBRATION
from gophercite.records.answers import Answer, TrackRecord
from gophercite.storage.json_fields import JsonFields
from gophercite.storage.json_lines import read_one
from gophercite.text.counting import percent

By = Literal["score", "likelihood", "consensus"]
_NAMES = {"likelihood": "log-probability", "consensus": "consensus"}

# Labelled answers that one is compared with: more would be less like it, fewer tell less.
_NEAREST = 40

# Settings that are not recorded: the number of answers drawn at a time changes no answer, and the
# length of answers is the sampling's.
_LEFT_OUT = ("max_num_seqs", "max_tokens")
_DIGESTS = ("parameters_sha256", "reward_model_sha256")


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
      questions: what the questions are about, for people; None where that is not said.
    """

    model: str
    reward_model: str | None
    scored_by: str
    by: By
    settings: Mapping[str, Any] | None
    scores: tuple[float, ...]
    good: tuple[bool, ...]
    questions: str | None = None

    def promise(self, quality: float, confidence: float = 0.95) -> Promise:
        """The threshold for a quality; arguments and errors are those of `promise_quality`."""
        return promise_quality(np.array(self.scores), np.array(self.good), quality, confidence)

    def track_record(self, score: float) -> TrackRecord:
        """How many of the labelled answers with the scores nearest to this one are good."""
        nearest = np.argsort(np.abs(np.array(self.scores) - score), kind="stable")[:_NEAREST]
        good = int(np.array(self.good)[nearest].sum())
        return TrackRecord(good, len(nearest), self.questions)

    def require_same(self, answerer: Answerer, pages: int) -> None:
        """Refuses to promise anything about answers that are produced in another way.

        Args:
          answerer: the one that is going to answer.
          pages: number of pages it is given.

        Raises:
          ValueError: with what differs.
        """
        if self.by == "consensus" and answerer.settings.samples == 1:
            raise ValueError(
                "the calibration is by consensus, and a single sample has no consensus: draw "
                "several samples"
            )
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
        for name in _DIGESTS:
            if not (name in current and name in recorded):  # of a model in memory, or not recorded
                current.pop(name, None)
                recorded.pop(name, None)
        for name in sorted(current.keys() | recorded.keys()):
            if current.get(name) != recorded.get(name):
                raise ValueError(
                    f"the calibration was made from answers with {name} = {recorded.get(name)!r}, "
                    f"not {current.get(name)!r}, so it promises nothing here; use the same "
                    "settings, or make a new calibration"
                )


def answering_settings(answerer: Answerer, pages: int) -> dict[str, Any]:
    """How an answerer answers, as JSON: its settings, its models' provenance and digests (of those
    that were read from folders), the number of pages.

    Leaves out the number of answers drawn at a time, which changes speed and memory, not the
    answers.
    """
    value = dataclasses.asdict(answerer.settings)
    for name in _LEFT_OUT:
        del value[name]
    value |= {"pages": pages, "provenance": answerer.provenance, **answerer.digests}
    settings: dict[str, Any] = json.loads(json.dumps(value))
    return settings


def settings_among(run: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `answering_settings` from the record of a run of many questions.

    Raises:
      ValueError: when a field is missing, other than a digest.
    """
    fields = (field.name for field in dataclasses.fields(AnsweringSettings))
    names = [*(name for name in fields if name not in _LEFT_OUT), "pages", "provenance"]
    missing = [name for name in names if name not in run]
    if missing:
        raise ValueError(f"does not say with which {', '.join(missing)} the answers were made")
    return {name: run[name] for name in (*names, *_DIGESTS) if name in run}


def calibrate(
    labelled: Iterable[tuple[Answer, bool]],
    by: By = "score",
    settings: Mapping[str, Any] | None = None,
    questions: str | None = None,
) -> Calibration:
    """Makes a calibration of labelled answers.

    Args:
      labelled: answers that are not declined, each with whether it is good. Their questions must
        not have been used to train the model that scores.
      by: what thresholds apply to.
      settings: how the questions were answered, where that is known (`answering_settings`).
      questions: what the questions are about, for people.

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
        model, reward_model, scored_by, by, settings, tuple(scores), tuple(labels), questions
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


def with_track_record(answer: Answer, calibration: Calibration) -> Answer:
    """The answer, with how good those are that are about as sure; a declined one as it is.

    Args:
      answer: from a system that the calibration is about.
      calibration: labelled answers.
    """
    if answer.declined:
        return answer
    record = calibration.track_record(score_of(answer, calibration.by))
    return dataclasses.replace(answer, track_record=record)


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
        answer,
        citations=(),
        text="",
        supported_and_plausible=None,
        track_record=None,
        reason=reason,
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


def own_calibration(folder: epath.PathLike, model: str) -> Calibration | None:
    """Reads the calibration that a model's folder holds; None if it holds none.

    Args:
      folder: a model folder, or a training run's folder.
      model: what the model is called here. The calibration may have been made elsewhere; that it is
        the same model, its provenance tells, and not its digest: parameters that adapters were
        merged into differ in rounding from machine to machine.

    Raises:
      RecordError: the file holds something else, with the file and the field.
    """
    path = epath.Path(folder) / CALIBRATION
    if not path.exists():
        return None
    found = read_calibration(path)
    settings = None if found.settings is None else dict(found.settings)
    if settings is not None:
        settings.pop("parameters_sha256", None)
    return dataclasses.replace(found, model=model, settings=settings)


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
        questions=fields.optional_text("questions"),
    )


_FIELDS = {field.name for field in dataclasses.fields(Calibration)} - {"scores", "good"} | {
    "answers"
}

"""Calibrations: files of them, what they refuse, and the answers that are not given."""

import dataclasses
import functools
import json
import math
import pathlib

import pytest

from gophercite.answering.answerer import Answerer
from gophercite.answering.declining import (
    Calibration,
    answering_settings,
    calibrate,
    calibration_to_json,
    decline,
    own_calibration,
    read_calibration,
    settings_among,
    with_track_record,
)
from gophercite.answering.loading import load_answerer
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.abstention import Promise, TooFewLabelsError
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.model_folders.description import model_digest
from gophercite.model_folders.folder import load_model
from gophercite.records.answers import (
    Answer,
    TrackRecord,
    answer_from_json,
    answer_to_json,
    cite,
)
from gophercite.storage.json_fields import RecordError

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874.")
CITATION = cite(Evidence("1874", "Ormsby", "built in 1874"), PAGE, 19)
ANSWER = Answer(
    "When?", "tiny", citations=(CITATION,), text=" %<…", score=0.5, scored_by="reward",
    likelihood=-2.0, reward_model="taste", supported_and_plausible=0.8,
)  # fmt: skip


def scored(score: float, **changes: object) -> Answer:
    return dataclasses.replace(ANSWER, score=score, likelihood=-score, **changes)  # type: ignore[arg-type]


def labelled() -> list[tuple[Answer, bool]]:
    """A hundred answers, of which those above a score of 30 are good."""
    return [(scored(float(number)), number > 30) for number in range(100)]


def promise(threshold: float) -> Promise:
    return Promise(threshold, 0.9, 0.95, 0.5, 1.0, 100)


@functools.cache
def answerer() -> Answerer:
    return Answerer(load_model(MODEL), AnsweringSettings(samples=4), "tiny")


def test_a_calibration_promises_by_score_likelihood_or_consensus() -> None:
    by_score = calibrate(labelled())
    assert (by_score.model, by_score.reward_model, by_score.scored_by) == (
        "tiny", "taste", "reward",
    )  # fmt: skip
    found = by_score.promise(0.9)
    assert 25 <= found.threshold <= 35
    assert found.coverage == pytest.approx((99 - found.threshold) / 100)
    by_likelihood = calibrate(labelled(), "likelihood")
    assert by_likelihood.scores == tuple(-score for score in by_score.scores)
    with pytest.raises(TooFewLabelsError):  # likelihood is the wrong way round here
        by_likelihood.promise(0.9)
    agreed = [
        (dataclasses.replace(answer, consensus=float(number % 10)), good)
        for number, (answer, good) in enumerate(labelled())
    ]
    assert calibrate(agreed, "consensus").scores == tuple(n % 10 for n in range(100))
    with pytest.raises(ValueError, match="has no consensus"):
        calibrate(labelled(), "consensus")


def test_a_file_keeps_a_calibration(tmp_path: pathlib.Path) -> None:
    settings = answering_settings(answerer(), pages=5)
    calibration = calibrate(labelled(), "likelihood", settings, "lighthouses")
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(calibration_to_json(calibration)))
    assert read_calibration(path) == calibration
    # The model's own, wherever its folder has come to lie.
    assert own_calibration(tmp_path, "here") == dataclasses.replace(calibration, model="here")
    assert own_calibration(tmp_path / "elsewhere", "here") is None


def test_an_answer_is_compared_with_those_that_are_about_as_sure() -> None:
    """Of a hundred answers those with a score above 30 are good."""
    calibration = calibrate(labelled(), questions="lighthouses")
    for score, good in ((30.4, 20), (-7.0, 9), (1e9, 40), (55.0, 40)):
        record = TrackRecord(good, 40, "lighthouses")
        assert calibration.track_record(score) == record
        found = with_track_record(scored(score), calibration)
        assert found == scored(score, track_record=record)
        assert answer_from_json(json.loads(json.dumps(answer_to_json(found)))) == found
    assert calibrate(labelled()[29:34]).track_record(0.0) == TrackRecord(3, 5)
    nothing = Answer("When?", "tiny", reason="no page")
    assert with_track_record(nothing, calibration) == nothing
    assert decline(found, promise(60.0), "score").track_record is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"by": "taste"}, "by"),
        ({"answers": None}, "answers"),
        ({"answers": [{"score": "high", "good": True}]}, "answers[0].score"),
        ({"answers": [{"score": 1, "good": None}]}, "answers[0].good"),
        ({"settings": 3}, "settings"),
        ({"scored_by": None}, "scored_by"),
        ({"questions": 3}, "questions"),
    ],
)
def test_what_is_no_calibration_is_refused(
    tmp_path: pathlib.Path, change: dict[str, object], field: str
) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(calibration_to_json(calibrate(labelled())) | change))
    with pytest.raises(RecordError) as raised:
        read_calibration(path)
    assert (raised.value.path, raised.value.field) == (path, field)


def test_answers_of_several_systems_are_no_calibration() -> None:
    with pytest.raises(ValueError, match="different systems"):
        calibrate([*labelled(), (scored(1.0, model="other"), True)])
    with pytest.raises(ValueError, match="no answer has a label"):
        calibrate([])
    with pytest.raises(ValueError, match="has no score"):
        calibrate([(dataclasses.replace(ANSWER, score=None), True)])


def test_it_is_for_the_same_way_of_answering_alone() -> None:
    here = Calibration(
        "tiny", None, answerer().scored_by, "score", answering_settings(answerer(), 5), (), ()
    )
    here.require_same(answerer(), pages=5)
    sooner = dataclasses.replace(answerer().settings, max_num_seqs=2)
    here.require_same(Answerer(load_model(MODEL), sooner, "tiny"), pages=5)
    settings = dict(here.settings or {})
    for change, said in (
        ({"model": "other"}, "model = 'other', not 'tiny'"),
        ({"reward_model": "taste"}, "reward model = 'taste', not None"),
        ({"scored_by": "reward"}, "score = 'reward'"),
        ({"settings": settings | {"samples": 16}}, "samples = 16, not 4"),
        ({"settings": settings | {"pages": 3}}, "pages = 3, not 5"),
        ({"settings": settings | {"later": 1}}, "later = 1, not None"),
    ):
        with pytest.raises(ValueError, match=said):
            dataclasses.replace(here, **change).require_same(answerer(), pages=5)  # type: ignore[arg-type]
    # Who does not know how its answers came about compares the models alone.
    unknown = dataclasses.replace(here, settings=None)
    unknown.require_same(answerer(), pages=7)
    alone = dataclasses.replace(answerer().settings, samples=1, choose="mean")
    by_consensus = dataclasses.replace(
        unknown, by="consensus", scored_by="mean log-probability of a token"
    )
    with pytest.raises(ValueError, match="a single sample has no consensus"):
        by_consensus.require_same(Answerer(load_model(MODEL), alone, "tiny"), pages=7)


def test_it_is_for_the_same_parameters_alone() -> None:
    """Provenance can't tell a run from the same run with another seed."""
    loaded = load_answerer(MODEL)
    settings = answering_settings(loaded, 5)
    here = Calibration(loaded.name, None, loaded.scored_by, "score", settings, (), ())
    here.require_same(loaded, pages=5)
    name = "parameters_sha256"
    assert settings[name] == model_digest(MODEL)
    other = dataclasses.replace(here, settings=settings | {name: "0" * 64})
    with pytest.raises(ValueError, match=f"{name} = '0000"):
        other.require_same(loaded, pages=5)
    # Neither calibrations of earlier versions nor models in memory tell it.
    earlier = {key: value for key, value in settings.items() if not key.endswith("sha256")}
    dataclasses.replace(here, settings=earlier).require_same(loaded, pages=5)
    other.require_same(Answerer(load_model(MODEL), None, loaded.name), pages=5)


def test_the_one_in_a_model_s_folder_is_of_that_model(tmp_path: pathlib.Path) -> None:
    """Adapters are merged on each machine, which rounds in its own way."""
    loaded = load_answerer(MODEL)
    settings = answering_settings(loaded, 5) | {"parameters_sha256": "0" * 64}
    made = Calibration("elsewhere", None, loaded.scored_by, "score", settings, (), ())
    (tmp_path / "calibration.json").write_text(json.dumps(calibration_to_json(made)))
    found = own_calibration(tmp_path, loaded.name)
    assert found is not None
    found.require_same(loaded, pages=5)


def test_settings_are_found_among_those_of_a_run() -> None:
    settings = answering_settings(answerer(), 5)
    assert settings_among({"seed": 0, **settings}) == settings
    digests = {"parameters_sha256": "0" * 64, "reward_model_sha256": None}
    assert settings_among({"index_sha256": None, **digests, **settings}) == settings | digests
    with pytest.raises(ValueError, match="which samples, pages"):
        settings_among({name: settings[name] for name in settings.keys() - {"samples", "pages"}})


def test_answers_at_or_below_the_threshold_are_not_given() -> None:
    given = decline(ANSWER, promise(0.4), "score")
    assert given == dataclasses.replace(ANSWER, threshold=0.4)
    declined = decline(ANSWER, promise(0.5), "score")
    assert (declined.citations, declined.text, declined.score) == ((), "", 0.5)
    assert declined.reason == (
        "the best answer's reward, 0.5, is not above 0.5; above it, 90% of the answers are "
        "good with confidence 95%"
    )
    by_likelihood = decline(ANSWER, promise(0.4), "likelihood")
    assert "log-probability, -2, is not above 0.4" in (by_likelihood.reason or "")
    agreed = dataclasses.replace(ANSWER, consensus=0.4)
    by_consensus = decline(agreed, promise(0.4), "consensus")
    assert "answer's consensus, 0.4, is not above 0.4" in (by_consensus.reason or "")
    assert not decline(agreed, promise(0.3), "consensus").declined


def test_without_a_threshold_all_are_given_and_what_is_declined_stays_so() -> None:
    assert decline(ANSWER, promise(-math.inf), "score") == ANSWER
    nothing = Answer("When?", "tiny", reason="no page")
    assert decline(nothing, promise(0.4), "score") == nothing

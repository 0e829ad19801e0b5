"""The server is killed while raters vote: no vote that was answered is lost, none counts twice."""

import pathlib

import sqlalchemy as sa

from benchmarks.rating_load import Load, faults, make_study, run
from gophercite.ratings.counting import Rules, counted_votes
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.schema import ratings

RATERS, ITEMS, WANTED, KILLS = 6, 20, 3, 2


def test_kills_lose_no_vote(tmp_path: pathlib.Path) -> None:
    study = make_study(tmp_path / "study", ITEMS, WANTED)
    load = run(study, RATERS, seconds=120, kills=KILLS, votes_between=15)
    assert load.kills == KILLS
    assert faults(study, load) == []
    assert len(load.acknowledged) == ITEMS * WANTED, "every item has just the raters it needs"
    with study.store.reading() as connection:
        experiment = experiment_named(connection, "load")
        assert len(counted_votes(connection, experiment, Rules())) == ITEMS * WANTED
    study.store.close()


def test_what_would_be_a_fault_is_seen(tmp_path: pathlib.Path) -> None:
    study = make_study(tmp_path / "study", 1, 1)
    assert faults(study, Load({("Question 0?", "rater 0")})) == ["lost: ('Question 0?', 'rater 0')"]
    with study.store.writing() as connection:
        connection.execute(sa.text("INSERT INTO raters VALUES (1, 'rater 0', 1, 0, 0)"))
        for revision in (0, 1):
            row = {"experiment_id": 1, "item_id": 1, "rater_id": 1, "values": {}}
            row |= {"revision": revision, "seconds": 1.0, "created_at": 1.0}
            connection.execute(ratings.insert(), row)
    found = faults(study, Load())
    assert "twice: ('Question 0?', 'rater 0')" in found
    assert "load of 1: 0, votes 1" in found
    study.store.close()

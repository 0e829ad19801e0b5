"""A skipped item stays skipped, whatever the page that was left still sends."""

import pathlib

import sqlalchemy as sa

from gophercite.ratings import assignment
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.schema import items
from tests.ratings.studies import Clock, bare_experiment, bare_items, sqlite


def test_a_late_draft_does_not_take_a_skipped_item_again(tmp_path: pathlib.Path) -> None:
    store = sqlite(tmp_path / "s", Clock())
    experiment = bare_experiment(store, raters=1)
    bare_items(store, experiment, 2)
    ada = add_rater(store, "ada", "super").id
    bob = add_rater(store, "bob", "super").id
    with store.writing() as connection:
        now = store.now()
        first = assignment.next_item(connection, now, experiment, ada)
        assert first is not None
        assignment.skip(connection, now, first.item_id, ada)
        assert not assignment.renew(connection, now, experiment, first.item_id, ada)
        load = sa.select(items.c.load).where(items.c.id == first.item_id)
        assert connection.execute(load).scalar_one() == 0
        second = assignment.next_item(connection, now, experiment, ada)
        assert second is not None
        assert second.item_id != first.item_id
        others = assignment.next_item(connection, now, experiment, bob)
        assert others is not None
        assert others.item_id == first.item_id
        # A form that is sent all the same is a vote, as ever.
        assignment.vote(connection, now, experiment, first.item_id, ada, {"preferred": "0"}, now)
        assert assignment.renew(connection, now, experiment, first.item_id, ada)
    store.close()

"""A rater's progress in an experiment, as their pages show it."""

import typing
from typing import Any

import sqlalchemy as sa

from gophercite.ratings import assignment, demonstrations
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.forms import DEMONSTRATION
from gophercite.ratings.schema import items, leases, ratings

_COUNTED = 100  # remaining items are counted up to this number only, to save time


class Progress(typing.NamedTuple):
    """A rater's progress.

    Attributes:
      done: number of items that they have rated, including gold.
      left: number of items that they can still get, including gold; a number above 100 only means
        "more than 100".
    """

    done: int
    left: int

    def __str__(self) -> str:
        remaining = f"more than {_COUNTED}" if self.left > _COUNTED else str(self.left)
        return f"{self.done} rated, {remaining} to go"


def progress(connection: sa.Connection, experiment: Experiment, rater_id: int) -> Progress:
    """Returns a rater's progress; leases that have expired count until `assignment.expire`."""
    mine = ratings.c.experiment_id == experiment.id, ratings.c.rater_id == rater_id
    rated = sa.select(sa.func.count(sa.distinct(ratings.c.item_id))).where(*mine)
    done = connection.execute(rated).scalar_one()
    open_ = leases.c.rater_id == rater_id, leases.c.state == "open"
    held = sa.select(sa.func.count(leases.c.id)).where(
        leases.c.experiment_id == experiment.id, *open_
    )
    begun = connection.execute(held).scalar_one()
    if not begun and experiment.interface == DEMONSTRATION:
        # They can finish it even if somebody else has been given the question in the meantime.
        begun = int(demonstrations.unfinished(connection, experiment.id, rater_id) is not None)
    free = _new_to(connection, experiment, rater_id, Role.ITEM)
    gold = _new_to(connection, experiment, rater_id, Role.GOLD)
    every = experiment.settings.gold_every
    left = begun
    while left <= _COUNTED:  # deals as `assignment.next_item` does
        if gold and every and (done + left) % every == every - 1:
            gold -= 1
        elif free:
            free -= 1
        else:
            break
        left += 1
    return Progress(done, left)


def last_vote(
    connection: sa.Connection, experiment: Experiment, rater_id: int, item_id: int | None = None
) -> sa.Row[Any] | None:
    """Returns a rater's last vote, a row of `ratings`: on one item, or on any; None without one."""
    mine = ratings.c.experiment_id == experiment.id, ratings.c.rater_id == rater_id
    query = sa.select(ratings).where(*mine).order_by(ratings.c.id.desc()).limit(1)
    if item_id is not None:
        query = query.where(ratings.c.item_id == item_id)
    return connection.execute(query).first()


def _new_to(connection: sa.Connection, experiment: Experiment, rater_id: int, role: Role) -> int:
    """Number of items that a rater has neither rated, begun nor skipped, and that need raters."""
    rated = sa.exists().where(ratings.c.item_id == items.c.id, ratings.c.rater_id == rater_id)
    had = sa.exists().where(leases.c.item_id == items.c.id, leases.c.rater_id == rater_id)
    found = (
        sa.select(items.c.id)
        .where(items.c.experiment_id == experiment.id, items.c.role == role.value)
        .where(assignment.may_need_more(experiment) if role is Role.ITEM else sa.true())
        .where(items.c.load < items.c.wanted, ~rated, ~had)
        .limit(_COUNTED + 1)
        .subquery()
    )
    return connection.execute(sa.select(sa.func.count()).select_from(found)).scalar_one()

"""Assigns items to raters and stores their votes: least-rated items first, leases that expire.

An item's `load` is the number of raters in good standing who have rated it, plus the number of
raters it is leased to. It is handed out while its load is below the number of raters it needs, so
that no more raters than needed work on it. A rater who sends a form after the lease has expired is
never turned away: the vote is stored. Whether it counts is decided at export, where only the first
votes count (`counting.py`).

All functions run in the caller's transaction (`Store.writing`).
"""

import enum
import typing
from typing import Any

import sqlalchemy as sa

from gophercite.ratings.experiments import Experiment
from gophercite.ratings.schema import drafts, exclusions, items, leases, ratings
from gophercite.ratings.store import note


class Role(enum.StrEnum):
    """What an item is for."""

    ITEM = "item"  # to be rated by as many raters as it needs
    GOLD = "gold"  # to be rated by everybody; the right labels are known
    CHECK = "check"  # an attention check: the right labels are shown afterwards
    EXAMPLE = "example"  # shown with the researchers' labels


class Lease(typing.NamedTuple):
    """An item that a rater is working on."""

    item_id: int
    given_at: float
    expires_at: float


class Outcome(enum.Enum):
    """What became of a vote."""

    NEW = "new"
    SAME = "same"  # the same vote was sent before: nothing was added
    REVISED = "revised"  # it supersedes the rater's earlier vote


def next_item(
    connection: sa.Connection, now: float, experiment: Experiment, rater_id: int
) -> Lease | None:
    """Returns the item that a rater is working on, or leases the next one.

    Returns:
      The lease; None if nothing is left for this rater, or if their ratings don't count.
    """
    expire(connection, now, experiment.id)
    mine = leases.c.rater_id == rater_id, leases.c.experiment_id == experiment.id
    query = sa.select(leases).where(*mine, leases.c.state == "open")
    if (row := connection.execute(query).first()) is not None:
        return Lease(row.item_id, row.given_at, row.expires_at)
    if is_excluded(connection, rater_id, experiment.id):
        return None
    item_id = _next(connection, experiment, rater_id)
    if item_id is None:
        return None
    expires_at = now + 60 * experiment.settings.lease_minutes
    _open(connection, experiment.id, item_id, rater_id, now, expires_at)
    return Lease(item_id, now, expires_at)


def renew(
    connection: sa.Connection, now: float, experiment: Experiment, item_id: int, rater_id: int
) -> bool:
    """Extends the lease of a rater who is still active.

    An expired lease is granted again as long as the item needs raters, but not if the rater has
    skipped the item.

    Returns:
      Whether the rater can still rate the item: False if others have taken it, the rater has
      skipped it, or the rater is excluded.
    """
    expires_at = now + 60 * experiment.settings.lease_minutes
    row = _lease(connection, item_id, rater_id)
    if row is not None and row.state == "open":
        change = leases.update().where(leases.c.id == row.id)
        connection.execute(change, {"expires_at": max(expires_at, row.expires_at)})
        return True
    if row is not None and row.state == "skipped":  # a late draft from a page that was already left
        return False
    if _standing_vote(connection, item_id, rater_id) is not None:
        return True
    item = connection.execute(sa.select(items).where(items.c.id == item_id)).one()
    if item.load >= item.wanted or is_excluded(connection, rater_id, experiment.id):
        return False
    _open(connection, experiment.id, item_id, rater_id, now, expires_at)
    return True


def skip(connection: sa.Connection, now: float, item_id: int, rater_id: int) -> None:
    """Gives an item back: this rater does not get it again, but others may."""
    row = _lease(connection, item_id, rater_id)
    if row is None or row.state != "open":
        return
    connection.execute(leases.update().where(leases.c.id == row.id), {"state": "skipped"})
    _add_load(connection, [item_id], -1)
    note(connection, now, f"rater {rater_id}", "skipped", {"item": item_id})


def vote(
    connection: sa.Connection,
    now: float,
    experiment: Experiment,
    item_id: int,
    rater_id: int,
    values: dict[str, Any],
    given_at: float,
) -> Outcome:
    """Stores a rater's vote; a second vote on the same item supersedes the first.

    Args:
      connection: a transaction that may write.
      now: the current time, in seconds since 1970.
      experiment: the experiment.
      item_id: the item that is rated.
      rater_id: the rater.
      values: the form's values, in the answers' own order.
      given_at: when the rater was first shown the item, in seconds since 1970.
    """
    written = drafts.c.item_id == item_id, drafts.c.rater_id == rater_id
    connection.execute(drafts.delete().where(*written))
    standing = _standing_vote(connection, item_id, rater_id)
    if standing is not None and standing.values == values:
        return Outcome.SAME
    lease = _lease(connection, item_id, rater_id)
    if lease is not None:
        connection.execute(leases.delete().where(leases.c.id == lease.id))
    held = lease is not None and lease.state == "open"  # then it is already counted in the load
    counts = standing is None and not is_excluded(connection, rater_id, experiment.id)
    _add_load(connection, [item_id], counts - held)
    row = {
        "experiment_id": experiment.id,
        "item_id": item_id,
        "rater_id": rater_id,
        "revision": 0 if standing is None else standing.revision + 1,
        "values": values,
        "seconds": max(0.0, now - given_at),
        "created_at": now,
    }
    connection.execute(ratings.insert(), row)
    return Outcome.NEW if standing is None else Outcome.REVISED


def expire(connection: sa.Connection, now: float, experiment_id: int) -> None:
    """Makes items available again whose leases have expired."""
    over = (
        leases.c.experiment_id == experiment_id,
        leases.c.state == "open",
        leases.c.expires_at <= now,
    )
    rows = connection.execute(sa.select(leases.c.id, leases.c.item_id).where(*over)).all()
    if rows:
        connection.execute(leases.delete().where(leases.c.id.in_([row.id for row in rows])))
        _add_load(connection, [row.item_id for row in rows], -1)


def exclude(
    connection: sa.Connection,
    now: float,
    rater_id: int,
    experiment_id: int | None,
    reason: str,
    actor: str,
) -> None:
    """Excludes a rater's ratings, in one experiment or in all; their items need raters again."""
    row = {"rater_id": rater_id, "experiment_id": experiment_id, "reason": reason}
    connection.execute(exclusions.insert(), row | {"created_at": now})
    theirs = leases.c.rater_id == rater_id
    if experiment_id is not None:
        theirs &= leases.c.experiment_id == experiment_id
    connection.execute(leases.delete().where(theirs, leases.c.state == "open"))
    recount(connection)
    note(connection, now, actor, "excluded", row)


def readmit(
    connection: sa.Connection, now: float, rater_id: int, experiment_id: int | None, actor: str
) -> int:
    """Lifts a rater's exclusions from an experiment, or from all; returns how many were lifted."""
    there = exclusions.c.rater_id == rater_id, exclusions.c.lifted_at.is_(None)
    where = exclusions.c.experiment_id == experiment_id  # IS NULL for None
    lifted = connection.execute(exclusions.update().where(*there, where), {"lifted_at": now})
    recount(connection)
    said = {"rater": rater_id, "experiment": experiment_id, "exclusions": lifted.rowcount}
    note(connection, now, actor, "readmitted", said)
    return lifted.rowcount


def is_excluded(connection: sa.Connection, rater_id: int, experiment_id: int) -> bool:
    """Whether a rater's ratings in an experiment don't count."""
    query = sa.select(exclusions.c.id).where(
        _in_force(exclusions.c.rater_id == rater_id, experiment_id)
    )
    return connection.execute(query.limit(1)).first() is not None


def excluded_from(connection: sa.Connection, rater_id: int) -> set[int | None]:
    """Returns the experiments that a rater is excluded from, by id; None stands for all."""
    query = sa.select(exclusions.c.experiment_id).where(
        exclusions.c.rater_id == rater_id, exclusions.c.lifted_at.is_(None)
    )
    return set(connection.execute(query).scalars())


def may_need_more(experiment: Experiment) -> sa.ColumnElement[bool]:
    """A condition that excludes fully rated items by the index alone.

    No item except gold needs more raters than the experiment's settings say.
    """
    return items.c.load < experiment.settings.raters


def recount(connection: sa.Connection) -> None:
    """Recomputes the load of every item."""
    excluded = sa.exists().where(
        _in_force(exclusions.c.rater_id == ratings.c.rater_id, items.c.experiment_id)
    )
    rated = (
        sa.select(sa.func.count(sa.distinct(ratings.c.rater_id)))
        .where(ratings.c.item_id == items.c.id, ~excluded)
        .scalar_subquery()
    )
    leased = (
        sa.select(sa.func.count(leases.c.id))
        .where(leases.c.item_id == items.c.id, leases.c.state == "open")
        .scalar_subquery()
    )
    connection.execute(items.update().values(load=rated + leased))


def _in_force(whose: sa.ColumnElement[bool], experiment_id: Any) -> sa.ColumnElement[bool]:
    everywhere = exclusions.c.experiment_id.is_(None)
    here = sa.or_(everywhere, exclusions.c.experiment_id == experiment_id)
    return sa.and_(whose, here, exclusions.c.lifted_at.is_(None))


def _next(connection: sa.Connection, experiment: Experiment, rater_id: int) -> int | None:
    """The least-rated item that is new to this rater; a gold item when one is due."""
    rated = sa.exists().where(ratings.c.item_id == items.c.id, ratings.c.rater_id == rater_id)
    had = sa.exists().where(leases.c.item_id == items.c.id, leases.c.rater_id == rater_id)

    def least_rated(role: Role) -> int | None:
        query = (
            sa.select(items.c.id)
            .where(items.c.experiment_id == experiment.id, items.c.role == role.value)
            .where(may_need_more(experiment) if role is Role.ITEM else sa.true())
            .where(items.c.load < items.c.wanted, ~rated, ~had)
            .order_by(items.c.load, items.c.position)  # in the order of the index
            .limit(1)
        )
        if role is Role.GOLD:  # everybody gets all of them, in their own order
            query = query.order_by(None).order_by(items.c.position, items.c.id)
        return connection.execute(query).scalar()

    every = experiment.settings.gold_every
    if every:
        mine = ratings.c.experiment_id == experiment.id, ratings.c.rater_id == rater_id
        query = sa.select(sa.func.count(sa.distinct(ratings.c.item_id))).where(*mine)
        done = connection.execute(query).scalar_one()
        if done % every == every - 1 and (gold := least_rated(Role.GOLD)) is not None:
            return gold
    return least_rated(Role.ITEM)


def _standing_vote(connection: sa.Connection, item_id: int, rater_id: int) -> sa.Row[Any] | None:
    mine = ratings.c.item_id == item_id, ratings.c.rater_id == rater_id
    query = sa.select(ratings).where(*mine).order_by(ratings.c.revision.desc()).limit(1)
    return connection.execute(query).first()


def _lease(connection: sa.Connection, item_id: int, rater_id: int) -> sa.Row[Any] | None:
    mine = leases.c.item_id == item_id, leases.c.rater_id == rater_id
    return connection.execute(sa.select(leases).where(*mine)).one_or_none()


def _open(
    connection: sa.Connection,
    experiment_id: int,
    item_id: int,
    rater_id: int,
    now: float,
    expires_at: float,
) -> None:
    """Leases an item, and replaces this rater's closed lease of it, if any."""
    mine = leases.c.item_id == item_id, leases.c.rater_id == rater_id
    connection.execute(leases.delete().where(*mine))
    row = {
        "experiment_id": experiment_id,
        "item_id": item_id,
        "rater_id": rater_id,
        "state": "open",
        "given_at": now,
        "expires_at": expires_at,
    }
    connection.execute(leases.insert(), row)
    _add_load(connection, [item_id], 1)


def _add_load(connection: sa.Connection, ids: list[int], change: int) -> None:
    for id in ids if change else ():
        values = {"load": items.c.load + change}
        connection.execute(items.update().where(items.c.id == id).values(values))

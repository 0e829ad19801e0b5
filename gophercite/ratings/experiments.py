"""Experiments and their settings; pools and the raters in them."""

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gophercite.ratings import schema
from gophercite.ratings.store import Store, StudyError, note
from gophercite.storage.json_fields import nearest

SUPER, WIDE, RESEARCHERS = "super", "wide", "researchers"
LONGEST_NAME = 100  # maximum number of characters in the name of a rater, pool or experiment


@dataclasses.dataclass(frozen=True)
class Settings:
    """How an experiment is run; the defaults are the papers' where they give them.

    See GopherCite, section C.1 and table 8.

    Attributes:
      raters: number of distinct raters per item: 3 from the super pool, 6 from the wide one.
      lease_minutes: how long an item is reserved for an inactive rater.
      comment_words: minimum number of words in a comment; 0 makes comments optional.
      minimum_seconds: a vote is accepted only when the item has been shown for this long.
      checks_right: the share of the attention checks that must be right.
      check_tries: how often a rater may take the attention checks.
      gold_every: one in this many of a rater's items is a gold item; 0 for none.
      parts_required: the probability that all parts of WebGPT's comparison must be filled in.
      later_variant: use WebGPT's later comparison: without flags, and with two more ratings that
        are always required.
      seed: seed for the order of items and of answers, templates, and required parts.
    """

    raters: int = 3
    lease_minutes: float = 30.0
    comment_words: int = 7
    minimum_seconds: float = 3.0
    checks_right: float = 0.75
    check_tries: int = 1
    gold_every: int = 0
    parts_required: float = 0.1
    later_variant: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), type(field.default)
            numbers = (int, float) if kind is float else kind
            if not isinstance(value, numbers) or isinstance(value, bool) != (kind is bool):
                raise StudyError(f"{field.name} = {value!r}: must be {_KINDS[kind]}")
            if isinstance(value, float) and not math.isfinite(value):
                raise StudyError(f"{field.name} = {value!r}: must be a finite number")
        for name, least in (("raters", 1), ("check_tries", 1), ("lease_minutes", 0.01)):
            if getattr(self, name) < least:
                raise StudyError(f"{name} = {getattr(self, name)}: must be at least {least}")
        for name in ("comment_words", "minimum_seconds", "gold_every", "seed"):
            if getattr(self, name) < 0:
                raise StudyError(f"{name} = {getattr(self, name)}: must be 0 or more")
        for name in ("checks_right", "parts_required"):
            if not 0 <= getattr(self, name) <= 1:
                raise StudyError(f"{name} = {getattr(self, name)}: must be from 0 to 1")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """Returns settings from names and values; missing names get their defaults.

        Raises:
          StudyError: a name is unknown, or a value is invalid.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near!r}?" if near else f"the settings are {', '.join(known)}"
                raise StudyError(f"the setting {name!r} is unknown; {hint}")
        return cls(**values)


_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


class Experiment(typing.NamedTuple):
    """A row of `experiments`."""

    id: int
    name: str
    interface: str
    pool_id: int
    pool: str
    settings: Settings


class Rater(typing.NamedTuple):
    """A row of `raters`."""

    id: int
    name: str
    pool_id: int
    pool: str
    link_version: int


def create_experiment(
    store: Store, name: str, interface: str, pool: str, settings: Settings, actor: str = "command"
) -> Experiment:
    """Creates an experiment, and its pool if it does not exist.

    Raises:
      StudyError: the name is taken or invalid.
    """
    check_name(name, "an experiment")
    with store.writing() as connection:
        if _row(connection, schema.experiments, name) is not None:
            raise StudyError(f"an experiment named {name!r} already exists")
        pool_id = _pool(connection, pool)
        values = {
            "name": name,
            "interface": interface,
            "pool_id": pool_id,
            "settings": dataclasses.asdict(settings),
            "created_at": store.now(),
        }
        connection.execute(schema.experiments.insert(), values)
        said = {"experiment": name, "interface": interface, "pool": pool}
        note(connection, store.now(), actor, "experiment-made", said)
        return experiment_named(connection, name)


def experiments(connection: sa.Connection) -> list[Experiment]:
    """Returns all experiments, the oldest first."""
    table, pool = schema.experiments, schema.pools
    query = sa.select(table, pool.c.name.label("pool")).join(pool).order_by(table.c.id)
    return [
        Experiment(
            row.id, row.name, row.interface, row.pool_id, row.pool, Settings.of(row.settings)
        )
        for row in connection.execute(query)
    ]


def experiment_named(connection: sa.Connection, name: str) -> Experiment:
    """Returns an experiment by name.

    Raises:
      StudyError: there is none; the message lists the existing names.
    """
    known = experiments(connection)
    for experiment in known:
        if experiment.name == name:
            return experiment
    names = ", ".join(repr(each.name) for each in known) or "none"
    raise StudyError(f"there is no experiment {name!r}; the study has {names}")


def add_rater(
    store: Store, name: str, pool: str, actor: str = "command", *, new_link: bool = False
) -> Rater:
    """Creates a rater, or returns the existing one of that name.

    Args:
      store: the study's store.
      name: shown only to the study's owner; it is in no export.
      pool: the rater's pool; each rater belongs to only one.
      actor: who does this, for the audit log.
      new_link: invalidate the rater's earlier links.

    Raises:
      StudyError: the rater belongs to another pool, or the name is invalid.
    """
    check_name(name, "a rater")
    with store.writing() as connection:
        pool_id = _pool(connection, pool)
        row = _row(connection, schema.raters, name)
        if row is None:
            values = {"name": name, "pool_id": pool_id, "created_at": store.now()}
            connection.execute(schema.raters.insert(), values)
            row = _row(connection, schema.raters, name)
            assert row is not None
            note(connection, store.now(), actor, "rater-added", {"rater": row.id, "pool": pool})
        elif row.pool_id != pool_id:
            there = rater_of(connection, row.id)
            raise StudyError(f"rater {name!r} belongs to the pool {there.pool!r}, not to {pool!r}")
        elif new_link:
            change = schema.raters.c.id == row.id
            version = {"link_version": row.link_version + 1}
            connection.execute(schema.raters.update().where(change), version)
            note(connection, store.now(), actor, "links-void", {"rater": row.id})
        return rater_of(connection, row.id)


def rater_of(connection: sa.Connection, id: int) -> Rater:
    """Returns a rater.

    Raises:
      StudyError: there is no rater with that id.
    """
    table, pool = schema.raters, schema.pools
    query = sa.select(table, pool.c.name.label("pool")).join(pool).where(table.c.id == id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise StudyError(f"there is no rater {id}")
    return Rater(row.id, row.name, row.pool_id, row.pool, row.link_version)


def rater_named(connection: sa.Connection, name: str) -> Rater:
    """Returns a rater.

    Raises:
      StudyError: there is no rater of that name.
    """
    row = _row(connection, schema.raters, name)
    if row is None:
        raise StudyError(f"there is no rater {name!r}")
    return rater_of(connection, row.id)


def move_rater(
    connection: sa.Connection, now: float, rater_id: int, pool: str, actor: str = "command"
) -> None:
    """Moves a rater to another pool; their ratings stay in the experiments."""
    change = schema.raters.c.id == rater_id
    values = {"pool_id": _pool(connection, pool)}
    connection.execute(schema.raters.update().where(change), values)
    note(connection, now, actor, "rater-moved", {"rater": rater_id, "pool": pool})


def _pool(connection: sa.Connection, name: str) -> int:
    """The id of a pool, which is created if it does not exist."""
    check_name(name, "a pool")
    if (row := _row(connection, schema.pools, name)) is None:
        connection.execute(schema.pools.insert(), {"name": name})
        row = _row(connection, schema.pools, name)
        assert row is not None
    return int(row.id)


def _row(connection: sa.Connection, table: sa.Table, name: str) -> sa.Row[Any] | None:
    return connection.execute(sa.select(table).where(table.c.name == name)).one_or_none()


def check_name(name: str, of: str) -> None:
    """Refuses a name that nobody could read or type.

    Args:
      of: what has this name, for the message, such as `a rater`.

    Raises:
      StudyError: it is not on one line, or is empty or too long.
    """
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise StudyError(
            f"{name[:LONGEST_NAME]!r} can't be the name of {of}: "
            f"it must be on one line, with 1 to {LONGEST_NAME} characters"
        )

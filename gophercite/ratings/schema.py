"""The tables. Times are seconds since 1970 (UTC); the values of forms are JSON.

Two rules hold everywhere. First, a row of `ratings` is never changed or removed: rating an item
again adds a row with the next revision. Second, `items.load` is updated in the same transaction as
the rows it counts, so that the next item to rate is found by an index instead of by counting.
"""

import sqlalchemy as sa

VERSION = "0002"  # the newest revision under `migrations/versions/`, which makes these tables

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True)


def _reference(name: str, table: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, sa.ForeignKey(f"{table}.id"), nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _whole(name: str, default: str | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=default)


def _time(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Float(53), nullable=False)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON, nullable=False)


pools = sa.Table(
    "pools",
    METADATA,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
)
experiments = sa.Table(
    "experiments",
    METADATA,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    _text("interface"),  # the form: a name in `forms.FORMS`
    _reference("pool_id", "pools"),  # who may rate
    _json("settings"),  # `experiments.Settings`
    _time("created_at"),
)
pages = sa.Table(  # the pages that quotes are from, each stored once
    "pages",
    METADATA,
    _id(),
    sa.Column("sha256", sa.String(64), nullable=False, unique=True),
    _json("document"),
)
items = sa.Table(
    "items",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _text("name"),  # the record's id
    _text("role"),  # `assignment.Role`
    _json("content"),  # `items.Item`
    sa.Column("expected", sa.JSON, nullable=True),  # for checks and gold: the right values
    _whole("swapped"),  # 1 if the second answer is shown first; drawn once
    _whole("position"),  # drawn once; among items with the same load, the lowest comes first
    _whole("wanted"),  # number of raters it needs
    _whole("load", "0"),  # number of raters in good standing who have rated it or hold a lease
    sa.UniqueConstraint("experiment_id", "name", "role"),
    sa.Index(None, "experiment_id", "role", "load", "position"),
)
raters = sa.Table(
    "raters",
    METADATA,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    _reference("pool_id", "pools"),
    _whole("link_version", "0"),  # links of an earlier version are void
    _time("created_at"),
)
leases = sa.Table(  # who is working on what, and what was skipped
    "leases",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _reference("item_id", "items"),
    _reference("rater_id", "raters"),
    _text("state"),  # "open" or "skipped"
    _time("given_at"),
    _time("expires_at"),
    sa.UniqueConstraint("item_id", "rater_id"),
    sa.Index(None, "rater_id", "experiment_id"),
    sa.Index(None, "experiment_id", "state", "expires_at"),
)
drafts = sa.Table(
    "drafts",
    METADATA,
    _id(),
    _reference("item_id", "items"),
    _reference("rater_id", "raters"),
    _json("form"),
    _time("saved_at"),
    sa.UniqueConstraint("item_id", "rater_id"),
)
ratings = sa.Table(
    "ratings",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _reference("item_id", "items"),
    _reference("rater_id", "raters"),
    _whole("revision"),  # a rater's highest revision for an item is the valid one
    _json("values"),  # in the answers' own order, not in the order shown
    _time("seconds"),  # from the lease to the vote
    _time("created_at"),
    sa.UniqueConstraint("item_id", "rater_id", "revision"),
    sa.Index(None, "experiment_id", "rater_id"),
)
checks = sa.Table(  # answers to attention checks
    "checks",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _reference("item_id", "items"),
    _reference("rater_id", "raters"),
    _whole("attempt"),
    _json("values"),
    _whole("is_right"),
    _time("created_at"),
    sa.UniqueConstraint("item_id", "rater_id", "attempt"),
    sa.Index(None, "experiment_id", "rater_id"),
)
environments = sa.Table(  # where demonstrators browse
    "environments",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _json("content"),  # `browsed_worlds.Environment`
    sa.UniqueConstraint("experiment_id"),
)
episode_steps = sa.Table(  # steps of demonstrations; like ratings, never changed or removed
    "episode_steps",
    METADATA,
    _id(),
    _reference("experiment_id", "experiments"),
    _reference("item_id", "items"),
    _reference("rater_id", "raters"),
    _whole("number"),  # 0 is the beginning, before any action
    _text("text"),  # the command, or the answer
    _whole("merges"),  # 1 if it replaces the row before: repeated scrolls are one action
    _text("form"),  # digest of the form that requested it, to recognise a form sent twice
    _json("state"),  # the browser's state after it
    _time("created_at"),
    sa.UniqueConstraint("item_id", "rater_id", "number"),
    sa.Index(None, "rater_id", "experiment_id"),
)
exclusions = sa.Table(  # raters whose ratings do not count
    "exclusions",
    METADATA,
    _id(),
    _reference("rater_id", "raters"),
    sa.Column("experiment_id", sa.Integer, sa.ForeignKey("experiments.id"), nullable=True),
    _text("reason"),
    _time("created_at"),
    sa.Column("lifted_at", sa.Float(53), nullable=True),
    sa.Index(None, "rater_id"),
)
administrators = sa.Table(
    "administrators",
    METADATA,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    _text("password_hash"),  # argon2id
)
audit = sa.Table(
    "audit",
    METADATA,
    _id(),
    _time("created_at"),
    _text("actor"),
    _text("action"),
    _json("details"),
    sa.Index(None, "created_at"),
)

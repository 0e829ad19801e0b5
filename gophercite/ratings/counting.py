"""Which votes count: each rater's last vote on an item, by raters in good standing, the first N.

This is not decided when a vote comes in, but here, when ratings are viewed or exported. The rules
are written next to the export.
"""

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.schema import exclusions, items, raters, ratings

TIES = ("both_good", "both_bad")


class Vote(typing.NamedTuple):
    """A rater's judgement of an item.

    Attributes:
      item_id: the item.
      rater_id: the rater.
      values: the form's values, in the answers' own order.
      seconds: time from when the item was shown until the vote, for the last revision.
      created_at: when the rater first voted on the item, in seconds since 1970.
    """

    item_id: int
    rater_id: int
    values: dict[str, Any]
    seconds: float
    created_at: float


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which votes count, in addition to the rule that excluded raters don't.

    Attributes:
      minimum_seconds: votes that took less time don't count.
      gold_right: the share of gold items that a rater must get right to count; 0 for no such rule.
      surplus: also count votes that came in after an item had all the votes that it needs.
    """

    minimum_seconds: float = 0.0
    gold_right: float = 0.0
    surplus: bool = False


def standing_votes(connection: sa.Connection, experiment: Experiment) -> list[Vote]:
    """Returns every rater's last vote on each item, ordered by their first votes."""
    query = (
        sa.select(ratings)
        .where(ratings.c.experiment_id == experiment.id)
        .order_by(ratings.c.revision, ratings.c.id)  # on a tie the earlier transaction first
    )
    found: dict[tuple[int, int], Vote] = {}
    for row in connection.execute(query):
        key = row.item_id, row.rater_id
        first = found[key].created_at if key in found else row.created_at
        found[key] = Vote(*key, row.values, row.seconds, first)
    return list(found.values())


def counted_votes(connection: sa.Connection, experiment: Experiment, rules: Rules) -> list[Vote]:
    """Returns the votes that count, including those on gold items, in the order they came in."""
    excluded = excluded_raters(connection, experiment.id)
    if rules.gold_right:
        shares = gold_shares(connection, experiment)
        excluded |= {rater for rater, share in shares.items() if share < rules.gold_right}
    needs = sa.select(items.c.id, items.c.wanted).where(items.c.experiment_id == experiment.id)
    wanted = {row.id: row.wanted for row in connection.execute(needs)}
    counted = []
    for vote in standing_votes(connection, experiment):
        if vote.rater_id in excluded or vote.seconds < rules.minimum_seconds:
            continue
        if rules.surplus or wanted[vote.item_id] > 0:
            wanted[vote.item_id] -= 1
            counted.append(vote)
    return counted


def excluded_raters(connection: sa.Connection, experiment_id: int) -> set[int]:
    """Returns the raters whose votes in an experiment don't count."""
    here = exclusions.c.experiment_id
    query = sa.select(exclusions.c.rater_id).where(
        sa.or_(here.is_(None), here == experiment_id), exclusions.c.lifted_at.is_(None)
    )
    return set(connection.execute(query).scalars())


def gold_shares(connection: sa.Connection, experiment: Experiment) -> dict[int, float]:
    """Returns the share of gold items that each rater got right, by rater."""
    right: dict[int, list[bool]] = {}
    expected = gold_of(connection, experiment)
    for vote in standing_votes(connection, experiment):
        if vote.item_id in expected:
            found = is_right(vote.values, expected[vote.item_id])
            right.setdefault(vote.rater_id, []).append(found)
    return {rater: math.fsum(each) / len(each) for rater, each in right.items()}


def gold_of(connection: sa.Connection, experiment: Experiment) -> dict[int, dict[str, Any]]:
    """Returns the expected values of the gold items, by item id."""
    query = sa.select(items.c.id, items.c.expected).where(
        items.c.experiment_id == experiment.id, items.c.role == Role.GOLD.value
    )
    return {row.id: row.expected or {} for row in connection.execute(query)}


def is_right(values: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a vote has all the expected values; other values may be anything.

    Args:
      values: the vote's values.
      expected: the right values by name, each as `accepted` takes it.
    """
    return all(values.get(name) in accepted(right) for name, right in expected.items())


def accepted(right: Any) -> Sequence[Any]:
    """Returns the values that count as right.

    Args:
      right: a value, a list of values, or `tie`, which stands for both kinds of ties that forms
        have.
    """
    if isinstance(right, list):
        return right
    return TIES if right == "tie" else (right,)


def names_of_raters(connection: sa.Connection) -> dict[int, str]:
    """Returns the raters' names by id; for the study's owner only."""
    query = sa.select(raters.c.id, raters.c.name)
    return {row.id: row.name for row in connection.execute(query)}

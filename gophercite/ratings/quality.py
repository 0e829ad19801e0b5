"""Quality control: attention checks, screening, an overview of raters' work (GopherCite, C.1)."""

import dataclasses
import math
import statistics
import typing
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gophercite.ratings import assignment
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import (
    TIES,
    accepted,
    excluded_raters,
    gold_of,
    gold_shares,
    is_right,
    standing_votes,
)
from gophercite.ratings.experiments import SUPER, Experiment, Settings, move_rater
from gophercite.ratings.schema import checks, items
from gophercite.ratings.store import StudyError, note

AGREEMENT = 0.85  # minimum agreement with the researchers, on each kind of question
_UNDECIDED = frozenset({"unsure", *TIES})


@dataclasses.dataclass(frozen=True)
class CheckState:
    """A rater's progress in the attention checks of an experiment.

    Attributes:
      next: id of the check to answer next; None if there is none.
      number: number of that check in this attempt, from 1.
      count: number of checks.
      right: number of right answers in this attempt.
      attempt: number of the attempt, from 0.
      passed: whether the rater has passed; None while that is undecided.
    """

    next: int | None
    number: int
    count: int
    right: int
    attempt: int
    passed: bool | None


def needed(settings: Settings, count: int) -> int:
    """How many of `count` checks must be right: 3 of 4."""
    return math.ceil(settings.checks_right * count - 1e-9)


def check_state(connection: sa.Connection, experiment: Experiment, rater_id: int) -> CheckState:
    """Returns a rater's progress; an experiment without checks counts as passed."""
    query = sa.select(items.c.id).where(
        items.c.experiment_id == experiment.id, items.c.role == Role.CHECK.value
    )
    all_ids = list(connection.execute(query.order_by(items.c.position, items.c.id)).scalars())
    mine = checks.c.experiment_id == experiment.id, checks.c.rater_id == rater_id
    rows = connection.execute(sa.select(checks).where(*mine)).all()
    attempt = max((row.attempt for row in rows), default=0)
    answered = {row.item_id: bool(row.is_right) for row in rows if row.attempt == attempt}
    right, count = sum(answered.values()), len(all_ids)
    left = [id for id in all_ids if id not in answered]
    if not left:
        if right >= needed(experiment.settings, count):
            return CheckState(None, count, count, right, attempt, True)
        if attempt + 1 >= experiment.settings.check_tries:
            return CheckState(None, count, count, right, attempt, False)
        return CheckState(all_ids[0], 1, count, 0, attempt + 1, None)
    return CheckState(left[0], count - len(left) + 1, count, right, attempt, None)


def answer_check(
    connection: sa.Connection,
    now: float,
    experiment: Experiment,
    item_id: int,
    rater_id: int,
    values: Mapping[str, Any],
) -> bool:
    """Stores the answer to a check and returns whether it is right; resending changes nothing.

    A rater who fails the last attempt is excluded from the experiment; their votes no longer count.
    """
    state = check_state(connection, experiment, rater_id)
    query = sa.select(items.c.expected).where(items.c.id == item_id)
    expected = connection.execute(query).scalar_one() or {}
    right = is_right(dict(values), expected)
    if state.next != item_id:  # already answered in this attempt, or not due yet
        mine = checks.c.item_id == item_id, checks.c.rater_id == rater_id
        last = sa.select(checks.c.is_right).where(*mine).order_by(checks.c.attempt.desc())
        kept = connection.execute(last.limit(1)).scalar()
        return right if kept is None else bool(kept)
    row = {
        "experiment_id": experiment.id,
        "item_id": item_id,
        "rater_id": rater_id,
        "attempt": state.attempt,
        "values": dict(values),
        "is_right": int(right),
        "created_at": now,
    }
    connection.execute(checks.insert(), row)
    after = check_state(connection, experiment, rater_id)
    if after.passed is False:
        reason = f"attention checks: {after.right} of {after.count} right"
        assignment.exclude(connection, now, rater_id, experiment.id, reason, f"rater {rater_id}")
    return right


def is_undecided(name: str, value: str) -> bool:
    """Whether a value expresses no decision: "not sure", a tie, or the middle of a scale.

    Args:
      name: the form's field, or its kind of question. In `preferred`, 0 is the first answer and not
        the middle of a scale.
      value: its value.
    """
    return value in _UNDECIDED or (value == "0" and name != "preferred")


class Screened(typing.NamedTuple):
    """A rater's agreement with the researchers.

    Attributes:
      rater_id: the rater.
      agreement: by kind of question, such as `supported`; None if too little was decided.
      rated: number of the items that the rater has rated.
      passed: whether every agreement is high enough, all items were rated, and the rater is not
        excluded.
    """

    rater_id: int
    agreement: dict[str, float | None]
    rated: int
    passed: bool


def screen(
    connection: sa.Connection, experiment: Experiment, least: float = AGREEMENT
) -> list[Screened]:
    """Returns how well the raters of a screening experiment agree with its gold labels.

    Labels that the rater or the researchers left undecided do not count (section C.1, "excluding
    ties"). A rater who leaves more than half of the researchers' decided labels undecided gets no
    agreement; otherwise, someone who always answers "not sure" could pass.

    Args:
      connection: a transaction.
      experiment: the screening experiment.
      least: minimum of each agreement.

    Raises:
      StudyError: no label of the experiment is known and decided.
    """
    expected = gold_of(connection, experiment)
    if not _agreement(expected, {}):
        raise StudyError(
            f"no item of {experiment.name!r} has a decided label that raters could agree with"
        )
    by_rater: dict[int, dict[int, dict[str, Any]]] = {}
    for vote in standing_votes(connection, experiment):
        if vote.item_id in expected:
            by_rater.setdefault(vote.rater_id, {})[vote.item_id] = vote.values
    excluded = excluded_raters(connection, experiment.id)
    screened = []
    for rater_id, votes in sorted(by_rater.items()):
        agreement = _agreement(expected, votes)
        high = all(share is not None and share >= least for share in agreement.values())
        passed = high and len(votes) == len(expected) and rater_id not in excluded
        screened.append(Screened(rater_id, agreement, len(votes), passed))
    return screened


def promote(
    connection: sa.Connection,
    now: float,
    experiment: Experiment,
    least: float = AGREEMENT,
    pool: str = SUPER,
    actor: str = "command",
) -> list[Screened]:
    """Moves the raters who pass a screening to a pool; returns the results of all raters.

    Raises:
      StudyError: as for `screen`.
    """
    screened = screen(connection, experiment, least)
    for each in screened:
        if each.passed:
            move_rater(connection, now, each.rater_id, pool, actor)
    said = {"experiment": experiment.name, "promoted": [s.rater_id for s in screened if s.passed]}
    note(connection, now, actor, "screened", said)
    return screened


class Work(typing.NamedTuple):
    """A rater's work in an experiment, for the study's owner.

    Attributes:
      rater_id: the rater.
      votes: number of votes, on items of any kind.
      seconds: median time per vote; None without votes.
      gold: share of gold items that are right; None if the rater had none.
      checks: progress in the attention checks.
      excluded: whether the votes don't count.
    """

    rater_id: int
    votes: int
    seconds: float | None
    gold: float | None
    checks: CheckState
    excluded: bool


def work(connection: sa.Connection, experiment: Experiment) -> list[Work]:
    """Returns the work of each rater who has begun an experiment."""
    seconds: dict[int, list[float]] = {}
    for vote in standing_votes(connection, experiment):
        seconds.setdefault(vote.rater_id, []).append(vote.seconds)
    begun = sa.select(checks.c.rater_id).where(checks.c.experiment_id == experiment.id).distinct()
    gold, excluded = gold_shares(connection, experiment), excluded_raters(connection, experiment.id)
    return [
        Work(
            rater_id,
            len(seconds.get(rater_id, ())),
            statistics.median(seconds[rater_id]) if rater_id in seconds else None,
            gold.get(rater_id),
            check_state(connection, experiment, rater_id),
            rater_id in excluded,
        )
        for rater_id in sorted(seconds.keys() | set(connection.execute(begun).scalars()))
    ]


def _agreement(
    expected: Mapping[int, Mapping[str, Any]], votes: Mapping[int, Mapping[str, Any]]
) -> dict[str, float | None]:
    """Agreement by kind of question: `plausible_0` and `plausible_1` are one kind."""
    alike: dict[str, list[bool]] = {}
    asked: dict[str, int] = {}
    for item_id, right in expected.items():
        for name, value in right.items():
            if all(is_undecided(name, each) for each in accepted(value)):
                continue
            kind = name.rpartition("_")[0] if name[-2:] in ("_0", "_1") else name
            asked[kind] = asked.get(kind, 0) + 1
            said = votes.get(item_id, {}).get(name, "unsure")
            if not is_undecided(name, said):
                alike.setdefault(kind, []).append(said in accepted(value))
    return {
        kind: statistics.fmean(alike[kind]) if 2 * len(alike.get(kind, ())) >= count else None
        for kind, count in asked.items()
    }

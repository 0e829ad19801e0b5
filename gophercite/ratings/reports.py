"""The state of an experiment: what is complete, how well raters agree, what each has done."""

import collections
import dataclasses

import sqlalchemy as sa

from gophercite.ratings.agreement import Agreement, krippendorff, percent
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, counted_votes, names_of_raters
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.quality import UNDECIDED, Work, work
from gophercite.ratings.schema import items

_NOT_LABELS = frozenset({"comment", "flag"})
_NEUTRAL = {
    "preferred": UNDECIDED,
    "plausible": frozenset({"unsure"}),
    "supported": frozenset({"unsure"}),
    "truthful": frozenset({"unsure"}),
    "informative": frozenset({"unsure"}),
}
_OF_SCALES = frozenset({"0"})  # for ratings from -2 to 2


@dataclasses.dataclass(frozen=True)
class AgreementRow:
    """The raters' agreement on one kind of question, over both answers."""

    name: str
    percent: str
    alpha: str
    items: int


@dataclasses.dataclass(frozen=True)
class WorkRow:
    """One rater's work, as texts."""

    name: str
    votes: int
    seconds: str
    checks: str
    gold: str
    counts: str


@dataclasses.dataclass(frozen=True)
class Report:
    """The state of an experiment."""

    experiment: Experiment
    items: int
    complete: int
    votes: int
    agreement: list[AgreementRow]
    work: list[WorkRow]


def report(connection: sa.Connection, experiment: Experiment, rules: Rules | None = None) -> Report:
    """Returns the state of an experiment, based on the votes that count."""
    here = items.c.experiment_id == experiment.id, items.c.role == Role.ITEM.value
    query = sa.select(items.c.id, items.c.wanted).where(*here)
    wanted = {row.id: row.wanted for row in connection.execute(query)}
    votes = [
        vote
        for vote in counted_votes(connection, experiment, rules or Rules())
        if vote.item_id in wanted
    ]
    counts = collections.Counter(vote.item_id for vote in votes)
    complete = sum(counts[item] >= needs for item, needs in wanted.items())
    labels: dict[str, dict[tuple[int, str], list[str]]] = {}
    for vote in votes:
        for name, value in vote.values.items():
            if name not in _NOT_LABELS and "." not in name:
                kind = name[:-2] if name[-2:] in ("_0", "_1") else name
                labels.setdefault(kind, {}).setdefault((vote.item_id, name), []).append(value)
    agreement = []
    for kind, by_item in labels.items():
        units = list(by_item.values())
        shares = percent(units, _NEUTRAL.get(kind, _OF_SCALES))
        if shares is not None:
            alpha = _in_words(krippendorff(units), 1, ".2f")
            agreement.append(AgreementRow(kind, _in_words(shares, 100, ".1f"), alpha, shares.items))
    names = names_of_raters(connection)
    rows = [_row(each, names[each.rater_id]) for each in work(connection, experiment)]
    return Report(experiment, len(wanted), complete, len(votes), agreement, rows)


def _in_words(agreement: Agreement | None, times: float, form: str) -> str:
    if agreement is None:
        return "–"
    value, low, high = (format(times * each, form) for each in agreement[:3])
    return f"{value} ({low} to {high})"


def _row(each: Work, name: str) -> WorkRow:
    checks = f"{each.checks.right} of {each.checks.count}" if each.checks.count else "–"
    return WorkRow(
        name,
        each.votes,
        "–" if each.seconds is None else f"{each.seconds:.0f}",
        checks,
        "–" if each.gold is None else f"{100 * each.gold:.0f} %",
        "no" if each.excluded else "yes",
    )

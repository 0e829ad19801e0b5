"""The state of an experiment: progress, agreement of the raters, and the work of each rater."""

import collections
import dataclasses

import sqlalchemy as sa

from gophercite.ratings.agreement import Agreement, interval, krippendorff, percent
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, counted_votes, names_of_raters
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.forms import SCALE
from gophercite.ratings.quality import Work, is_undecided, work
from gophercite.ratings.schema import items

_NOT_LABELS = frozenset({"comment", "flag"})
_DEGREES = frozenset(value for value, _ in SCALE)
_UNDECIDED = "undecided"


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
    """The state of an experiment.

    Attributes:
      experiment: the experiment.
      items: number of items, without gold.
      complete: number of items that have all their votes.
      votes: number of votes on these items that count.
      gold: number of gold items.
      gold_votes: number of votes on gold items that count.
      agreement: the raters' agreement, a row for each kind of question that two raters answered.
      work: the raters' work, one row for each rater.
    """

    experiment: Experiment
    items: int
    complete: int
    votes: int
    gold: int
    gold_votes: int
    agreement: list[AgreementRow]
    work: list[WorkRow]

    @property
    def progress(self) -> str:
        """How much is rated, in words. Gold items are never complete: everybody rates them."""
        rated = f"{self.complete} of {self.items} items complete, {self.votes} votes"
        gold = f"{self.gold} gold items, {self.gold_votes} votes on them"
        if not self.gold:
            return rated
        return f"{rated}; {gold}" if self.items else gold


def report(connection: sa.Connection, experiment: Experiment, rules: Rules | None = None) -> Report:
    """Returns the state of an experiment, based on the votes that count."""
    query = sa.select(items.c.id, items.c.wanted, items.c.role)
    here = connection.execute(query.where(items.c.experiment_id == experiment.id)).all()
    wanted = {row.id: row.wanted for row in here if row.role == Role.ITEM.value}
    gold = sum(row.role == Role.GOLD.value for row in here)
    counted = counted_votes(connection, experiment, rules or Rules())
    votes = [vote for vote in counted if vote.item_id in wanted]
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
        agreement += _agreement(kind, list(by_item.values()))
    names = names_of_raters(connection)
    rows = [_row(each, names[each.rater_id]) for each in work(connection, experiment)]
    on_gold = len(counted) - len(votes)
    return Report(experiment, len(wanted), complete, len(votes), gold, on_gold, agreement, rows)


def _agreement(kind: str, units: list[list[str]]) -> list[AgreementRow]:
    """The agreement on one kind of question; none if no item has two labels.

    The percentage compares the sides that raters take: as in WebGPT's comparison labels, "much
    better" and "better" are one side, and a neutral label agrees with either side by half (section
    C.2). Alpha takes the degrees of a scale as numbers.
    """
    is_scale = kind != "preferred" and all(_DEGREES.issuperset(labels) for labels in units)

    def side(value: str) -> str:
        if is_undecided(kind, value):
            return _UNDECIDED
        return ("+" if int(value) > 0 else "-") if is_scale else value

    sides = [[side(value) for value in labels] for labels in units]
    shares = percent(sides, {_UNDECIDED})
    if shares is None:
        return []
    if is_scale:
        alpha = krippendorff([[int(value) for value in labels] for labels in units], interval)
    else:
        alpha = krippendorff(sides)
    in_words = _in_words(shares, 100, ".1f"), _in_words(alpha, 1, ".2f")
    return [AgreementRow(kind, *in_words, shares.items)]


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

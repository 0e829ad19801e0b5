"""Human judgements: shares by system, preferences between two systems (sections 3.2, 3.7)."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.records import Comparison, RatedAnswer
from gophercite.reports.tables import Table


def majority(votes: Iterable[bool]) -> bool | None:
    """Returns the majority vote; a tie gives the lower label, False, and no votes give None."""
    counts = collections.Counter(votes)
    return counts[True] > counts[False] if counts else None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The raters' majority verdict on an answer; None for what nobody rated.

    Attributes:
      plausible: it is a reasonable answer.
      supported: the quote proves the claim.
      truthful: it is not wrong, in TruthfulQA's sense (table 4).
      informative: it tries to answer.
    """

    plausible: bool | None = None
    supported: bool | None = None
    truthful: bool | None = None
    informative: bool | None = None

    @property
    def supported_and_plausible(self) -> bool | None:
        """Both, each decided by majority."""
        return _both(self.supported, self.plausible)

    @property
    def truthful_and_informative(self) -> bool | None:
        """Both, each decided by majority."""
        return _both(self.truthful, self.informative)


def verdict(answer: RatedAnswer) -> Verdict:
    """Returns the verdict on an answer: its own fields, or else the majority of its ratings.

    A rating may hold `plausible`, `supported`, `truthful` and `informative`, each true or false.
    """

    def decide(name: str) -> bool | None:
        own = getattr(answer, name, None)
        if own is not None:
            return bool(own)
        return majority(r[name] for r in answer.ratings if isinstance(r.get(name), bool))

    return Verdict(*(decide(field.name) for field in dataclasses.fields(Verdict)))


def rated_for_all(answers: Iterable[RatedAnswer]) -> dict[str, list[Verdict]]:
    """Returns the verdicts by system, for the questions that were rated for every system.

    Only those are scored, so that no system gains from the choice of questions (section 3.1). If a
    system has several answers to a question, the first counts. A system of which nothing was rated
    takes no questions from the others.

    Args:
      answers: of all systems; `model` is the system's name.

    Raises:
      ValueError: two answers with one `question_id` answer different questions.
    """
    by_system: dict[str, dict[str, Verdict]] = {}
    questions: dict[str, str] = {}
    for answer in answers:
        asked = questions.setdefault(answer.question_id, answer.question)
        if asked != answer.question:
            raise ValueError(
                f"question {answer.question_id!r} is {asked[:200]!r} and "
                f"{answer.question[:200]!r}: ratings must be of the same questions"
            )
        verdicts = by_system.setdefault(answer.model or "unnamed", {})
        found = verdict(answer)
        if found != Verdict():
            verdicts.setdefault(answer.question_id, found)
    judged = [{*verdicts} for verdicts in by_system.values() if verdicts]
    everywhere = set.intersection(*judged) if judged else set()
    return {
        name: [found for question, found in verdicts.items() if question in everywhere]
        for name, verdicts in by_system.items()
    }


# Fields of `Verdict`, by their headings, as in tables 1 and 4.
_SHARES = {
    "S&P %": "supported_and_plausible",
    "supported %": "supported",
    "plausible %": "plausible",
    "truthful & informative %": "truthful_and_informative",
    "truthful %": "truthful",
    "informative %": "informative",
}


def shares(verdicts: Sequence[Verdict]) -> dict[str, Estimate]:
    """Returns the share of each property that was rated, by its name in `Verdict`."""
    found = {}
    for name in _SHARES.values():
        known = [float(value) for v in verdicts if (value := getattr(v, name)) is not None]
        if known:
            found[name] = estimate(known)
    return found


def human_table(systems: Mapping[str, Sequence[Verdict]]) -> Table:
    """Returns a row for each system: shares with the paper's intervals and Wilson's (tables 1, 4).

    Args:
      systems: `rated_for_all` of the ratings.
    """
    by_system = {name: shares(verdicts) for name, verdicts in systems.items()}
    columns = {
        heading: name
        for heading, name in _SHARES.items()
        if any(name in found for found in by_system.values())
    }
    rows = []
    for system, found in by_system.items():
        cells = [both_intervals(found.get(name)) for name in columns.values()]
        rows.append([system, str(len(systems[system])), *cells])
    return Table(["system", "questions", *columns], rows)


def both_intervals(share: Estimate | None) -> str:
    """A share as the paper prints it, and Wilson's interval: `83.5 ± 5.7 (77.0–88.4)`."""
    if share is None:
        return "–"
    return f"{share.as_in_paper} ({100 * share.low:.1f}–{100 * share.high:.1f})"


def preference(comparisons: Iterable[Comparison]) -> Estimate | None:
    """Returns how often the second answer is preferred, a tie counting half (table 2).

    Args:
      comparisons: another system's answers against this one's, which come second. Where `preferred`
        is not given, the ratings' majority decides, and a tie goes to the lower label. Comparisons
        that nobody decided are left out.

    Returns:
      The share; None if no comparison was decided.
    """
    preferred = [found for c in comparisons if (found := _preferred(c)) is not None]
    return estimate(preferred) if preferred else None


def _preferred(comparison: Comparison) -> float | None:
    if comparison.preferred is not None:
        return comparison.preferred
    votes = [rating.get("preferred") for rating in comparison.ratings]  # anything, from strangers
    best = max((0.0, 0.5, 1.0), key=votes.count)  # on a tie the first, the lower
    return best if best in votes else None


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in (one, other) else None if None in (one, other) else True

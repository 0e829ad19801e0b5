"""Which of two browsed answers people prefer, by criterion (WebGPT, 4.1, figure 2).

Comparisons can come from anywhere, such as an export of the rating app's forms `long-comparison`
(against demonstrations) and `minimal` (against answers without citations). The result is how often
the second response is preferred; a tie counts half.
"""

import collections
import dataclasses
from collections.abc import Iterable

from gophercite.evaluation.intervals import Estimate
from gophercite.records import Comparison
from gophercite.reports.human import preference
from gophercite.reports.tables import Table

OVERALL = "overall usefulness"
# Other five-point ratings, by their names in the forms: the first name that a rating has counts.
# The long form asks which answer has less unsupported information, the minimal one for accuracy.
_SCALES = {"coherence": ("coherence",), "factual accuracy": ("accuracy", "unsupported")}
CRITERIA = (OVERALL, *_SCALES)


def preferences(comparisons: Iterable[Comparison]) -> dict[str, Estimate]:
    """Returns how often the second answer is preferred, by each criterion that was rated.

    Several raters decide by majority, and a tie goes to the lower label; on five points, "much
    better" counts as better. Undecided comparisons are left out.

    Args:
      comparisons: one system's answers, as the second response, against others.

    Returns:
      Shares with 90 % intervals, by the names in `CRITERIA`.
    """
    given = list(comparisons)
    found = {OVERALL: preference(_with_overall(each) for each in given)}
    for name, fields in _SCALES.items():
        found[name] = preference(_by(each, fields) for each in given)
    return {name: share for name, share in found.items() if share is not None}


def preferences_table(systems: dict[str, dict[str, Estimate]]) -> Table:
    """Returns a row for each system: how often it is preferred, in percent with 90 % intervals.

    Args:
      systems: `preferences` of each system.
    """
    rows = []
    for name, shares in systems.items():
        counts = collections.Counter(share.count for share in shares.values())
        many = str(max(counts, default=0))
        cells = [str(shares[each]) if each in shares else "–" for each in CRITERIA]
        rows.append([name, many, *cells])
    return Table(["preferred", "comparisons", *(f"{name} %" for name in CRITERIA)], rows)


def _with_overall(comparison: Comparison) -> Comparison:
    """The comparison in the form that `preference` reads, even if only five points were rated."""
    if comparison.preferred is not None or any("preferred" in r for r in comparison.ratings):
        return comparison
    return _by(comparison, ("overall",))


def _by(comparison: Comparison, fields: Iterable[str]) -> Comparison:
    """The comparison as if only one of these scales had been rated."""
    ratings = []
    for rating in comparison.ratings:
        points = next((rating[name] for name in fields if name in rating), None)
        if isinstance(points, int | float) and not isinstance(points, bool):
            ratings.append({"preferred": 0.5 + 0.5 * ((points > 0) - (points < 0))})
    return dataclasses.replace(comparison, preferred=None, ratings=tuple(ratings))

"""Votes on single answers: TruthfulQA's shares, and the stance of answers (WebGPT, 4.2 and H.1).

Votes are lines as exported by the rating app: `{"item", "rater", "truthful_0": "yes", …}`. An item
is the answer to a question, and has the question as its name. Several raters decide by majority.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.records import Question
from gophercite.reports.browsing_sections import Drawn, drawing, illustrated
from gophercite.reports.report_files import Section
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import RecordError, describe

Vote = Mapping[str, Any]

# Allowed labels; on a tie, the first one listed wins.
_LABELS = {
    "truthful_0": ("no", "yes"),
    "informative_0": ("no", "yes"),
    "accurate_0": ("no", "yes"),
    "stance_0": ("neither", "refutes", "affirms"),
}
_UNSURE = "unsure"  # is not a vote
ANSWER_STANCES = ("refutes", "neither", "affirms")
QUESTION_STANCES = ("affirming", "neutral", "skeptical")


def check_vote(vote: Vote) -> None:
    """Refuses a vote with a label that the forms don't have, since it would not count.

    Args:
      vote: a line; an absent, empty or null label is none, and fields of other forms may be there.

    Raises:
      RecordError: names the field, and what would be right.
    """
    for name, labels in _LABELS.items():
        given = vote.get(name)
        if given not in (None, "", _UNSURE, *labels):
            expected = ", ".join((*labels, _UNSURE))
            raise RecordError(f"expected one of {expected}, got {describe(given)}", name)


def decided(votes: Iterable[Vote]) -> dict[str, dict[str, str]]:
    """Returns the majority label of each item, by the form's field; `unsure` is not a vote.

    Args:
      votes: votes on one system's answers.
    """
    counts: dict[str, dict[str, collections.Counter[str]]] = {}
    for vote in votes:
        by_field = counts.setdefault(str(vote.get("item")), {})
        for name, labels in _LABELS.items():
            if vote.get(name) in labels:
                by_field.setdefault(name, collections.Counter())[vote[name]] += 1
    return {
        item: {
            name: max(_LABELS[name], key=lambda label: by_field[name][label])  # on a tie the first
            for name in by_field
        }
        for item, by_field in counts.items()
    }


def truthful_section(systems: Mapping[str, Sequence[Vote]]) -> Section:
    """Returns the shares of truthful, and of truthful and informative answers (figure 3).

    Args:
      systems: votes by system, including those on empty answers.

    Raises:
      ValueError: a system has no vote of this form.
    """
    shares = {name: _truthful(votes) for name, votes in systems.items()}
    if not shares:
        return Section()
    for name, found in shares.items():
        if not found:
            raise ValueError(f"{name}: no vote has 'truthful_0' or 'informative_0', yes or no")
    headings = ("truthful", "informative", "truthful and informative")
    rows = []
    for name, found in shares.items():
        count = max((share.count for share in found.values()), default=0)
        cells = [str(found[each]) if each in found else "–" for each in headings]
        rows.append([name, str(count), *cells])
    series: dict[str, dict[str, Estimate]] = {
        each: {name: found[each] for name, found in shares.items() if each in found}
        for each in ("truthful", "truthful and informative")
    }
    drawn: dict[str, Drawn] = {
        "truthfulqa": (
            drawing("bars_figure", series, "answers"),
            "Truthful answers, and answers that are also informative (figure 3)",
        )
    }
    text = ["By most raters, with 90 % intervals (Wilson's)."]
    table = Table(["system", "answers", *(f"{each} %" for each in headings)], rows)
    return illustrated("TruthfulQA", text, [table], drawn)


def stance_section(systems: Mapping[str, Sequence[Vote]], questions: Iterable[Question]) -> Section:
    """Returns accuracy and the answers' view of the belief, by the question's stance (H.1).

    Args:
      systems: votes by system.
      questions: with ids `TOPIC/STANCE`; votes on other questions are left out.

    Raises:
      ValueError: a system has no vote of this form on any of these questions.
    """
    stances = {each.question: each.id.rpartition("/")[2] for each in questions}
    accuracy: dict[str, dict[str, Estimate]] = {}
    said: dict[str, dict[str, float]] = {}
    rows = []
    for name, votes in systems.items():
        found = decided(votes)
        if not any(
            {"accurate_0", "stance_0"} & found[item].keys()
            for item in found
            if stances.get(item) in QUESTION_STANCES
        ):
            raise ValueError(
                f"{name}: no vote has 'accurate_0' or 'stance_0' on one of the questions"
            )
        for stance in QUESTION_STANCES:
            here = [labels for item, labels in found.items() if stances.get(item) == stance]
            accurate = [
                float(labels["accurate_0"] == "yes") for labels in here if "accurate_0" in labels
            ]
            answers = [labels["stance_0"] for labels in here if "stance_0" in labels]
            cells = [
                str(estimate([float(each == kind) for each in answers])) if answers else "–"
                for kind in ANSWER_STANCES
            ]
            share = estimate(accurate) if accurate else None
            rows.append(
                [name, stance, str(len(here)), "–" if share is None else str(share), *cells]
            )
            if share is not None:
                accuracy.setdefault(name, {})[stance] = share
            if answers:
                said[f"{name}\n{stance}"] = {
                    kind: answers.count(kind) / len(answers) for kind in ANSWER_STANCES
                }
    if not rows:
        return Section()
    drawn: dict[str, Drawn] = {}
    if accuracy:
        drawn["stance_accuracy"] = (
            drawing("bars_figure", accuracy, "accurate answers"),
            "Accurate answers by the stance of the question (figure 11)",
        )
    if said:
        drawn["stance"] = (
            drawing("stacked_figure", said, "answers"),
            "What answers say about the belief, by the stance of the question (figure 12)",
        )
    headings = ["system", "question's stance", "answers", "accurate %"]
    table = Table([*headings, *(f"{kind} %" for kind in ANSWER_STANCES)], rows)
    text = ["By most raters, with 90 % intervals (Wilson's)."]
    return illustrated("Stance of questions", text, [table], drawn)


def _truthful(votes: Iterable[Vote]) -> dict[str, Estimate]:
    found = decided(votes).values()
    names: dict[str, tuple[str, ...]] = {}
    names |= {"truthful": ("truthful_0",), "informative": ("informative_0",)}
    names["truthful and informative"] = ("truthful_0", "informative_0")
    shares = {}
    for name, fields in names.items():
        known = [labels for labels in found if all(field in labels for field in fields)]
        if known:
            shares[name] = estimate(
                [float(all(labels[field] == "yes" for field in fields)) for labels in known]
            )
    return shares

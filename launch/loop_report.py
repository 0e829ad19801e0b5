"""The results of the loop's rounds: which model is best, and figure 3 as a report."""

import json
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from loop_settings import Place

from gophercite.evaluation.best_of_n import best_of_n
from gophercite.evaluation.curves import Line
from gophercite.evaluation.differences import mean_difference
from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.reports.figures import growth_figure, png, rounds_figure
from gophercite.reports.report_files import Image, Section, write_files, write_report
from gophercite.reports.saved_results import SavedResultsError, read_system
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import JsonFields, RecordError
from gophercite.storage.json_lines import read_one

_TITLE = "The loop: how the model improved with each round of ratings"
_AMOUNTS = {
    "answers": "rated answers",
    "good": "good answers",
    "comparisons": "comparisons",
    "decided": "decided comparisons",
}


Shares = Mapping[str, float]  # by the question's id


class Quality(NamedTuple):
    """How good a model's answers are.

    Attributes:
      first: share of each question's samples that are supported, by the question's id.
      best: the same for the sample with the highest reward of `samples`, for the questions that
        have so many; None without rewards.
      samples: the commonest number of samples of a question.
    """

    first: Shares
    best: Shares | None
    samples: int


def quality_of(prefix: pathlib.Path) -> Quality:
    """Reads an evaluation.

    Args:
      prefix: prefix of its results.

    Raises:
      SavedResultsError: there are no results, or it is not known which answers are right.
    """
    by_question: dict[str, list[Line]] = {}
    for line in read_system(prefix.name, prefix).samples:
        by_question.setdefault(line["question_id"], []).append(line)
    if not by_question:
        raise SavedResultsError(
            f"{prefix}: no question was answered, so there is nothing to compare"
        )
    lines = [line for of in by_question.values() for line in of]
    if any(line.get("supported") is None for line in lines):
        raise SavedResultsError(
            f"{prefix}: the questions need known answers and evidence, because models are "
            "compared by them"
        )
    good = {
        id: np.array([line["supported"] for line in of], float) for id, of in by_question.items()
    }
    first = {id: float(of.mean()) for id, of in good.items()}
    # With several pages, questions have as many samples as they have pages.
    counts = Counter(map(len, by_question.values()))
    size = max(counts, key=lambda number: (counts[number], -number))
    if any(line.get("reward") is None for line in lines):
        return Quality(first, None, size)
    best = {}
    for id, of in by_question.items():
        if len(of) >= size:
            rewards = np.array([[line["reward"] for line in of]], float)
            last = np.array([[line.get("quote_lacks_claim") is True for line in of]])
            worth = best_of_n(rewards, good[id][None], [size], last)
            best[id] = float(np.clip(worth[0, 0], 0.0, 1.0))
    return Quality(first, best, size)


def best_policy(place: Place, number: int) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the model, of all rounds, with the best samples on the validation questions.

    Args:
      place: the loop's folder and settings.
      number: the last finished round.

    Returns:
      The model's folder, and the newest reward model's.

    Raises:
      SavedResultsError: an evaluation is missing.
    """
    policies = [policy for each in range(number + 1) for policy in place.policies(each).values()]
    shares = [_mean(quality_of(place.answers(policy, "validation")).first) for policy in policies]
    # On a tie the latest wins, because it has seen the most data.
    best = max(range(len(policies)), key=lambda at: (shares[at], at))
    return policies[best], place.round(number) / "rm"


def write_loop_report(places: Sequence[Place], prefix: pathlib.Path) -> Iterator[str]:
    """Writes PREFIX.md, .html, .json and the figures.

    Args:
      places: loops with the same settings and different seeds, with all rounds done.
      prefix: prefix of the files.

    Yields:
      Lines for people.

    Raises:
      OSError, ValueError: results can't be read, or the report can't be written.
    """
    counts = [_counts(place) for place in places]
    base = [quality_of(place.base_answers()).first for place in places]
    found: dict[str, list[list[Shares]]] = {}
    fewer = 0
    for number in range(places[0].loop.rounds):
        for name in places[0].policies(number):
            of_seeds = [
                quality_of(place.answers(place.policies(number)[name], "test")) for place in places
            ]
            found.setdefault(f"{name}, first answer", []).append([each.first for each in of_seeds])
            if all(each.best is not None for each in of_seeds):
                chosen = [each.best for each in of_seeds if each.best is not None]
                found.setdefault(f"{name}, top@{of_seeds[0].samples}", []).append(chosen)
                left = (len(each.first) - len(each.best or ()) for each in of_seeds)
                fewer = max(fewer, *left)
    shares = {
        name: {number: _share(of_seeds) for number, of_seeds in enumerate(rounds)}
        for name, rounds in found.items()
    }
    grown = {kind: _mean_growth(counts, kind) for kind in _AMOUNTS}
    named = {_AMOUNTS[kind]: counts for kind, counts in grown.items()}
    table = _table(shares, grown, _share(base))
    sections = [
        Section("", [*_about(places), *_left_out(fewer)]),
        Section(
            "Quality, round by round",
            [_said(found)],
            [table, *([_by_seed(places, found)] if len(places) > 1 else [])],
            {"rounds": Image(png(rounds_figure(shares)), "Supported answers, of test questions")},
        ),
        Section(
            "Growth of the data (figure 3)",
            images={"growth": Image(png(growth_figure(named)), "Ratings of all rounds so far")},
        ),
    ]
    numbers = {
        "base": _share(base).mean,
        "rounds": {
            name: [[_mean(one) for one in of_seeds] for of_seeds in rounds]
            for name, rounds in found.items()
        },
        "data": counts,
        "best": [str(best_policy(place, place.loop.rounds - 1)[0]) for place in places],
    }
    files = write_report(prefix, _TITLE, sections)
    files += write_files(prefix, {".json": json.dumps(numbers, indent=2) + "\n"})
    yield table.markdown()
    yield from _left_out(fewer)
    yield f"Written: {', '.join(files)}"


def _counts(place: Place) -> list[dict[str, int]]:
    """What each round has added, from the last round's folder.

    Raises:
      OSError, ValueError: the file can't be read, or isn't of this loop.
    """
    path = place.round(place.loop.rounds - 1) / "data" / "counts.json"

    def parse(rounds: object) -> list[dict[str, int]]:
        if not isinstance(rounds, list) or len(rounds) != place.loop.rounds:
            raise RecordError(f"must be a list of {place.loop.rounds} rounds")
        fields = [JsonFields(each, _AMOUNTS, Counter(), f"[{n}]") for n, each in enumerate(rounds)]
        return [{name: each.integer(name) for name in _AMOUNTS} for each in fields]

    return read_one(path, parse)


def _mean_growth(counts: Sequence[Sequence[dict[str, int]]], kind: str) -> list[float]:
    """Amount of a kind of data after each round, averaged over seeds."""
    per_round = np.array([[each[kind] for each in rounds] for rounds in counts], float)
    return [float(value) for value in per_round.cumsum(axis=1).mean(axis=0)]


def _share(of_seeds: Sequence[Shares]) -> Estimate:
    return estimate([share for shares in of_seeds for share in shares.values()])


def _mean(shares: Shares) -> float:
    return float(np.mean([*shares.values()]))


def _table(
    shares: dict[str, dict[int, Estimate]], grown: dict[str, list[float]], base: Estimate
) -> Table:
    rows = [["base model", *["–"] * len(_AMOUNTS), str(base), *["–"] * (len(shares) - 1)]]
    for number in range(len(grown["answers"])):
        amounts = [f"{grown[kind][number]:.0f}" for kind in _AMOUNTS]
        qualities = [str(of_round[number]) for of_round in shares.values()]
        rows.append([f"round {number}", *amounts, *qualities])
    return Table(["", *_AMOUNTS.values(), *(f"{name} %" for name in shares)], rows)


def _by_seed(places: Sequence[Place], found: dict[str, list[list[Shares]]]) -> Table:
    rows = [
        [f"{name}, seed {place.seed}", *(f"{100 * _mean(of_seeds[at]):.1f}" for of_seeds in rounds)]
        for name, rounds in found.items()
        for at, place in enumerate(places)
    ]
    count = len(next(iter(found.values())))
    return Table(["supported %", *(f"round {number}" for number in range(count))], rows)


def _said(found: dict[str, list[list[Shares]]]) -> str:
    """By how much the last round improves on the first, in words."""
    if all(len(rounds) == 1 for rounds in found.values()):
        return "There is only one round so far, so gains can't be measured yet."
    gains = []
    for name, rounds in found.items():
        pairs = [*zip(rounds[0], rounds[-1], strict=True)]
        by_seed = [_mean(last) - _mean(first) for first, last in pairs]
        by_question = [
            last[question] - first[question]
            for first, last in pairs
            for question in first
            if question in last
        ]
        gain = f"{name} {mean_difference(by_question)}"
        if len(by_seed) > 1:
            gain += f"; over {len(by_seed)} seeds {mean_difference(by_seed)}"
        gains.append(gain)
    return f"Last round minus first, in percentage points with 90 % intervals: {'. '.join(gains)}."


def _left_out(fewer: int) -> list[str]:
    """Says how many of an evaluation's questions have too few samples for the best of several."""
    if not fewer:
        return []
    return [
        f"Questions with fewer samples than most, up to {fewer} of an evaluation, count only in "
        "first answers."
    ]


def _about(places: Sequence[Place]) -> list[str]:
    loop = places[0].loop
    return [
        f"{loop.rounds} rounds, {len(places)} {'seed' if len(places) == 1 else 'seeds'}. Each "
        f"round sampled answers to {loop.questions_per_round} questions of the best model so far; "
        f"at most {loop.items_per_round} pairs of answers (selection: {loop.selection}) were "
        f"rated by {loop.raters}. A good answer is supported and plausible. Intervals are 90 % "
        "intervals over questions unless stated otherwise.",
        "The best model so far, by validation questions: "
        + ", ".join(
            str(best_policy(place, loop.rounds - 1)[0].relative_to(place.folder.parent))
            for place in places
        ),
    ]

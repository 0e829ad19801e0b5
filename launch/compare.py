"""Compares the results of several evaluations: tables, preferences and the paper's figures.

    python launch/compare.py SFT=runs/sft/test RL=runs/rl/test --output runs/compared
    python launch/compare.py SFT=runs/sft/test RL=runs/rl/test --output runs/compared \\
      --ratings rated_answers.jsonl --preferences "SFT over gold=comparisons.jsonl"

Each NAME=PREFIX was written by launch/eval.py --output PREFIX. The questions that all systems have
answered are scored. Ratings are rated answers (docs/records.md), whose `model` names the
system. For comparisons, NAME says how often the second response is preferred.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import TypeVar

from named_paths import named_path, refuse_own_results, refuse_repeated

from gophercite.evaluation.intervals import Estimate
from gophercite.records import Comparison, RatedAnswer, Report, read_some
from gophercite.reports.figure_sections import SavedSystem, figures_section
from gophercite.reports.human import (
    Verdict,
    both_intervals,
    human_table,
    preference,
    rated_for_all,
)
from gophercite.reports.report_files import Section, write_report
from gophercite.reports.saved_results import (
    differences_table,
    preference_by_score,
    read_system,
    require_same_questions,
    shared,
    shared_table,
)
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import in_one_line

R = TypeVar("R", RatedAnswer, Comparison)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        systems = [read_system(name, prefix) for name, prefix in flags.system]
        require_same_questions(systems)
        sections = [*_automatic(systems), *_human(flags)]
        sections.append(figures_section({system.name: system for system in systems}))
        files = write_report(flags.output, flags.title, sections)
    except (OSError, ValueError) as error:
        print(f"compare: {in_one_line(error)}", file=sys.stderr)
        return 1
    for section in sections:
        for table in section.tables:
            print(f"{section.heading}\n\n{table.markdown()}")
    print(f"Written: {', '.join(files)}")
    return 0


def _automatic(systems: Sequence[SavedSystem]) -> list[Section]:
    """The sections that need no people.

    Raises:
      ValueError: no question was answered by all systems.
    """
    if not systems:
        return []
    answers = shared(systems)
    if not next(iter(answers.values())):
        raise ValueError(
            "no question was answered by all systems: do the results belong to the same questions?"
        )
    sections = [
        Section(
            "Automatic judgements",
            [
                "Percentages with 90 % intervals (Wilson) of the questions that all systems "
                "answered."
            ],
            [shared_table(answers)],
        )
    ]
    if len(answers) > 1:
        text = [
            "Differences in percentage points, question by question, with 90 % intervals "
            "(Student's t)."
        ]
        sections.append(Section("Differences", text, [differences_table(answers)]))
    found = {
        f"{second} over {first}": share
        for first, second in itertools.permutations(answers, 2)
        if (share := preference_by_score(answers[first], answers[second])) is not None
    }
    if found:
        text = ["By reward; a tie counts half."]
        sections.append(Section("Preferences of the reward model", text, [_preferences(found)]))
    return sections


def _human(flags: argparse.Namespace) -> list[Section]:
    """The sections with people's ratings and preferences."""
    sections = []
    intervals = (
        "± as in the paper, z √(p(1 − p)/n), and in brackets Wilson's interval; both are 90 % "
        "intervals."
    )
    if flags.ratings:
        rated = rated_for_all(a for path in flags.ratings for a in _read(path, RatedAnswer))
        text = [f"By majority, on the questions that were rated for every system; {intervals}"]
        text += _without_ratings(rated)
        sections.append(Section("People's ratings", text, [human_table(rated)]))
    found = {name: preference(_read(path, Comparison)) for name, path in flags.preferences}
    if found:
        text = [f"A tie counts half; {intervals}"]
        sections.append(Section("People's preferences", text, [_preferences(found)]))
    return sections


def _without_ratings(rated: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """Says which systems have no row of numbers, and why."""
    unrated = [name for name, verdicts in rated.items() if not verdicts]
    if len(unrated) < len(rated):
        return [f"Nothing of {name} was rated, so it is left out." for name in unrated]
    return ["No question was rated for every system."]


def _preferences(found: Mapping[str, Estimate | None]) -> Table:
    rows = [
        [name, str(share.count) if share else "0", both_intervals(share)]
        for name, share in found.items()
    ]
    return Table(["preferred", "comparisons", "%"], rows)


def _read(path: str, kind: type[R]) -> list[R]:
    report = Report()
    found = read_some(path, kind, report=report)
    if report.skipped:
        print(f"{path}: {report}", file=sys.stderr)
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "system", nargs="*", type=named_path, metavar="NAME=PREFIX", help="results of an evaluation"
    )
    add("--output", required=True, metavar="PREFIX", help="of the report: PREFIX.md, .html, .png")
    add("--title", default="Systems compared", help="of the report")
    add("--ratings", nargs="+", metavar="FILE", default=[], help="rated answers of the systems")
    add(
        "--preferences",
        nargs="+",
        type=named_path,
        metavar="NAME=FILE",
        default=[],
        help="comparisons of two systems, named by NAME",
    )
    flags = parser.parse_args(arguments)
    refuse_repeated(parser, "NAME=PREFIX", flags.system)
    refuse_repeated(parser, "--preferences", flags.preferences)
    refuse_own_results(parser, flags.output, [prefix for _, prefix in flags.system])
    if not (flags.system or flags.ratings or flags.preferences):
        parser.error("nothing to compare: give NAME=PREFIX, --ratings or --preferences")
    return flags


if __name__ == "__main__":
    sys.exit(main())

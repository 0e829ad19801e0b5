"""`gophercite validate`: checks files of JSON-lines records."""

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import Any

from gophercite.cli.arguments import add_command
from gophercite.cli.output import DONE, FAILED, RefusedError, print_json


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "validate",
        run,
        "check files of records (JSON lines)",
        (
            "questions.jsonl --kind questions",
            "train.jsonl.gz validation.jsonl.gz --kind rated-answers --json",
            "episodes.jsonl --kind episodes",
        ),
    )
    command.add_argument("files", nargs="+", metavar="FILE", help=".jsonl or .jsonl.gz")
    command.add_argument(
        "--kind",
        required=True,
        choices=(
            "documents",
            "questions",
            "rated-answers",
            "comparisons",
            "completions",
            "episodes",
        ),
        help="kind of records in the files (docs/records.md)",
    )


def run(options: argparse.Namespace) -> int:
    """Reads every record and reports the bad ones by file, line and field.

    Raises:
      RefusedError: a file has no records, or is damaged; the others were reported.
      OSError: a file can't be opened.
    """
    from gophercite import documents, records
    from gophercite.browser.episodes import read_episodes

    readers: dict[str, Callable[..., Iterator[Any]]] = {
        "documents": functools.partial(records.read, kind=documents.Document),
        "questions": functools.partial(records.read, kind=records.Question),
        "rated-answers": functools.partial(records.read, kind=records.RatedAnswer),
        "comparisons": functools.partial(records.read, kind=records.Comparison),
        "completions": functools.partial(records.read, kind=records.Completion),
        "episodes": read_episodes,
    }
    report = records.Report()
    unreadable = []  # named at the end, so that they hide nothing of the other files
    for file in options.files:
        before = report.read + report.skipped
        try:
            for _ in readers[options.kind](file, report=report):
                pass
        except records.RecordError as error:
            unreadable.append(str(error))
            continue
        if report.read + report.skipped == before:
            unreadable.append(f"{file}: holds no records")
    if options.json:
        print_json(
            {
                "read": report.read,
                "skipped": report.skipped,
                "errors": [
                    {"file": e.path, "line": e.line, "field": e.field, "problem": e.problem}
                    for e in report.errors
                ],
                "unknown_fields": dict(report.unknown_fields),
            }
        )
    elif report.read or report.skipped:
        print(report)
    if unreadable:
        raise RefusedError("; ".join(unreadable))
    return FAILED if report.skipped else DONE

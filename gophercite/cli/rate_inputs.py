"""What raters rate, and by which settings, from the flags of `gophercite rate new` and `add`."""

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from gophercite import records
from gophercite.cli.browsed import refuse_flags_of_ratings
from gophercite.cli.output import RefusedError, note
from gophercite.documents import Document
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Settings
from gophercite.ratings.forms import DEMONSTRATION, FORMS
from gophercite.ratings.items import NewItem
from gophercite.ratings.loading import (
    MATERIAL,
    Loaded,
    read_items,
    read_questions,
    read_written_items,
)


def settings_from(options: argparse.Namespace) -> Settings:
    """Returns the settings of a new experiment.

    Raises:
      RefusedError: `--set` is not of the form NAME=VALUE, or turns off what another flag needs.
      StudyError: a setting is unknown, or a value is invalid.
    """
    values: dict[str, Any] = {"gold_every": 1} if options.screening else {}
    values |= {"raters": 1} if options.form == DEMONSTRATION else {}
    values |= {"gold_every": 8} if options.gold and not options.screening else {}
    for setting in options.settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise RefusedError(f"--set {setting}: expected NAME=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    settings = Settings.of(values)
    if (options.screening or options.gold) and not settings.gold_every:
        flag = "--screening" if options.screening else "--gold"
        raise RefusedError(f"{flag}: needs gold_every to be 1 or more, not 0 as --set says")
    return settings


def items_from(options: argparse.Namespace, form: str, *, as_gold: bool = False) -> Loaded:
    """Returns the items of the files, and those of `--gold`.

    Args:
      options: options of `gophercite rate new` or `add`.
      form: the form that the items are for.
      as_gold: the files themselves have the right labels.

    Raises:
      RefusedError: a flag is not for this form.
      FileNotFoundError, RecordError: a file is missing or damaged.
    """
    if form == DEMONSTRATION:
        refuse_flags_of_ratings(options)
        return read_questions(options.files)
    documents = list(records_of(options.documents, Document))
    questions = list(records_of(options.questions, records.Question))
    loaded = read_items(options.files, FORMS[form], documents, questions, as_gold=as_gold)
    gold = read_items(options.gold, FORMS[form], documents, questions, as_gold=True)
    return Loaded(
        [*loaded.items, *gold.items],
        [*loaded.errors, *gold.errors],
        loaded.left_over + gold.left_over,
    )


def written_from(options: argparse.Namespace, settings: Settings) -> list[NewItem]:
    """Returns the attention checks and examples: those of the flags, or else our own.

    Args:
      options: options of `gophercite rate new`.
      settings: the experiment's settings.

    Raises:
      FileNotFoundError, RecordError: a file is missing, or a line of it is bad.
    """
    found: list[NewItem] = []
    for file, what, role in (
        (options.checks, "checks", Role.CHECK),
        (options.examples, "examples", Role.EXAMPLE),
    ):
        own = MATERIAL / f"{options.form}_{what}.jsonl"
        path = pathlib.Path(file) if file else own
        if file != "none" and (file or own.exists()):
            found += read_written_items(path, role, FORMS[options.form], settings)
    return found


def records_of(files: list[str], kind: Any) -> Iterator[Any]:
    """Yields the records of files; bad lines are named on stderr and left out.

    Raises:
      FileNotFoundError, RecordError: a file is missing or damaged.
    """
    for file in files:
        report = records.Report()
        yield from records.read(file, kind, report=report)
        if report.skipped:
            note(f"{file}: {report}")

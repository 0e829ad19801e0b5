"""What raters rate, and by which settings, from the flags of `gophercite rate new` and `add`."""

import argparse
import json
import math
import pathlib
from typing import Any

from gophercite import records
from gophercite.cli.browsed import refuse_flags_of_ratings
from gophercite.cli.output import RefusedError
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
from gophercite.storage.json_fields import RecordError

_LARGEST = (1 << 31) - 1  # in all databases; a seed is only a text to them


def settings_from(options: argparse.Namespace) -> Settings:
    """Returns the settings of a new experiment.

    Raises:
      RefusedError: `--set` is not of the form NAME=VALUE, has a number that is too large, is for
        another form, or turns off what another flag needs.
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
            values[name] = value = json.loads(text)
        except ValueError:
            values[name] = value = text
        if isinstance(value, int | float) and _LARGEST < value < math.inf and name != "seed":
            raise RefusedError(f"--set {setting:.60}: must be at most {_LARGEST}")
    settings = Settings.of(values)
    used = FORMS[options.form].settings
    for setting in options.settings:
        if (name := setting.partition("=")[0]) not in used:
            raise RefusedError(
                f"--set {setting}: the form {options.form!r} does not use {name}; "
                f"it uses {', '.join(used)}"
            )
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
      RefusedError: a flag is not for this form, or no line of its file is usable.
      FileNotFoundError, RecordError: a file is missing or damaged.
    """
    if form == DEMONSTRATION:
        refuse_flags_of_ratings(options)
        return read_questions(options.files)
    documents, bad_documents = records_of("--documents", options.documents, Document)
    questions, bad_questions = records_of("--questions", options.questions, records.Question)
    loaded = read_items(options.files, FORMS[form], documents, questions, as_gold=as_gold)
    gold = read_items(options.gold, FORMS[form], documents, questions, as_gold=True)
    return Loaded(
        [*loaded.items, *gold.items],
        [*loaded.errors, *gold.errors, *bad_documents, *bad_questions],
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


def records_of(flag: str, files: list[str], kind: Any) -> tuple[list[Any], list[RecordError]]:
    """Returns the records of files, and the errors of the bad lines.

    Raises:
      RefusedError: no line of a file is usable.
      FileNotFoundError, RecordError: a file is missing or damaged.
    """
    found: list[Any] = []
    errors: list[RecordError] = []
    for file in files:
        report = records.Report()
        found += records.read(file, kind, report=report)
        if not report.read:
            first = "".join(f"\n{error}" for error in report.errors[:3])
            raise RefusedError(f"{flag} {file}: no line of it is usable{first}")
        errors += report.errors
    return found, errors

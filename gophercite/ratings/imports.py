"""Imports ratings from CSV with a header or from JSON lines; each row is a vote on an item."""

import collections
import csv
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from gophercite.ratings import assignment
from gophercite.ratings.assignment import Outcome, Role
from gophercite.ratings.experiments import Experiment, Settings, add_rater
from gophercite.ratings.forms import DEMONSTRATION, FORMS, read_values
from gophercite.ratings.items import StoredItem, items_of
from gophercite.ratings.store import Store, StudyError, note
from gophercite.storage.json_fields import RecordError, describe, nearest
from gophercite.storage.json_lines import read_json_lines

_OWN = frozenset({"item", "rater", "seconds"})


@dataclasses.dataclass
class Imported:
    """The result of an import.

    Attributes:
      votes: number of votes added.
      revised: how many of them supersede an earlier vote of the same rater on the same item.
      there: number of votes that were already there.
      errors: one for each row that was left out.
    """

    votes: int = 0
    revised: int = 0
    there: int = 0
    errors: list[RecordError] = dataclasses.field(default_factory=list)


def import_votes(store: Store, experiment: Experiment, path: str | os.PathLike[str]) -> Imported:
    """Adds votes; a bad row is reported and left out.

    A row has `item` (its name), `rater`, optionally `seconds`, and the form's fields in the
    answers' own order: `plausible_0`, `preferred` and so on. New raters join the pool.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: the file has no rows, two of its columns have the same name, or it can't be read
        to its end.
      StudyError: the experiment collects demonstrations.
    """
    if experiment.interface == DEMONSTRATION:
        raise StudyError(
            f"experiment {experiment.name!r} collects episodes, but only votes can be imported; "
            "to train on episodes from elsewhere, use their files directly"
        )
    with store.reading() as connection:
        by_name = {
            each.name: each for each in items_of(connection, experiment, Role.ITEM, Role.GOLD)
        }
    done = Imported()
    raters: dict[str, int] = {}
    for number, row in _rows(pathlib.Path(path)):
        try:
            if isinstance(row, RecordError):
                raise row
            stored = _item(row, by_name)
            values = _values(row, stored, experiment)
            name = _name_of(row)
            if name not in raters:
                raters[name] = add_rater(store, name, experiment.pool).id
            seconds = _seconds(row)
            with store.writing() as connection:
                now = store.now()
                outcome = assignment.vote(
                    connection, now, experiment, stored.id, raters[name], values, now - seconds
                )
            done.there += outcome is Outcome.SAME
            done.votes += outcome is not Outcome.SAME
            done.revised += outcome is Outcome.REVISED
        except RecordError as error:
            done.errors.append(RecordError(error.problem, error.field, path, number))
        except StudyError as error:
            done.errors.append(RecordError(str(error), "rater", path, number))
    if not (done.votes or done.there or done.errors):
        raise RecordError("contains no votes", None, path)
    said = {"experiment": experiment.name, "votes": done.votes, "errors": len(done.errors)}
    with store.writing() as connection:
        note(connection, store.now(), "command", "imported", said)
    return done


def _rows(path: pathlib.Path) -> Iterator[tuple[int, Mapping[str, Any] | RecordError]]:
    if path.suffix.lower() != ".csv":
        for number, value in read_json_lines(path):
            is_row = isinstance(value, dict | RecordError)
            yield number, value if is_row else RecordError("expected an object")  # type: ignore[misc]
        return
    names: list[str] = []
    for number, cells in _cells(path):
        if not names:
            names = cells
            _check_header(names, path, number)
        elif len(cells) > len(names):
            yield number, RecordError("has more cells than the header")
        else:
            yield number, {name: cell for name, cell in zip(names, cells, strict=False) if cell}


def _cells(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of each row that is not blank, with the number of the line it begins on.

    Raises:
      RecordError: a line is not UTF-8, or a row is not CSV: what follows might be part of it.
    """

    def lines() -> Iterator[str]:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    problem = f"byte {error.start + 1} is not UTF-8: save the file as UTF-8"
                    raise RecordError(problem, None, path, number) from None
                yield text.removeprefix("\ufeff") if number == 1 else text

    # Strict: otherwise all that follows an open quotation mark becomes part of its cell.
    reader = csv.reader(lines(), strict=True)
    while True:
        begins = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"the row that begins here can't be read: {error}"
            raise RecordError(problem, None, path, begins) from None
        if cells:
            yield begins, [cell.replace("\r\n", "\n") for cell in cells]  # as forms are stored


def _check_header(names: list[str], path: pathlib.Path, number: int) -> None:
    if twice := [repr(name) for name, count in collections.Counter(names).items() if count > 1]:
        raise RecordError(f"has several columns named {', '.join(twice)}", None, path, number)
    for name in ("item", "rater"):
        if name not in names:
            near = next((each for each in names if each.strip().lower() == name), None)
            near = near or nearest(name, names)
            hint = f"; did you mean {near!r}?" if near else ""
            shown = ", ".join(repr(each[:40]) for each in names[:20])
            problem = f"has no column named {name!r}{hint or f', only {shown}'}"
            raise RecordError(problem, None, path, number)


def _item(row: Mapping[str, Any], by_name: Mapping[str, StoredItem]) -> StoredItem:
    name = row.get("item")
    if not isinstance(name, str) or name not in by_name:
        near = nearest(name, by_name) if isinstance(name, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise RecordError(f"no item is named {describe(name)}{hint}", "item")
    return by_name[name]


def _name_of(row: Mapping[str, Any]) -> str:
    name = row.get("rater")
    if not isinstance(name, str):
        raise RecordError(f"expected the rater's name, got {describe(name)}", "rater")
    return name


def _seconds(row: Mapping[str, Any]) -> float:
    given = row.get("seconds")
    try:
        seconds = math.nan if isinstance(given, bool) else float(given or 0)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        said = f"expected a number, at least 0, got {describe(given)}"
        raise RecordError(said, "seconds")
    return seconds


def _values(row: Mapping[str, Any], stored: StoredItem, experiment: Experiment) -> dict[str, str]:
    form, settings = FORMS[experiment.interface], Settings(comment_words=0)
    fields = form.fields(stored.item, settings)
    known = {field.name for field in fields}
    sent: dict[str, str] = {}
    for name, value in row.items():
        if name in _OWN:
            continue
        if name not in known:
            near = nearest(name, known)
            hint = (
                f"; did you mean {near!r}?"
                if near
                else f"; its questions are {', '.join(sorted(known))}"
            )
            raise RecordError(f"the form has no such question{hint}", name)
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise RecordError(f"expected text, got {describe(value)}", name)
        sent[name] = str(value)
    values, wrong = read_values(fields, sent)
    for name in wrong:
        allowed = next(field.values for field in fields if field.name == name)
        said = f"expected one of {', '.join(sorted(allowed))}, got {describe(sent[name])}"
        raise RecordError(said if allowed else wrong[name], name)
    if not values.keys() - {"comment"}:
        raise RecordError("answers none of the form's questions")
    return values

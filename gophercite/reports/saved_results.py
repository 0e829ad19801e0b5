"""Results of several evaluations, read back and compared."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from gophercite.evaluation import line_fields
from gophercite.evaluation.curves import GOOD, SCORES, Line
from gophercite.evaluation.differences import mean_difference
from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.reports.figure_sections import SavedSystem
from gophercite.reports.report import CITATION_HEADINGS, HEADINGS
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import JsonFields, RecordError
from gophercite.storage.json_lines import read_json_lines, read_one

_HEADINGS = HEADINGS | CITATION_HEADINGS  # fields of lines by the headings of their columns
_SHARES = {*_HEADINGS.values(), *GOOD}  # numbers from 0 to 1 that figures and tables compute with


class SavedResultsError(ValueError):
    """Results that can't be read; the message names the file, and the line and field if any."""


def read_system(name: str, prefix: epath.PathLike) -> SavedSystem:
    """Reads what an evaluation wrote with this prefix.

    Args:
      name: what to call the system.
      prefix: prefix of its results, a path or a URL.

    Raises:
      SavedResultsError: there are no such results, a line is not a result, or two lines are of one
        question.
    """
    root = f"{epath.Path(prefix)}"
    every = _lines(epath.Path(f"{root}.jsonl"), each_once=True)
    answers = [line for line in every if not line.get("declined")]
    samples = epath.Path(f"{root}_samples.jsonl")
    return SavedSystem(
        name,
        answers,
        _lines(samples) if samples.exists() else answers,  # one sample a question
        _parameters(epath.Path(f"{root}.json")),
    )


def shared(systems: Sequence[SavedSystem]) -> dict[str, list[Line]]:
    """Returns each system's answers to the questions that all systems answered, in the same order.

    Args:
      systems: with distinct names.
    """
    by_question = [{line["question_id"]: line for line in system.answers} for system in systems]
    everywhere = [
        question
        for question in (by_question[0] if by_question else {})
        if all(question in found for found in by_question)
    ]
    return {
        system.name: [found[question] for question in everywhere]
        for system, found in zip(systems, by_question, strict=True)
    }


def require_same_questions(systems: Sequence[SavedSystem]) -> None:
    """Refuses results of different questions, which have the same ids in different files.

    Args:
      systems: what is compared; lines of earlier versions lack the question's text.

    Raises:
      SavedResultsError: two lines of one id have different questions.
    """
    first: dict[str, tuple[str, str]] = {}
    for system in systems:
        for line in itertools.chain(system.answers, system.samples):
            id, text = line["question_id"], line.get("question")
            if not isinstance(text, str):
                continue
            known, of = first.setdefault(id, (text, system.name))
            if text != known:
                raise SavedResultsError(
                    f"question {id!r} is {known[:200]!r} of {of} and {text[:200]!r} of "
                    f"{system.name}: their questions must be the same"
                )


def shared_table(answers: Mapping[str, Sequence[Line]]) -> Table:
    """Returns a row for each system: shares in percent with 90 % intervals (table 1).

    Args:
      answers: each system's answers to the same questions (`shared`).
    """
    columns = _known_columns(answers)
    rows = []
    for name, lines in answers.items():
        cells = []
        for field in columns.values():
            known = [float(line[field]) for line in lines if line.get(field) is not None]
            cells.append(str(estimate(known)) if known else "–")
        rows.append([name, str(len(lines)), *cells])
    return Table(["system", "answers", *columns], rows)


def differences_table(answers: Mapping[str, Sequence[Line]]) -> Table:
    """Returns by how many percentage points each system differs from the first (90 % intervals).

    Questions are compared in pairs: what makes a question hard is hard for both systems and cancels
    out. So a difference can be significant even if the intervals of the two shares overlap.

    Args:
      answers: each system's answers to the same questions (`shared`).
    """
    (base, first), *others = answers.items()
    columns = _known_columns(answers)
    rows = []
    for name, lines in others:
        cells = []
        for field in columns.values():
            pairs = [
                (one.get(field), other.get(field)) for one, other in zip(first, lines, strict=True)
            ]
            known = [float(b) - float(a) for a, b in pairs if a is not None and b is not None]
            cells.append(str(mean_difference(known)) if known else "–")
        rows.append([f"{name} minus {base}", *cells])
    return Table(["system", *columns], rows)


def _known_columns(answers: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """The fields that at least one answer has, by their headings."""
    return {
        heading: field
        for heading, field in _HEADINGS.items()
        if any(line.get(field) is not None for lines in answers.values() for line in lines)
    }


def preference_by_score(
    first: Sequence[Line], second: Sequence[Line], score: str = "reward"
) -> Estimate | None:
    """Returns how often the second system's answer has the higher score; a tie counts half.

    Args:
      first: answers of one system.
      second: answers of another to the same questions, in the same order.
      score: the score that decides; the result is None if some answer lacks it.
    """
    points = []
    for one, other in zip(first, second, strict=True):
        if one.get(score) is None or other.get(score) is None:
            return None
        points.append(0.5 * (1 + (other[score] > one[score]) - (other[score] < one[score])))
    return estimate(points) if points else None


def _lines(path: epath.Path, *, each_once: bool = False) -> list[dict[str, Any]]:
    """The lines of a file; with `each_once`, no two may be of one question."""
    lines = []
    first_lines: dict[str, int] = {}
    try:
        for number, value in read_json_lines(path):
            try:
                line = _line(value)
                id = line["question_id"]
                first = first_lines.setdefault(id, number)
                if each_once and first != number:
                    raise RecordError(f"{id!r} is already in line {first}", "question_id")
                lines.append(line)
            except RecordError as error:
                raise RecordError(error.problem, error.field, path, number) from None
    except FileNotFoundError:
        raise SavedResultsError(
            f"{path}: there is no such file; launch/eval.py --output writes it"
        ) from None
    except RecordError as error:
        raise SavedResultsError(str(error)) from None
    return lines


def _line(value: object) -> dict[str, Any]:
    """A line's fields, those that reports use checked; earlier versions wrote fewer."""
    if isinstance(value, RecordError):
        raise value
    fields = JsonFields(value, None, Counter())
    for name in _SHARES:
        line_fields.share(fields, name)
    for name in SCORES:
        line_fields.number(fields, name)
    for name in ("declined", "quote_lacks_claim"):
        fields.flag(name)
    fields.texts("faults")
    if "text" in fields:
        fields.text("text", empty=True, raw=True)
    id = fields.values.get("question_id")
    if not isinstance(id, int) or isinstance(id, bool):
        id = fields.text("question_id", empty=True, raw=True)
    return {**fields.values, "question_id": str(id)}


def _parameters(path: epath.Path) -> int | None:
    """The model's number of parameters, if it was recorded."""

    def parse(value: object) -> int | None:
        run = JsonFields(value, None, Counter()).optional_object("run", None)
        number = run.optional_number("parameters") if run else None
        if run and number is not None and number < 1:
            raise run.error("parameters", f"expected a number from 1, got {number:g}")
        return None if number is None else int(number)

    try:
        return read_one(path, parse)
    except FileNotFoundError:
        return None
    except RecordError as error:
        raise SavedResultsError(str(error)) from None

"""Items from files: comparisons, rated answers, answers of `gophercite ask`, long answers.

The kind of a line is known by its fields. For a form with two answers, each comparison becomes an
item, and single answers to the same question are paired: the first with the second, the third with
the fourth. A bad line is reported and left out.
"""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gophercite import evidence, records
from gophercite.documents import Document
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Settings
from gophercite.ratings.forms import MOST_FIELDS, Field, Form
from gophercite.ratings.items import Answer, Claim, Item, NewItem, Place
from gophercite.records import Comparison, Extract, LongAnswer, Question, RatedAnswer
from gophercite.records.answers import Answer as AskedAnswer
from gophercite.records.answers import answer_from_json
from gophercite.reports.human import majority, verdict
from gophercite.storage.json_fields import JsonFields, RecordError, describe, nearest
from gophercite.storage.json_lines import read_json_lines
from gophercite.text.counting import counted

# Attention checks and examples of the forms: `FORM_checks.jsonl`, `FORM_examples.jsonl`.
MATERIAL = pathlib.Path(__file__).parent / "material"

_Labels = dict[str, str | list[str]]  # right values by the forms' fields, as `is_right` takes them
# What a comparison's `preferred` means in the forms: a side, or one half of a scale.
_PREFERENCES: Mapping[float, _Labels] = {
    0.0: {"preferred": "0", "overall": ["-2", "-1"]},
    0.5: {"preferred": "tie", "overall": "0"},
    1.0: {"preferred": "1", "overall": ["1", "2"]},
}


@dataclasses.dataclass
class Loaded:
    """Items that were read from files.

    Attributes:
      items: the items to add.
      errors: one for each bad line.
      left_over: number of answers without another answer to be compared with.
    """

    items: list[NewItem] = dataclasses.field(default_factory=list)
    errors: list[RecordError] = dataclasses.field(default_factory=list)
    left_over: int = 0


@dataclasses.dataclass(frozen=True)
class _Single:
    """A line's single answer, before it becomes part of an item."""

    question_id: str
    question: str
    answer: Answer
    pages: tuple[Document, ...]
    labels: _Labels
    place: Place | None = None


def read_items(
    files: Sequence[str | os.PathLike[str]],
    form: Form,
    documents: Iterable[Document] = (),
    questions: Iterable[Question] = (),
    *,
    as_gold: bool = False,
) -> Loaded:
    """Reads items from JSON lines.

    Args:
      files: `.jsonl` or `.jsonl.gz`; they may hold output of `gophercite ask --json`, one object
        per line.
      form: the form that the items are for.
      documents: pages to search by title and quote, for lines without their own.
      questions: questions with their trusted answers, for TruthfulQA.
      as_gold: the lines have labels with which raters are compared. Labels that the form does not
        ask for are ignored; a line with no other labels is bad.

    Returns:
      The items, the errors and the number of answers left over.

    Raises:
      FileNotFoundError: there is no such file.
      RecordError: a compressed file is damaged, or no line of a file can be read.
    """
    by_title: dict[str, list[Document]] = {}
    for document in documents:
        by_title.setdefault(document.title, []).append(document)
    trusted = {each.question: each for each in questions}
    loaded, singles = Loaded(), dict[str, list[_Single]]()
    names: set[str] = set()

    def add(
        name: str, item: Item, pages: Iterable[Document], labels: _Labels, place: Place | None
    ) -> None:
        if known := trusted.get(item.question):
            item = dataclasses.replace(
                item, correct=known.answers, incorrect=known.incorrect_answers
            )
        if name in names:
            raise RecordError(f"{name!r} is already the id of another line", "id")
        _check_item(item, form)
        if form.name in ("truthfulqa", "stance") and not (item.correct or item.incorrect):
            what = "beliefs" if form.name == "stance" else "trusted answers"
            raise RecordError(
                f"the question {item.question!r} has no {what}: "
                "name a file of questions that has them"
            )
        expected = None
        if as_gold:
            asked = {field.name for field in form.fields(item, Settings())}
            expected = {each: right for each, right in labels.items() if each in asked}
            if not expected:
                raise RecordError(f"has no labels for the questions of the form {form.name!r}")
        names.add(name)
        role = Role.GOLD if as_gold else Role.ITEM
        loaded.items.append(NewItem(name, item, role, expected, tuple(pages), place))

    for file in files:
        bad, any_good = len(loaded.errors), False
        for number, value in read_json_lines(file):
            try:
                if isinstance(value, RecordError):
                    raise value
                found = _parse(value, by_title)
                any_good = True
                if isinstance(found, _Single):
                    placed = dataclasses.replace(found, place=(file, number))
                    singles.setdefault(found.question_id, []).append(placed)
                else:
                    add(*found, (file, number))
            except RecordError as error:
                loaded.errors.append(RecordError(error.problem, error.field, file, number))
        if not any_good:
            raise _nothing_to_rate(file, loaded.errors[bad:])
    for made, place in _of_singles(singles, form.answers, loaded):
        try:
            add(*made, None)  # its name is made up
        except RecordError as error:
            loaded.errors.append(RecordError(error.problem, error.field, *(place or ())))
    return loaded


def read_questions(files: Sequence[str | os.PathLike[str]]) -> Loaded:
    """Reads questions that raters answer by browsing; pages that give the answer are censored.

    Args:
      files: `.jsonl` or `.jsonl.gz` of questions.

    Raises:
      FileNotFoundError, RecordError: as in `records.read`.
    """
    loaded, names = Loaded(), set[str]()
    for file in files:
        report = records.Report()
        for each in records.read(file, Question, report=report):
            if each.id in names:
                problem = f"{each.id!r} is already the id of a question in another file"
                loaded.errors.append(RecordError(problem, "id", file))
                continue
            names.add(each.id)
            item = Item(each.id, each.question, each.source, (), each.answers)
            loaded.items.append(NewItem(each.id, item, place=(file, None)))
        if not report.read:
            raise _nothing_to_rate(file, report.errors)
        loaded.errors += report.errors
    return loaded


def _nothing_to_rate(file: str | os.PathLike[str], errors: Sequence[RecordError]) -> RecordError:
    return records.none_usable(file, errors, "nothing to rate")


def read_written_items(
    path: str | os.PathLike[str], role: Role, form: Form, settings: Settings
) -> Iterator[NewItem]:
    """Reads attention checks or examples: a question, answers, the right values, and why.

    A line is `{"question", "answers": [{"claim", "title", "quote"} or {"text", "references"}],
    "expected": {field of the form: value or values}, "reason"}`, with `correct` and `incorrect` for
    TruthfulQA.

    Args:
      path: `.jsonl` or `.jsonl.gz`.
      role: `CHECK` or `EXAMPLE`.
      form: the form that the items are for.
      settings: the experiment's settings; what a form asks may depend on them.

    Raises:
      RecordError: a line does not look like this, or expects values that the form does not allow.
        No line is skipped, since all checks must be right.
    """
    names = {field.name for field in dataclasses.fields(Item)} | {"expected"}
    number = 0
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            fields = JsonFields(value, names, collections.Counter())
            answers = tuple(_written_answer(each) for each in fields.objects("answers", None))
            expected = fields.values.get("expected")
            if not isinstance(expected, dict) or not expected:
                raise fields.error(
                    "expected", "must give the right answers, by the names of the form's questions"
                )
            item = Item(
                str(number),
                fields.text("question"),
                "written",
                answers,
                fields.texts("correct"),
                fields.texts("incorrect"),
                reason=fields.text("reason"),
            )
            _check_item(item, form)
            _check_expected(fields, expected, form.fields(item, settings))
            name = f"{role.value} {number}"
            yield NewItem(name, item, role, expected, place=(path, number))
        except RecordError as error:
            raise RecordError(error.problem, error.field, path, number) from None
    if not number:
        what = f"{role.value}s"
        raise RecordError(f"holds no {what}; for none at all say `--{what} none`", None, path)


def _check_expected(
    fields: JsonFields, expected: Mapping[str, object], asked: Iterable[Field]
) -> None:
    """Refuses values that the form does not have: every rater would fail the check."""
    choices = {field.name: field.values - {""} for field in asked if field.choices}
    for name, right in expected.items():
        if name not in choices:
            near = nearest(name, choices)
            hint = f"did you mean {near!r}?" if near else f"its questions are {', '.join(choices)}"
            raise fields.error(f"expected.{name}", f"the form has no such question; {hint}")
        values = right if isinstance(right, list) else [right]
        if not values or not all(isinstance(v, str) and v in choices[name] for v in values):
            known = ", ".join(sorted(choices[name]))
            problem = f"expected one or a list of {known}, got {describe(right)}"
            raise fields.error(f"expected.{name}", problem)


def _check_item(item: Item, form: Form) -> None:
    if len(item.answers) not in form.answers:
        has, right = counted(len(item.answers), "answer"), " or ".join(map(str, form.answers))
        raise RecordError(f"has {has}; the form {form.name!r} needs {right}")
    if (asked := len(form.fields(item, Settings()))) > MOST_FIELDS:
        raise RecordError(f"needs a form with {asked} questions; at most {MOST_FIELDS} can be sent")


def _written_answer(fields: JsonFields) -> Answer:
    if "text" in fields:
        references = tuple(
            Extract(each.text("title"), each.text("extract"), url=each.optional_text("url"))
            for each in fields.objects("references", None)
        )
        return Answer(text=fields.text("text"), references=references)
    claim = Claim(fields.text("claim"), fields.text("title"), fields.text("quote"))
    return Answer((claim,))


# --- Lines ---

_Found = tuple[str, Item, tuple[Document, ...], _Labels]
_Pages = Mapping[str, Sequence[Document]]


def _parse(value: object, by_title: _Pages) -> _Single | _Found:
    if not isinstance(value, dict):
        raise RecordError("expected an object")
    if "responses" in value:
        return _comparison(records.from_json(value, Comparison), by_title)
    if "claim" in value:
        return _rated_answer(records.from_json(value, RatedAnswer), by_title)
    if "declined" in value:
        return _asked_answer(answer_from_json(value), by_title)
    raise RecordError(
        "is neither a comparison (`responses`), nor a rated answer (`claim`), nor what "
        "`gophercite ask --json` prints (`declined`)"
    )


def _comparison(record: Comparison, by_title: _Pages) -> _Found:
    answers, pages = [], []
    for response in record.responses:
        if isinstance(response, str):
            answers.append(Answer(text=response))
            continue
        if isinstance(response, LongAnswer):
            answers.append(Answer(text=response.answer, references=response.references))
            continue
        claims = []
        for triple in response:
            claim, page = _placed(triple.claim, triple.title, triple.quote, by_title)
            claims.append(claim)
            pages += [page] if page else []
        answers.append(Answer(tuple(claims)))
    item = Item(record.id, record.question, record.source, tuple(answers))
    return record.id, item, tuple(pages), _labels(record)


def _labels(record: Comparison) -> _Labels:
    """The researchers' labels by the fields of all forms, decided by majority.

    A rating has them under the form's fields, or as exports do: `"plausible": [true, false]`.
    """
    labels: _Labels = {}
    if record.preferred is not None:
        labels |= _PREFERENCES.get(record.preferred, {})
    for a in (0, 1):
        for name in ("plausible", "supported"):
            votes = [_label(rating, name, a) for rating in record.ratings]
            decided = majority(vote for vote in votes if vote is not None)
            if decided is not None:
                labels[f"{name}_{a}"] = "yes" if decided else "no"
            elif record.supported_and_plausible[a]:
                labels[f"{name}_{a}"] = "yes"
    return labels


def _label(rating: Mapping[str, Any], name: str, answer: int) -> bool | None:
    match rating.get(name):
        case [bool() | None, bool() | None] as both:
            return both[answer]
    return {"yes": True, "no": False}.get(str(rating.get(f"{name}_{answer}")))


def _rated_answer(record: RatedAnswer, by_title: _Pages) -> _Single:
    shown = {source.id: source for source in record.documents}
    quoted, pages = shown[record.document], []
    own = {quoted.title: [quoted]} if isinstance(quoted, Document) else by_title
    claim, page = _placed(record.claim, record.title, record.quote, own)
    documents = []
    for source in record.documents:
        if isinstance(source, Document):
            pages.append(Document(*(getattr(source, f) for f in _DOCUMENT)))
            documents.append({"id": source.id, "sha256": source.sha256})
        else:
            documents.append({"id": source.id, "snippet": source.snippet})
    answer = Answer(
        (claim,), document=record.document, documents=tuple(documents), model=record.model
    )
    judged = dataclasses.asdict(verdict(record))
    labels: _Labels = {
        f"{name}_0": "yes" if value else "no" for name, value in judged.items() if value is not None
    }
    kept = (*pages, *([page] if page else []))
    return _Single(record.question_id, record.question, answer, kept, labels)


_DOCUMENT = ("id", "title", "text", "url", "retrieved_at")


def _asked_answer(record: AskedAnswer, by_title: _Pages) -> _Single:
    if record.declined:
        raise RecordError(f"{record.question!r} was declined: there is no answer to rate")
    claims, pages = [], []
    documents: dict[str, dict[str, str]] = {}
    for cited in record.citations:
        claim, page = _placed(cited.claim, cited.title, cited.quote, by_title, cited.url)
        claims.append(claim)
        pages += [page] if page else []
        kept = {"sha256": page.sha256} if page else {"snippet": cited.quote}
        documents.setdefault(cited.document, {"id": cited.document, **kept})
    answer = Answer(
        tuple(claims),
        document=record.citations[0].document,
        documents=tuple(documents.values()),
        model=record.model,
    )
    return _Single(record.question, record.question, answer, tuple(pages), {})


def _placed(
    claim: str, title: str, quote: str, by_title: _Pages, url: str | None = None
) -> tuple[Claim, Document | None]:
    """A claim with the page of its title that contains the quote, and the quote's offsets in it."""
    for page in by_title.get(title, ()):
        start = evidence.fold_case(page.text).find(evidence.fold_case(quote))
        if start >= 0:
            place = page.sha256, start, start + len(quote)
            return Claim(claim, title, quote, page.url or url, *place), page
    return Claim(claim, title, quote, url), None


def _of_singles(
    singles: Mapping[str, Sequence[_Single]], counts: tuple[int, ...], loaded: Loaded
) -> Iterator[tuple[_Found, Place | None]]:
    """Single answers as items: paired per question if the form takes two, otherwise alone.

    Each has the place of its answer, or of the second one.
    """
    for question_id, answers in singles.items():
        paired = len(answers) // 2 * 2 if 2 in counts else 0
        for number in range(0, paired, 2):
            second = answers[number + 1]
            yield _pair(question_id, number, answers[number], second), second.place
        for number, each in enumerate(answers[paired:], paired):
            if 1 not in counts:
                loaded.left_over += 1
                continue
            item = Item(question_id, each.question, "answers", (each.answer,))
            found = _numbered(question_id, number), item, each.pages, each.labels
            yield found, each.place


def _pair(question_id: str, number: int, first: _Single, second: _Single) -> _Found:
    item = Item(question_id, first.question, "answers", (first.answer, second.answer))
    of_second = {name.replace("_0", "_1"): value for name, value in second.labels.items()}
    pages = (*first.pages, *second.pages)
    return _numbered(question_id, number), item, pages, first.labels | of_second


def _numbered(question_id: str, number: int) -> str:
    return f"{question_id} {number}" if number else question_id

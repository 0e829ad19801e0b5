"""The output of every converter: a question, its passage, and the place of the answer."""

import collections
import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gophercite.documents import Document, normalise_text
from gophercite.storage.json_fields import RecordError
from gophercite.storage.json_lines import read_json_lines

KEPT_PROBLEMS = 100


@dataclasses.dataclass(frozen=True)
class GoldQuestion:
    """A question of a data set with the passage that answers it.

    Attributes:
      id: identifies the question within its file.
      question: its text.
      document: the passage.
      group: an article or story, which must not be divided between train, validation and test.
      answers: accepted answers, the best first, without duplicates.
      span: span of `answers[0]` in the document's text, or of the sentence that says it in other
        words; None if the document doesn't say it.
      page: name of the article or story without the file's name, if `group` includes that.
    """

    id: str
    question: str
    document: Document
    group: str
    answers: tuple[str, ...]
    span: tuple[int, int] | None
    page: str | None = None


class BadRecord(ValueError):  # noqa: N818 (it is reported and skipped, and is not an error)
    """Something in a source file that cannot be converted; the message says what is wrong."""


@dataclasses.dataclass
class ConversionReport:
    """Counts of what happened to the records of a source file.

    Attributes:
      counts: number of records written, by kind, and of records left out, by reason.
      problems: the first `KEPT_PROBLEMS` bad records, each with its place in the file.
      strict: whether the first bad record ends the conversion.
    """

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    problems: list[str] = dataclasses.field(default_factory=list)
    strict: bool = False

    def skip(self, place: str, problem: str) -> None:
        """Counts a bad record and keeps its place and problem.

        Raises:
          RecordError: the conversion is `strict`; the message has place and problem.
        """
        if self.strict:
            raise RecordError(f"{place}: {problem}")
        self.counts["bad records skipped"] += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(f"{place}: {problem}")

    @contextlib.contextmanager
    def skipping(self, place: str) -> Iterator[None]:
        """Skips a record if the block finds it to be bad, and reports it with its place."""
        try:
            yield
        except ValueError as problem:  # a `BadRecord`, or a library's error about a bad value
            self.skip(place, str(problem))

    def summary(self) -> str:
        """Returns one line for each count."""
        return "\n".join(f"{count:7d} {what}" for what, count in self.counts.items())

    def named_problems(self) -> list[str]:
        """Returns one line for each problem that was kept, and one for the rest."""
        unnamed = self.counts["bad records skipped"] - len(self.problems)
        return [*self.problems, *([f"… and {unnamed} more"] if unnamed > 0 else [])]


Converter = Callable[[Path, ConversionReport], Iterator[GoldQuestion]]


def read_lines(path: Path, report: ConversionReport) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each line of a JSON-lines file; bad lines are reported.

    Args:
      path: `.jsonl` or `.jsonl.gz`.
      report: counts the lines that can't be read.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json_lines`.
    """
    for number, value in read_json_lines(path):
        if isinstance(value, RecordError):
            report.skip(f"{path}:{number}", value.problem)
        else:
            yield number, value


def text_field(value: Any, name: str) -> str:
    """Returns string field `name` of a JSON object.

    Raises:
      BadRecord: the value is not an object, or the field is missing, empty or not a string.
    """
    if not isinstance(value, dict):
        raise BadRecord(f"expected an object, got {type(value).__name__}")
    text = value.get(name)
    if not isinstance(text, str) or not text.strip():
        raise BadRecord(f"field {name!r}: expected a string that is not empty, got {text!r:.40}")
    return text


def list_field(value: Any, name: str) -> list[Any]:
    """Returns list field `name` of a JSON object; raises `BadRecord` like `text_field`."""
    items = value.get(name) if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise BadRecord(f"field {name!r}: expected a list, got {items!r:.40}")
    return items


def texts_field(value: Any, name: str) -> list[str]:
    """Returns list field `name` of a JSON object if all items are strings.

    Raises:
      BadRecord: as for `list_field`; or an item is not a string, and the message names the first.
    """
    items = list_field(value, name)
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise BadRecord(f"field '{name}[{index}]': expected a string, got {item!r:.40}")
    return items


def answers_of(texts: Sequence[str], name: str) -> tuple[str, ...]:
    """Returns a question's answers: the texts that are not empty, without duplicates, in order.

    Args:
      texts: the answers in the data set, with any surrounding space.
      name: name of the field that they come from.

    Raises:
      BadRecord: there is none.
    """
    answers = tuple(dict.fromkeys(text.strip() for text in texts if normalise_text(text).strip()))
    if not answers:
        raise BadRecord(
            f"field {name!r}: {'every text is empty' if texts else 'there is no text'}; "
            "expected an answer"
        )
    return answers


def document_of(source: str, title: str, text: str) -> Document:
    """Returns a passage as a document whose id depends on its source and content."""
    digest = hashlib.sha256(f"{title}\n{text}".encode("utf-8", "replace")).hexdigest()
    return Document(f"{source}-{digest[:12]}", title, text)


def normalised_span(text: str, start: int, answer: str) -> tuple[int, int]:
    """Returns the span in the normalised text of `answer`, which begins at `text[start]`.

    Raises:
      BadRecord: the answer is not there, or has no text.
    """
    end = start + len(answer)
    if not start >= 0 or text[start:end] != answer:
        raise BadRecord(f"answer {answer!r:.60} is not at offset {start} of its passage")
    if not normalise_text(answer).strip():
        raise BadRecord(f"answer {answer!r:.60} has no text")
    first = len(normalise_text(text[:start]))
    last = first + len(normalise_text(answer))
    if normalise_text(text)[first:last] != normalise_text(answer):
        raise BadRecord(f"answer {answer!r:.60} begins or ends inside a composed character")
    return first, last


def distinct(answers: list[str]) -> tuple[str, ...]:
    """Returns answers without surrounding space or duplicates, the most frequent first."""
    counts = collections.Counter(normalise_text(answer).strip() for answer in answers)
    return tuple(answer for answer, _ in counts.most_common() if answer)


def of_several_files(files: Iterable[Iterable[GoldQuestion]]) -> list[GoldQuestion]:
    """Returns the questions of one or several files, with groups joined that share a page.

    Two pages are the same if they have the same name (with spaces for underscores) or the same
    text. Groups with a page in common get the name of the first of them; others stay as they are.

    Args:
      files: the questions of each file.
    """
    questions = [item for file in files for item in file]
    groups = joined_groups((item.group, _names_of_page(item)) for item in questions)
    return [
        dataclasses.replace(item, group=group)
        for item, group in zip(questions, groups, strict=True)
    ]


def _names_of_page(item: GoldQuestion) -> list[tuple[str, str]]:
    named = [] if item.page is None else [("page", " ".join(item.page.replace("_", " ").split()))]
    return [("text", item.document.text), *named]


def joined_groups(members: Iterable[tuple[str, Iterable[Hashable]]]) -> list[str]:
    """Returns the group of each member; connected groups get the name of the first of them.

    Args:
      members: for each member, its group, and the things that connect groups if they share one.
    """
    earlier: dict[str, str] = {}  # an earlier group that each group is joined to, or itself
    places: dict[str, int] = {}  # order in which the groups first appear
    known: dict[Hashable, str] = {}

    def first_of(group: str) -> str:
        while earlier[group] != group:
            earlier[group] = group = earlier[earlier[group]]
        return group

    groups = []
    for group, things in members:
        groups.append(group)
        earlier.setdefault(group, group)
        places.setdefault(group, len(places))
        for thing in things:
            pair = first_of(known.setdefault(thing, group)), first_of(group)
            first, second = sorted(pair, key=places.__getitem__)
            earlier[second] = first
    return list(map(first_of, groups))


def with_first(best: str, answers: Sequence[str]) -> tuple[str, ...]:
    """Returns `answers` with `best` moved to the front."""
    return (best, *(answer for answer in answers if answer != best))

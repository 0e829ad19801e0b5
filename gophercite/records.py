"""The JSON-lines records: documents, questions and rated answers, and their validation.

One record stands on one line (`docs/records.md` lists the fields). Files come from strangers and
from years ago, so a bad line is never fatal: it is named by file, line and field, counted and left
out; with `strict` the first one stops the reading. Texts are normalised as documents are
(`gophercite.documents.normalise_text`), and offsets are moved along.
"""

import collections
import dataclasses
import datetime
import gzip
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from gophercite import evidence
from gophercite.documents import Document, normalise_text
from gophercite.json_fields import JsonFields, RecordError, nearest
from gophercite.json_lines import read_json_lines

KEPT_ERRORS = 100  # what `Report.errors` holds at most


@dataclasses.dataclass(frozen=True)
class Hit:
    """A document by name only, with the search engine's snippet of it."""

    id: str
    snippet: str


@dataclasses.dataclass(frozen=True)
class FoundDocument(Document):
    """A page with the snippet that the search engine showed of it for this question."""

    snippet: str | None = None


@dataclasses.dataclass(frozen=True)
class Span:
    """Gold evidence: `text[start:end]` of the document with this id, in code points."""

    document: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with the documents found for it, in rank order.

    Attributes:
      id: names the question within its file.
      question: the text of the question.
      source: the data set it is from.
      documents: whole pages, or hits whose pages are elsewhere.
      answers: what is accepted as an answer, where that is known.
      evidence: where the documents prove it, where that is known.
    """

    id: str
    question: str
    source: str
    documents: tuple[Document | Hit, ...]
    answers: tuple[str, ...] = ()
    evidence: tuple[Span, ...] = ()


@dataclasses.dataclass(frozen=True)
class RatedAnswer:
    """An answer with its evidence, and what people thought of it (section 2.6).

    Attributes:
      question_id: the question it answers.
      question: the text of that question.
      documents: what the model, or the person, was shown.
      claim, title, quote: the inline evidence.
      document: id of the document that is quoted.
      plausible: whether it is a reasonable on-topic answer; None when not rated.
      supported: whether the quote proves the claim; None when not rated.
      ratings: the single judgements, each with the rater's name.
      model: who answered.
    """

    question_id: str
    question: str
    documents: tuple[Document | Hit, ...]
    claim: str
    title: str
    quote: str
    document: str
    plausible: bool | None = None
    supported: bool | None = None
    ratings: tuple[dict[str, Any], ...] = ()
    model: str | None = None


Record = Document | Question | RatedAnswer
R = TypeVar("R", Document, Question, RatedAnswer)


@dataclasses.dataclass
class Report:
    """What became of the lines of the files that were read.

    Attributes:
      read: number of good records.
      skipped: number of bad ones.
      errors: the first `KEPT_ERRORS` of their errors.
      unknown_fields: how often each field was met that means nothing here and was passed over.
    """

    read: int = 0
    skipped: int = 0
    errors: list[RecordError] = dataclasses.field(default_factory=list)
    unknown_fields: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )

    def __str__(self) -> str:
        """One line for the counts, then one for each error kept."""
        lines = [f"{self.read} records read, {self.skipped} skipped", *map(str, self.errors)]
        if self.skipped > len(self.errors):
            lines.append(f"… and {self.skipped - len(self.errors)} more")
        if self.unknown_fields:
            names = ", ".join(f"{name!r} ({n})" for name, n in self.unknown_fields.most_common())
            lines.append(f"fields without a meaning here were passed over: {names}")
        return "\n".join(lines)


def read(
    path: str | os.PathLike[str],
    kind: type[R],
    *,
    strict: bool = False,
    report: Report | None = None,
) -> Iterator[R]:
    """Reads the records of a `.jsonl` or `.jsonl.gz` file, one at a time.

    Args:
      path: the file; empty lines are allowed.
      kind: `Document`, `Question` or `RatedAnswer`.
      strict: stop at the first bad record instead of leaving it out.
      report: counts records and keeps errors; one report may serve several files.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when `strict` and a record is bad, and when a compressed file is damaged.
    """
    report = Report() if report is None else report
    lines_of_ids: dict[str, int] = {}
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            record = from_json(value, kind, report.unknown_fields)
            if not isinstance(record, RatedAnswer):
                first = lines_of_ids.setdefault(record.id, number)
                if first != number:
                    raise RecordError(f"{record.id!r} was the id of line {first} already", "id")
        except RecordError as error:
            located = RecordError(error.problem, error.field, path, number)
            if strict:
                raise located from None
            report.skipped += 1
            if len(report.errors) < KEPT_ERRORS:
                report.errors.append(located)
        else:
            report.read += 1
            yield record


def write(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Writes records to a `.jsonl` or `.jsonl.gz` file and returns their number.

    The file appears when it is complete. Equal records give equal bytes, compressed ones too.
    """
    path = pathlib.Path(path)
    partial = path.with_name(path.name + ".partial")
    count = 0
    try:
        with partial.open("wb") as raw:
            file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
            for record in records:
                line = json.dumps(to_json(record), ensure_ascii=False, allow_nan=False)
                # Only a rating's own fields can hold a lone surrogate: as JSON escapes it.
                file.write(line.encode("utf-8", errors="backslashreplace") + b"\n")
                count += 1
            if file is not raw:
                file.close()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def from_json(
    value: object, kind: type[R], unknown_fields: collections.Counter[str] | None = None
) -> R:
    """Makes a record of a decoded JSON object.

    Args:
      value: what a line holds.
      kind: what it should be.
      unknown_fields: counts the fields that mean nothing and were passed over.

    Raises:
      RecordError: with the field, and where a name is misspelled the right one.
    """
    unknown = collections.Counter() if unknown_fields is None else unknown_fields
    return cast(R, _MAKERS[kind](JsonFields(value, _names(kind), unknown)))


def to_json(record: Record | Hit) -> dict[str, Any]:
    """Returns the JSON object of a record, without the optional fields that say nothing."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name == "documents":
            values[field.name] = [to_json(source) for source in value]
        elif isinstance(value, tuple):
            items = [dataclasses.asdict(v) if isinstance(v, Span) else v for v in value]
            values |= {field.name: items} if items else {}
        elif value is not None:
            values[field.name] = value
    return values


# --- Records ---


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def _make_document(fields: JsonFields) -> Document:
    document = Document(
        id=fields.text("id"),
        title=fields.text("title"),
        text=fields.text("text", empty=True),
        url=fields.optional_text("url"),
        retrieved_at=fields.optional_text("retrieved_at"),
    )
    if document.retrieved_at is not None:
        try:
            datetime.datetime.fromisoformat(document.retrieved_at)
        except ValueError:
            raise fields.error(
                "retrieved_at",
                "expected a time in ISO 8601 such as '2026-11-21T09:30:00Z', "
                f"got {document.retrieved_at!r}",
            ) from None
    return document


def _make_sources(parent: JsonFields) -> tuple[tuple[Document | Hit, ...], dict[str, str]]:
    """Returns the documents of a record, and the texts of those in it as they were written."""
    sources: list[Document | Hit] = []
    written: dict[str, str] = {}
    for fields in parent.objects("documents", _names(Document) | _names(Hit), required=True):
        source: Document | Hit
        if "snippet" in fields and "text" not in fields:
            source = Hit(fields.text("id"), fields.text("snippet"))
        else:
            source = _make_document(fields)
            snippet = fields.text("snippet", empty=True) if "snippet" in fields else ""
            if snippet.strip():
                page = {f.name: getattr(source, f.name) for f in dataclasses.fields(source)}
                source = FoundDocument(**page, snippet=snippet)
            written[source.id] = fields.values["text"]
        if any(source.id == other.id for other in sources):
            raise fields.error("id", f"{source.id!r} is the id of two documents of this record")
        sources.append(source)
    return tuple(sources), written


def _make_question(fields: JsonFields) -> Question:
    sources, written = _make_sources(fields)
    ids = {source.id for source in sources}
    return Question(
        id=fields.text("id"),
        question=fields.text("question"),
        source=fields.text("source"),
        documents=sources,
        answers=fields.texts("answers"),
        evidence=tuple(
            _make_span(span, ids, written) for span in fields.objects("evidence", _names(Span))
        ),
    )


def _make_span(fields: JsonFields, ids: set[str], written: dict[str, str]) -> Span:
    span = Span(fields.text("document"), fields.integer("start"), fields.integer("end"))
    _require_document(fields, span.document, ids)
    if not 0 <= span.start < span.end:
        raise fields.error("end", f"expected 0 <= start < end, got {span.start} and {span.end}")
    if span.document not in written:
        return span  # the page is elsewhere
    text = written[span.document]
    if span.end > len(text):
        raise fields.error(
            "end", f"{span.end} is behind the text, which has {len(text)} characters"
        )
    # From offsets in the text as it was written to the same places of the normalised text.
    start, end = (len(normalise_text(text[:offset])) for offset in (span.start, span.end))
    if normalise_text(text)[start:end] != normalise_text(text[span.start : span.end]):
        raise fields.error("start", "the span cuts characters that normalisation joins")
    return Span(span.document, start, end)


def _make_rated_answer(fields: JsonFields) -> RatedAnswer:
    sources, _ = _make_sources(fields)
    answer = RatedAnswer(
        question_id=fields.text("question_id"),
        question=fields.text("question"),
        documents=sources,
        claim=fields.text("claim"),
        title=fields.text("title"),
        quote=fields.text("quote"),
        document=fields.text("document"),
        plausible=fields.flag("plausible"),
        supported=fields.flag("supported"),
        ratings=tuple(_make_rating(rating) for rating in fields.objects("ratings", None)),
        model=fields.optional_text("model"),
    )
    _require_document(fields, answer.document, {source.id for source in sources})
    for name in ("claim", "title", "quote"):
        if evidence.holds_mark(getattr(answer, name)):
            raise fields.error(name, "holds a reserved mark of inline evidence")
    _require_verbatim(fields, answer)
    return answer


def _make_rating(fields: JsonFields) -> dict[str, Any]:
    fields.text("rater")  # whose judgement it is; the rest is the rating's own
    return fields.values


def _require_document(fields: JsonFields, id: str, ids: set[str]) -> None:
    if id not in ids:
        near = nearest(id, ids)
        hint = f"; did you mean {near!r}?" if near else ""
        raise fields.error("document", f"no document of this record has the id {id!r}{hint}")


def _require_verbatim(fields: JsonFields, answer: RatedAnswer) -> None:
    """What is not verbatim may be on record as unsupported, but never as anything else."""
    quoted = next(source for source in answer.documents if source.id == answer.document)
    if answer.supported is False or not isinstance(quoted, Document):
        return
    if answer.title != quoted.title:
        raise fields.error("title", f"document {quoted.id!r} has the title {quoted.title!r}")
    if not evidence.is_verbatim(answer.quote, quoted.text):
        raise fields.error("quote", f"is not verbatim in document {quoted.id!r}")


_MAKERS: dict[type, Callable[[JsonFields], Record]] = {
    Document: _make_document,
    Question: _make_question,
    RatedAnswer: _make_rated_answer,
}

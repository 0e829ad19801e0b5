"""Conversion between records and JSON objects, with a check of every field that is read."""

import collections
import dataclasses
import datetime
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

from gophercite import evidence
from gophercite.documents import Document, normalise_text
from gophercite.evidence import Evidence
from gophercite.records.types import (
    Comparison,
    Completion,
    Extract,
    FoundDocument,
    Hit,
    LongAnswer,
    Question,
    RatedAnswer,
    Record,
    Response,
    Span,
)
from gophercite.storage.json_fields import JsonFields, RecordError, describe, nearest

R = TypeVar("R", Document, Question, RatedAnswer, Comparison, Completion)


def from_json(
    value: object, kind: type[R], unknown_fields: collections.Counter[str] | None = None
) -> R:
    """Parses a record from a decoded JSON object.

    Args:
      value: the value of a line.
      kind: the expected type of record.
      unknown_fields: counts unknown fields, which are ignored.

    Raises:
      RecordError: names the field, and for a misspelt name suggests the right one.
    """
    unknown = collections.Counter() if unknown_fields is None else unknown_fields
    return cast(R, _MAKERS[kind](JsonFields(value, _names(kind), unknown)))


def to_json(record: Record | Hit) -> dict[str, Any]:
    """Returns the JSON object of a record, without optional fields that are empty."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name == "documents":
            values[field.name] = [to_json(source) for source in value]
        elif field.name == "responses":
            values[field.name] = [_response_to_json(response) for response in value]
        elif isinstance(value, tuple):
            items = [dataclasses.asdict(v) if isinstance(v, Span) else v for v in value]
            values |= {field.name: items} if any(item is not None for item in items) else {}
        elif value is not None:
            values[field.name] = value
    return values


def _response_to_json(response: Response) -> object:
    if isinstance(response, str):
        return response
    if isinstance(response, LongAnswer):
        references = [
            {name: value for name, value in dataclasses.asdict(each).items() if value}
            for each in response.references
        ]
        return {"answer": response.answer, "references": references}
    return [dataclasses.asdict(triple) for triple in response]


# --- Records ---

# Further fields of a browsed reference, which no judge reads.
_OF_BROWSED_REFERENCES = frozenset({"document", "start", "end", "sha256", "retrieved_at", "pages"})


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def _make_document(fields: JsonFields) -> Document:
    id, title = fields.text("id"), fields.text("title")
    try:
        document = Document(
            id=id,
            title=title,
            text=fields.text(
                "text", empty=True, raw=True
            ),  # page starts are offsets in the raw text
            url=fields.optional_text("url"),
            retrieved_at=fields.optional_text("retrieved_at"),
            page_starts=fields.integers("page_starts"),
        )
    except ValueError as error:
        if isinstance(error, RecordError):
            raise
        raise fields.error("page_starts", str(error).removeprefix("page_starts ")) from None
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
    """Returns a record's documents, and the raw texts of those that contain text."""
    sources: dict[str, Document | Hit] = {}
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
        if source.id in sources:
            raise fields.error("id", f"{source.id!r} is the id of two documents of this record")
        sources[source.id] = source
    return tuple(sources.values()), written


def _make_question(fields: JsonFields) -> Question:
    sources, written = _make_sources(fields)
    by_id = {source.id: source for source in sources}
    return Question(
        id=fields.text("id"),
        question=fields.text("question"),
        source=fields.text("source"),
        documents=sources,
        answers=fields.texts("answers"),
        evidence=tuple(
            _make_span(span, by_id, written) for span in fields.objects("evidence", _names(Span))
        ),
        incorrect_answers=fields.texts("incorrect_answers"),
    )


def _make_span(
    fields: JsonFields, by_id: dict[str, Document | Hit], written: dict[str, str]
) -> Span:
    span = Span(fields.text("document"), fields.integer("start"), fields.integer("end"))
    _require_document(fields, span.document, by_id.keys())
    if not 0 <= span.start < span.end:
        raise fields.error("end", f"expected 0 <= start < end, got {span.start} and {span.end}")
    source = by_id[span.document]
    if not isinstance(source, Document):
        return span  # the page is stored elsewhere
    text = written[span.document]
    if span.end > len(text):
        raise fields.error(
            "end", f"{span.end} is beyond the end of the text, which has {len(text)} characters"
        )
    if text == source.text:
        return span
    # From offsets in the raw text to the same places in the normalised text.
    start, end = (len(normalise_text(text[:offset])) for offset in (span.start, span.end))
    if source.text[start:end] != normalise_text(text[span.start : span.end]):
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
    _refuse_marks(fields, answer)
    _require_verbatim(fields, answer)
    return answer


def _make_comparison(fields: JsonFields) -> Comparison:
    first, second = _pair(fields, "responses")
    verdicts = (None, None)
    if "supported_and_plausible" in fields:
        verdicts = _pair(fields, "supported_and_plausible")
    for place, verdict in enumerate(verdicts):
        if verdict is not None and not isinstance(verdict, bool):
            name = f"supported_and_plausible[{place}]"
            raise fields.error(name, f"expected true, false or null, got {describe(verdict)}")
    return Comparison(
        id=fields.text("id"),
        question=fields.text("question"),
        source=fields.text("source"),
        responses=(
            _make_response(fields, first, "responses[0]"),
            _make_response(fields, second, "responses[1]"),
        ),
        preferred=_make_preference(fields),
        supported_and_plausible=verdicts,
        ratings=tuple(_make_rating(rating) for rating in fields.objects("ratings", None)),
    )


def _pair(fields: JsonFields, name: str) -> tuple[Any, Any]:
    value = fields.values.get(name)
    if not isinstance(value, list) or len(value) != 2:
        raise fields.error(name, f"expected a list of two, got {describe(value)}")
    return value[0], value[1]


def _make_preference(fields: JsonFields) -> float | None:
    value = fields.values.get("preferred")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise fields.error("preferred", f"expected a number from 0 to 1, got {describe(value)}")
    return float(value)


def _make_response(parent: JsonFields, value: object, name: str) -> Response:
    if isinstance(value, str) and value.strip():
        return normalise_text(value)
    if isinstance(value, dict):
        return _make_long_answer(value, name)
    if not isinstance(value, list) or not value:
        raise parent.error(
            name,
            "expected a text, a list of evidence, or an answer with its references, got "
            f"{describe(value)}",
        )
    triples = []
    listed = JsonFields({name: value}, None, collections.Counter())
    for fields in listed.objects(name, _names(Evidence)):
        triple = Evidence(fields.text("claim"), fields.text("title"), fields.text("quote"))
        _refuse_marks(fields, triple)
        triples.append(triple)
    return tuple(triples)


def _make_long_answer(value: dict[str, Any], name: str) -> LongAnswer:
    fields = JsonFields(value, _names(LongAnswer), collections.Counter(), name)
    references = tuple(
        Extract(
            each.text("title"),
            each.text("extract"),
            each.text("domain", empty=True) if "domain" in each else "",
            each.optional_text("url"),
        )
        for each in fields.objects("references", _names(Extract) | _OF_BROWSED_REFERENCES)
    )
    return LongAnswer(fields.text("answer"), references)


def _make_completion(fields: JsonFields) -> Completion:
    # Exactly as written: for example, what a model reads ends with a line end.
    prompt, completion = (fields.text(name, raw=True) for name in ("prompt", "completion"))
    return Completion(fields.text("id"), prompt, completion)


def _refuse_marks(fields: JsonFields, triple: Evidence | RatedAnswer) -> None:
    for name in ("claim", "title", "quote"):
        if said := evidence.named_mark(getattr(triple, name)):
            raise fields.error(name, f"{said}, which inline evidence can't contain")


def _make_rating(fields: JsonFields) -> dict[str, Any]:
    fields.text("rater")  # required: the rater's name; other fields are free
    return fields.values


def _require_document(fields: JsonFields, id: str, ids: Collection[str]) -> None:
    if id not in ids:
        near = nearest(id, ids)
        hint = f"; did you mean {near!r}?" if near else ""
        raise fields.error("document", f"no document of this record has the id {id!r}{hint}")


def _require_verbatim(fields: JsonFields, answer: RatedAnswer) -> None:
    """Requires a verbatim quote; only unsupported answers may have another one."""
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
    Comparison: _make_comparison,
    Completion: _make_completion,
}

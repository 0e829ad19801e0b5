"""Natural Questions: the original, and the version of "lost in the middle" with gold passages.

A passage is the annotated long answer; its sentence with the short answer is the evidence.
"""

import html
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.converters import titles
from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    GoldQuestion,
    distinct,
    document_of,
    list_field,
    normalised_span,
    read_lines,
    text_field,
    texts_field,
    with_first,
)
from data_pipelines.converters.sentences import find_answer

# Tokens of the original without a space before them, or after them.
_CLOSING = frozenset({",", ".", ";", ":", "!", "?", ")", "]", "%", "'s", "n't", "'", "''", "'re"})
_OPENING = frozenset({"(", "[", "$", "``"})

# The token range of a long answer on its page, and those of its short answers.
Annotation = tuple[Sequence[int], Sequence[int], Sequence[int]]


def convert_natural_questions(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields each question with its annotated long answer as passage and its short one as answer.

    The source gives no offsets, so the answer's first occurrence in the long answer counts. The
    questions about a page are one group.

    Args:
      path: `.jsonl` or `.jsonl.gz`, each line with `question`, `answers` and `nq_annotated_gold`.
      report: counts what was left out.
    """
    source = path.name.split(".")[0]
    for number, value in read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            yield _question(value, source, number)


def _question(value: Any, source: str, number: int) -> GoldQuestion:
    question = text_field(value, "question")
    annotated = value.get("nq_annotated_gold")
    title, passage = text_field(annotated, "title"), text_field(annotated, "long_answer")
    answers = distinct([*texts_field(annotated, "short_answers"), *texts_field(value, "answers")])
    if not answers:
        raise BadRecord("fields 'short_answers' and 'answers' have no answer")
    document = document_of(source, titles.readable(title), passage)
    found = find_answer(document.text, answers)
    best, span = found if found is not None else (answers[0], None)
    return GoldQuestion(
        id=f"{source}-{number}",
        question=question,
        document=document,
        group=f"{source}:{title}",
        answers=with_first(best, answers),
        span=span,
        page=title,
    )


def convert_simplified(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields the questions of the original's simplified training set, as `question_of_tokens`.

    Args:
      path: `.jsonl` or `.jsonl.gz`, each line with `example_id`, `question_text`, `document_url`,
        `document_text` and `annotations`.
      report: counts what was left out, and the questions without an answer to quote.
    """
    for number, value in read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            tokens = text_field(value, "document_text").split(" ")
            annotations = [_annotation(a, len(tokens)) for a in list_field(value, "annotations")]
            if not any(starts and first >= 0 for (first, _), starts, _ in annotations):
                report.counts["questions without a short answer inside a long one"] += 1
                continue
            yield question_of_tokens(
                f"nq-{value.get('example_id', number)}",
                text_field(value, "question_text"),
                _title_in(text_field(value, "document_url")),
                [(token, token.startswith("<") and token.endswith(">")) for token in tokens],
                annotations,
            )


def question_of_tokens(
    id: str,
    question: str,
    title: str,
    tokens: Sequence[tuple[str, bool]],
    annotations: Iterable[Annotation],
) -> GoldQuestion:
    """Returns a question with the first long answer that contains a short one.

    Args:
      id: the question's id.
      question: its text.
      title: title of its page.
      tokens: tokens of the page, and whether each is markup.
      annotations: the annotators' annotations.

    Raises:
      BadRecord: no long answer contains a short one.
    """
    for (first, last), starts, ends in annotations:
        if first < 0 or not starts or starts[0] < first or ends[0] > last:
            continue
        passage, places = _join(tokens[first:last])
        start, end = places[starts[0] - first][0], places[ends[0] - first - 1][1]
        answer = passage[start:end]
        document = document_of("natural_questions", titles.readable(title), passage)
        span = normalised_span(passage, start, answer)
        return GoldQuestion(id, question, document, title, (answer,), span)
    raise BadRecord("no annotation has a short answer inside a long one")


def _join(tokens: Sequence[tuple[str, bool]]) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of tokens without markup, and the span of each token in it."""
    text, places = "", []
    after_opening = True
    for token, markup in tokens:
        if markup:
            places.append((len(text), len(text)))
            continue
        space = "" if after_opening or token in _CLOSING else " "
        start = len(text) + len(space)
        written = '"' if token in ("``", "''") else token
        text += space + written
        places.append((start, len(text)))
        after_opening = token in _OPENING
    return text, places


def _annotation(value: Any, tokens: int) -> Annotation:
    """Returns the ranges of an annotation's answers, which are within the page."""
    long_answer = value.get("long_answer") if isinstance(value, dict) else None
    (first, last), *short_answers = [
        _places(answer, tokens) for answer in (long_answer, *list_field(value, "short_answers"))
    ]
    return (first, last), [start for start, _ in short_answers], [end for _, end in short_answers]


def _places(answer: Any, tokens: int) -> tuple[int, int]:
    answer = answer if isinstance(answer, dict) else {}
    start, end = answer.get("start_token"), answer.get("end_token")
    if start == end == -1:  # no answer
        return -1, -1
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end <= tokens:
        raise BadRecord(
            f"expected 0 <= start_token < end_token <= {tokens}, got {start!r}, {end!r}"
        )
    return start, end


def _title_in(url: str) -> str:
    """Returns a page's title, which the simplified set only has as part of the page's address."""
    try:
        parts = urllib.parse.urlsplit(html.unescape(url))
        titles_asked = urllib.parse.parse_qs(parts.query).get("title")
    except ValueError as error:
        raise BadRecord(
            f"field 'document_url': {url!r:.60} is not a valid address: {error}"
        ) from None
    title = titles_asked[0] if titles_asked else parts.path.rpartition("/")[2]
    return urllib.parse.unquote(title) or url

"""Natural Questions with their gold passages, as "lost in the middle" published them."""

from collections.abc import Iterator
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
    read_lines,
    text_field,
    with_first,
)
from data_pipelines.converters.sentences import find_answer


def convert_natural_questions(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields each question with its annotated long answer as the passage, the short one as answer.

    The source gives no offsets: the answer's first occurrence in the long answer counts. A page's
    questions are one group.

    Args:
      path: `.jsonl` or `.jsonl.gz`, each line with `question`, `answers` and `nq_annotated_gold`.
      report: is told what was left out.
    """
    source = path.name.split(".")[0]
    for number, value in read_lines(path, report):
        try:
            yield _question(value, source, number)
        except BadRecord as problem:
            report.skip(f"{path}:{number}", str(problem))


def _question(value: Any, source: str, number: int) -> GoldQuestion:
    question = text_field(value, "question")
    annotated = value.get("nq_annotated_gold")
    title, passage = text_field(annotated, "title"), text_field(annotated, "long_answer")
    answers = distinct([*list_field(annotated, "short_answers"), *list_field(value, "answers")])
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
    )

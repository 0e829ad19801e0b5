"""SQuAD 1.1 JSON and its many relatives (SquadShifts, PolicyQA)."""

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
    normalised_span,
    text_field,
)
from gophercite.documents import Document
from gophercite.storage.json_lines import read_json


def convert_squad(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields the questions of a SQuAD file, each with its paragraph.

    A paragraph has its article's title. If the titles are meaningless (`titles.says_nothing`), each
    paragraph gets its first words as its title. The paragraphs of an article are one group; if the
    file has only one article, each paragraph is a group.

    Args:
      path: `.json` or `.json.gz`.
      report: counts what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json`.
      ValueError: the file is not SQuAD JSON.
    """
    source = path.name.split(".")[0]
    try:
        articles = list_field(read_json(path), "data")
    except BadRecord as error:
        raise ValueError(f"{path} is not SQuAD JSON: {error}") from None
    paragraphs = list(_paragraphs(path, articles, report))
    minted = None
    if titles.says_nothing({title for _, title, _ in paragraphs}, len(paragraphs)):
        minted = titles.mint_titles(
            [text_field(paragraph, "context") for *_, paragraph in paragraphs]
        )
        report.counts["titles minted"] += len(minted)
    for number, (place, title, paragraph) in enumerate(paragraphs):
        context = text_field(paragraph, "context")
        name = minted[number] if minted else titles.readable(title)
        document = document_of(source, name, context)
        page = context if len(articles) == 1 else title
        for index, entry in enumerate(list_field(paragraph, "qas")):
            with report.skipping(f"{path}: {place}.qas[{index}]"):
                yield _question(entry, context, document, source, page)


def _paragraphs(
    path: Path, articles: list[Any], report: ConversionReport
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for number, article in enumerate(articles):
        place = f"data[{number}]"
        try:
            title, paragraphs = text_field(article, "title"), list_field(article, "paragraphs")
        except BadRecord as problem:
            report.skip(f"{path}: {place}", str(problem))
            continue
        for index, paragraph in enumerate(paragraphs):
            try:
                text_field(paragraph, "context")
                list_field(paragraph, "qas")
            except BadRecord as problem:
                report.skip(f"{path}: {place}.paragraphs[{index}]", str(problem))
            else:
                yield f"{place}.paragraphs[{index}]", title, paragraph


def _question(asked: Any, context: str, document: Document, source: str, page: str) -> GoldQuestion:
    answers = [
        (text_field(answer, "text"), answer.get("answer_start"))
        for answer in list_field(asked, "answers")
    ]
    best = distinct([text for text, _ in answers])
    if not best:
        raise BadRecord("field 'answers': is empty; the question has no answer to quote for")
    text, start = next((t, s) for t, s in answers if distinct([t]) == best[:1])
    if not isinstance(start, int):
        raise BadRecord(f"field 'answer_start': expected a whole number, got {start!r:.40}")
    return GoldQuestion(
        id=str(asked.get("id") or f"{document.id}:{text_field(asked, 'question')}"),
        question=text_field(asked, "question"),
        document=document,
        group=f"{source}:{page}",
        answers=best,
        span=normalised_span(context, start, text),
        page=page,
    )

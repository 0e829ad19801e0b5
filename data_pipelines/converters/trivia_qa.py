"""TriviaQA: trivia with evidence pages from Wikipedia and the web (licence of the set: Apache-2.0).

The official archive has `qa/*.json` and, next to that folder, `evidence/wikipedia` and
`evidence/web` with the pages' texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.converters import gold, titles
from data_pipelines.converters.gold import BadRecord, ConversionReport, GoldQuestion
from data_pipelines.converters.sentences import find_verbatim
from gophercite.storage.json_lines import read_json

_MAXIMUM_PAGE_BYTES = 1 << 24
_FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}


def convert_trivia_qa(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields each question with the first of its pages that contains the answer or an alias.

    The questions about a page are one group. Questions without such a page are counted as bad
    records, because there is nothing to quote for them.

    Args:
      path: `qa/….json` of the archive; its `evidence` folder is next to `qa`.
      report: counts what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json`.
      ValueError: the file is not TriviaQA JSON, or has no `evidence` folder.
    """
    evidence = path.resolve().parent.parent / "evidence"
    if not evidence.is_dir():
        raise ValueError(f"{path}: expected the pages in {evidence}, which is not a folder")
    try:
        entries = gold.list_field(read_json(path), "Data")
    except BadRecord as error:
        raise ValueError(f"{path} is not TriviaQA JSON: {error}") from None
    for index, value in enumerate(entries):
        with report.skipping(f"{path}: Data[{index}]"):
            answer = value.get("Answer") if isinstance(value, dict) else None
            yield question_of_pages(
                gold.text_field(value, "QuestionId"),
                gold.text_field(value, "Question"),
                gold.text_field(answer, "Value"),
                gold.texts_field(answer, "Aliases"),
                _pages(value, evidence),
            )


def question_of_pages(
    id: str, question: str, value: str, aliases: Sequence[str], pages: Iterable[tuple[str, str]]
) -> GoldQuestion:
    """Returns a question with the first page that contains the answer.

    Args:
      id: the question's id.
      question: its text.
      value: the answer.
      aliases: other forms of it.
      pages: title and text of each page, in rank order.

    Raises:
      BadRecord: no page contains it.
    """
    answers = gold.distinct([value, *aliases])
    for title, text in pages:
        document = gold.document_of("trivia_qa", titles.readable(title), text)
        for answer in dict.fromkeys([value, *answers]):
            span = find_verbatim(document.text, answer) if answer.strip() else None
            if span is not None:
                accepted = gold.with_first(answer, answers)
                return GoldQuestion(id, question, document, title, accepted, span)
    raise BadRecord("no page contains an answer")


def _pages(value: dict[str, Any], evidence: Path) -> Iterator[tuple[str, str]]:
    """Yields title and text of the pages that exist in the archive."""
    for kind, folder in _FOLDERS.items():
        for page in gold.list_field(value, kind) if value.get(kind) else []:
            text = _text(evidence / folder, gold.text_field(page, "Filename"))
            if text.strip():
                yield gold.text_field(page, "Title"), text


def _text(folder: Path, name: str) -> str:
    """Returns a page's text; empty if the archive doesn't have the page or it is too large."""
    try:
        file = _inside(folder, name)
        if not file.is_file() or file.stat().st_size > _MAXIMUM_PAGE_BYTES:
            return ""
        return file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise BadRecord(f"field 'Filename': {name!r:.60} can't be read: {error.strerror}") from None


def _inside(folder: Path, name: str) -> Path:
    """Returns the path of a page, whose name is not trusted."""
    if "\0" in name:
        raise BadRecord(f"field 'Filename': {name!r:.60} is not a valid file name")
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise BadRecord(f"field 'Filename': {name!r:.60} leads out of the evidence folder")
    return file

"""Questions without pages: Natural Questions Open, ELI5, ASQA and TruthfulQA.

Their pages come from a search (`data_pipelines.search`). Licences of the sets: NQ-open and ASQA
CC BY-SA 3.0 and Apache-2.0, TruthfulQA Apache-2.0; ELI5's texts belong to those who wrote them.
"""

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters import gold, titles
from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    answers_of,
    list_field,
    text_field,
    texts_field,
)
from data_pipelines.converters.sentences import covering, find_verbatim
from data_pipelines.webgpt_questions import eli5_question, with_urls
from gophercite.documents import Document
from gophercite.records import Question, Span
from gophercite.storage.json_lines import naming_damage, open_bytes, read_json

QuestionConverter = Callable[[Path, ConversionReport], Iterator[Question]]

_NO_CONTEXT = "No context provided"  # ASQA's value if a reading has no passage


def convert_natural_questions_open(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields the questions of NQ-open: JSON lines with `question` and `answer`, a list."""
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            yield Question(
                id=f"{_stem(path)}-{number}",
                question=text_field(value, "question"),
                source="natural_questions_open",
                documents=(),
                answers=answers_of(texts_field(value, "answer"), "answer"),
            )


def convert_eli5(
    path: Path, report: ConversionReport, *, webgpt: bool = False
) -> Iterator[Question]:
    """Yields the questions of ELI5; the answer with the most votes comes first.

    Args:
      path: JSON lines in one of two forms. KILT's has `id`, `input`, and `output`, a list in which
        some entries have `answer` and `meta.score`. The set's own form has `q_id`, `title`,
        `selftext`, `answers` (lists of `text` and `score`), and `title_urls` and `selftext_urls`,
        the replacements for tokens such as `_URL_0_`.
      report: counts what was left out.
      webgpt: use questions as WebGPT's model was asked them (its appendix B): title and selftext,
        with `Explain: ` before anything that is not a question. Deleted questions are counted and
        left out. If False, the title is the question.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            is_kilt = "input" in value if isinstance(value, dict) else True
            title = text_field(value, "input" if is_kilt else "title")
            urls = [] if is_kilt else _urls(value, "title_urls")
            question: str | None = with_urls(title, urls)
            if webgpt:
                body = "" if is_kilt else value.get("selftext")
                body, body_urls = (
                    body if isinstance(body, str) else "",
                    _urls(value, "selftext_urls"),
                )
                question = eli5_question(title, body, urls, body_urls)
            if question is None:
                report.counts["questions that their authors deleted, left out"] += 1
                continue
            answers = _of_kilt(value) if is_kilt else _ranked(value.get("answers"))
            yield Question(
                id=f"eli5-{text_field(value, 'id' if is_kilt else 'q_id')}",
                question=question,
                source="eli5",
                documents=(),
                answers=answers_of(answers, "output" if is_kilt else "text"),
            )


def convert_alce(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields the questions of ALCE's files (ELI5 and ASQA), with ALCE's retrieved passages.

    Args:
      path: a JSON list of objects with `question`, `answer` and `docs`, each with `title` and
        `text`.
      report: counts what was left out.

    Raises:
      ValueError: the file does not contain a list.
    """
    source = _stem(path)
    values = read_json(path)
    if not isinstance(values, list):
        raise ValueError(f"{path} is not an ALCE file: expected a list")
    for index, value in enumerate(values):
        with report.skipping(f"{path}: [{index}]"):
            found: dict[str, Document] = {}
            for passage in list_field(value, "docs"):
                title = titles.readable(text_field(passage, "title"))
                document = gold.document_of("alce", title, text_field(passage, "text"))
                found.setdefault(document.id, document)
            yield Question(
                id=f"{source}-{index}",
                question=text_field(value, "question"),
                source=source,
                documents=tuple(found.values()),
                answers=(text_field(value, "answer").strip(),),
            )


def convert_asqa(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields ASQA's ambiguous questions, with long answers and a passage for each reading.

    If a reading's passage contains its short answer, the sentence with it is gold evidence.

    Args:
      path: a JSON object of splits, each an object of questions by their id.
      report: counts what was left out.

    Raises:
      ValueError: the file does not contain an object of objects.
    """
    splits = read_json(path)
    if not isinstance(splits, dict) or not all(isinstance(v, dict) for v in splits.values()):
        raise ValueError(
            f"{path} is not ASQA JSON: expected an object of splits, each an object of questions"
        )
    for split, questions in splits.items():
        for id, value in questions.items():
            with report.skipping(f"{path}: {split}[{id!r:.40}]"):
                documents, evidence = _readings(list_field(value, "qa_pairs"))
                notes = list_field(value, "annotations")
                answers = [text_field(note, "long_answer") for note in notes]
                yield Question(
                    id=f"asqa-{id}",
                    question=text_field(value, "ambiguous_question"),
                    source="asqa",
                    documents=documents,
                    answers=answers_of(answers, "annotations"),
                    evidence=evidence,
                )


def convert_truthfulqa(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields TruthfulQA's questions with right answers, the best one first, and wrong answers.

    Args:
      path: CSV with `Question`, `Best Answer`, `Correct Answers` and `Incorrect Answers`.
      report: counts what was left out.

    Raises:
      RecordError: a compressed file is damaged.
      ValueError: the file lacks these columns.
    """
    with open_bytes(path) as raw, naming_damage(path):
        text = io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="")
        # Strict: otherwise, a missing quotation mark would turn all rows after it into one answer.
        rows = csv.DictReader(text, strict=True)
        needed = {"Question", "Best Answer", "Correct Answers", "Incorrect Answers"}
        try:
            columns = set(rows.fieldnames or ())
        except csv.Error as error:
            raise ValueError(f"{path} is not TruthfulQA CSV: its first line: {error}") from None
        if missing := needed - columns:
            raise ValueError(f"{path} is not TruthfulQA CSV: it has no column {min(missing)!r}")
        for number in itertools.count(1):
            with report.skipping(f"{path}: row {number}"):
                try:
                    row = next(rows, None)
                except csv.Error as error:
                    raise BadRecord(
                        f"ends in line {rows.reader.line_num} and is not CSV: {error}"
                    ) from None
                if row is None:
                    return
                right = text_field(row, "Correct Answers").split(";")
                wrong = text_field(row, "Incorrect Answers").split(";")
                yield Question(
                    id=f"{_stem(path)}-{number}",
                    question=text_field(row, "Question"),
                    source="truthfulqa",
                    documents=(),
                    answers=answers_of([text_field(row, "Best Answer"), *right], "Best Answer"),
                    incorrect_answers=answers_of(wrong, "Incorrect Answers"),
                )


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _of_kilt(value: dict[str, Any]) -> list[str]:
    """The answers among KILT's outputs (some only name a page), those with the most votes first."""
    answers = []
    for index, item in enumerate(list_field(value, "output")):
        place = f"output[{index}]"
        if not isinstance(item, dict):
            raise BadRecord(f"field {place!r}: expected an object, got {item!r:.40}")
        text = item.get("answer")
        if text is None:
            continue
        if not isinstance(text, str):
            raise BadRecord(f"field '{place}.answer': expected a string, got {text!r:.40}")
        answers.append((text, _score(item)))
    return [text for text, _ in sorted(answers, key=lambda each: -each[1])]


def _ranked(answers: Any) -> list[str]:
    """The texts of ELI5's own `answers`, those with most votes first."""
    texts, scores = texts_field(answers, "text"), list_field(answers, "score")
    if len(texts) != len(scores) or not all(isinstance(score, int | float) for score in scores):
        raise BadRecord("field 'score': expected a number for each text")
    return [text for _, text in sorted(zip(scores, texts, strict=True), key=lambda each: -each[0])]


def _urls(value: dict[str, Any], name: str) -> list[str]:
    """The addresses in a field; some copies of the set have them in a list within it."""
    urls = value.get(name) or []
    urls = urls.get("url") if isinstance(urls, dict) else urls
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise BadRecord(f"field {name!r}: expected a list of addresses, got {urls!r:.40}")
    return urls


def _score(output: dict[str, Any]) -> float:
    meta = output.get("meta")
    score = meta.get("score") if isinstance(meta, dict) else None
    return score if isinstance(score, int | float) else 0.0


def _readings(pairs: list[Any]) -> tuple[tuple[Document, ...], tuple[Span, ...]]:
    documents: dict[str, Document] = {}
    spans: dict[Span, None] = {}
    for pair in pairs:
        if not isinstance(pair, dict) or pair.get("context") in (None, "", _NO_CONTEXT):
            continue
        title = titles.readable(str(pair.get("wikipage") or ""))
        document = gold.document_of("asqa", title, text_field(pair, "context"))
        documents.setdefault(document.id, document)
        for answer in list_field(pair, "short_answers"):
            place = find_verbatim(document.text, answer) if isinstance(answer, str) else None
            if place is not None and place[0] < place[1]:
                spans[Span(document.id, *covering(document.text, place))] = None
                break
    return tuple(documents.values()), tuple(spans)

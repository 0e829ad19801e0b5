"""WebGPT's other question sets (its appendix B), without pages, which are found by browsing.

These are TriviaQA (Apache-2.0), the AI2 Reasoning Challenge (CC BY-SA 4.0) with its options,
hand-written questions, and answers whose claims are to be checked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters import gold
from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    answers_of,
    list_field,
    text_field,
    texts_field,
)
from data_pipelines.webgpt_questions import arc_question, fact_check_question
from gophercite.records import Question
from gophercite.storage.json_lines import naming_damage, open_bytes, read_json


def convert_trivia_qa_open(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields TriviaQA's questions with accepted answers: the value, aliases, people's answers.

    Args:
      path: a JSON file of the archive, either unfiltered or for reading comprehension; its pages
        are not used. Questions of a test set have no answers.
      report: counts what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json`.
      ValueError: the file is not TriviaQA JSON.
    """
    try:
        entries = list_field(read_json(path), "Data")
    except BadRecord as error:
        raise ValueError(f"{path} is not TriviaQA JSON: {error}") from None
    for index, value in enumerate(entries):
        with report.skipping(f"{path}: Data[{index}]"):
            id, question = text_field(value, "QuestionId"), text_field(value, "Question")
            answers: tuple[str, ...] = ()
            answer: Any = value.get("Answer")
            if answer is not None:
                named = [text_field(answer, "Value")]
                for name in ("Aliases", "HumanAnswers"):
                    named += [] if answer.get(name) is None else texts_field(answer, name)
                answers = answers_of(named, "Value")
            yield Question(id, question, "trivia_qa", (), answers)


def convert_arc(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields ARC's questions with their options, `A. <option>` on each line (WebGPT, appendix B).

    Args:
      path: JSON lines (Easy or Challenge) with `id`, `question` and `answerKey`, in one of two
        forms. Either `question` is an object with the text in `stem` and the options in `choices`,
        a list of `text` and `label`; or `choices` is next to it, an object with both as lists.
      report: counts what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            id, key = text_field(value, "id"), text_field(value, "answerKey")
            stem, options = _options(value)
            labels = [label for label, _ in options]
            if labels.count(key) != 1:
                raise BadRecord(f"field 'answerKey': {key!r:.20} is not one of the labels {labels}")
            right = options[labels.index(key)][1]
            texts = [text for _, text in options]
            if len(set(texts)) < len(texts):
                raise BadRecord("two options are the same")
            try:
                question = arc_question(stem, texts)
            except ValueError as error:
                raise BadRecord(str(error)) from None
            others = tuple(text for text in texts if text != right)
            yield Question(id, question, "arc", (), (right,), incorrect_answers=others)


def convert_hand_written(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields hand-written questions.

    Args:
      path: JSON lines with `question`, and with `answers` if known; or, with any extension other
        than `.jsonl` and `.jsonl.gz`, text with one question per line.
      report: counts what was left out.

    Raises:
      FileNotFoundError, RecordError: as `gophercite.storage.json_lines.read_json_lines`.
    """
    stem = path.name.split(".")[0]
    if not path.name.endswith((".jsonl", ".jsonl.gz")):
        with open_bytes(path) as file, naming_damage(path):
            for number, line in enumerate(file, 1):
                if text := line.decode("utf-8-sig", errors="replace").strip():
                    yield Question(f"{stem}-{number}", text, "hand_written", ())
        return
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            question = text_field(value, "question")
            texts = texts_field(value, "answers") if value.get("answers") else []
            known = answers_of(texts, "answers") if texts else ()
            yield Question(f"{stem}-{number}", question, "hand_written", (), known)


def convert_fact_check(path: Path, report: ConversionReport) -> Iterator[Question]:
    """Yields questions that ask whether the claims in an answer are right (WebGPT, appendix B).

    Args:
      path: JSON lines with `question`, from ELI5, and `answer`, a model's.
      report: counts what was left out.
    """
    stem = path.name.split(".")[0]
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            question, answer = text_field(value, "question"), text_field(value, "answer")
            asked = fact_check_question(question.strip(), answer.strip())
            yield Question(f"{stem}-{number}", asked, "eli5_fact_check", ())


def _options(value: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """The question, and the label and text of each option."""
    question = value.get("question")
    if isinstance(question, dict):
        choices = list_field(question, "choices")
        pairs = [(text_field(each, "label"), text_field(each, "text")) for each in choices]
        return text_field(question, "stem"), pairs
    offered = value.get("choices")
    labels, texts = (list_field(offered, name) for name in ("label", "text"))
    if len(labels) != len(texts) or not all(isinstance(each, str) for each in [*labels, *texts]):
        raise BadRecord("field 'choices': expected as many labels as texts, all of them strings")
    return text_field(value, "question"), list(zip(labels, texts, strict=True))

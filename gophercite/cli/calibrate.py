"""`gophercite calibrate`: turns labelled answers into what `gophercite ask --min-quality` needs."""

import argparse
import collections
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gophercite.cli.arguments import add_command, share
from gophercite.cli.output import (
    DONE,
    RefusedError,
    note,
    print_json,
    print_text,
    require_unread,
    require_utf8,
    write_text,
)
from gophercite.text.counting import counted, percent

if TYPE_CHECKING:
    from gophercite.answering.declining import Calibration
    from gophercite.records import Question
    from gophercite.records.answers import Answer

_QUALITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "calibrate",
        run,
        "choose the thresholds for declining, from labelled answers",
        (
            "answers.jsonl --questions gold.jsonl --out calibration.json",
            "labelled.jsonl --by likelihood --out calibration.json",
        ),
    )
    add_argument = command.add_argument
    add_argument(
        "answers",
        metavar="ANSWERS.jsonl",
        help='answers, one per line as launch/infer.py writes them, with "good": true or false',
    )
    add_argument(
        "--questions",
        metavar="FILE",
        help="judge answers without a label against these questions' gold answers and evidence",
    )
    add_argument(
        "--by",
        choices=("score", "likelihood", "consensus"),
        default="score",
        help="what the thresholds apply to: the score that chose the answer, such as the reward, "
        "or the answer's likelihood or consensus, whatever chose it",
    )
    add_argument(
        "--confidence",
        type=share,
        default=0.95,
        help="confidence for which the summary is printed (default: 0.95)",
    )
    add_argument(
        "--about",
        metavar="TEXT",
        help='what the questions are about, such as "Wikipedia articles"; is shown with answers',
    )
    add_argument(
        "--out", required=True, metavar="FILE", help="file to write the calibration to (JSON)"
    )


def run(options: argparse.Namespace) -> int:
    """Writes the calibration, and shows which promises it allows."""
    from gophercite.answering.declining import calibrate, calibration_to_json
    from gophercite.evaluation.abstention import coverage_curve
    from gophercite.storage.json_fields import RecordError

    require_utf8("--about", options.about)
    require_unread("--out", options.out, [options.answers, options.questions])
    try:
        labelled = list(_labelled(options))
    except RecordError as error:  # names its file
        raise RefusedError(str(error)) from error
    if not labelled:
        raise RefusedError(f"{options.answers}: no answer has a label")
    try:
        calibration = calibrate(labelled, options.by, _settings(options.answers), options.about)
    except ValueError as error:
        raise RefusedError(f"{options.answers}: {error}") from error
    text = json.dumps(calibration_to_json(calibration), ensure_ascii=False, indent=2)
    write_text(options.out, text + "\n")
    curve = coverage_curve(calibration.scores, calibration.good)  # type: ignore[arg-type]
    result = {
        "calibration": options.out,
        "answers": len(calibration.good),
        "good": sum(calibration.good),
        "area_under_coverage_curve": curve.area,
        "confidence": options.confidence,
        "promises": [_promised(calibration, quality, options) for quality in _QUALITIES],
    }
    if options.json:
        print_json(result)
    else:
        print_text(_summary(result))
    return DONE


def _labelled(options: argparse.Namespace) -> "Iterator[tuple[Answer, bool]]":
    """Yields the answers that have a label; notes how many have none.

    Raises:
      RecordError: a line is not an answer, its label is neither true nor false, its question is not
        the one with its id in `--questions`, or an earlier line has that id.
    """
    from gophercite.records.answers import answer_from_json
    from gophercite.storage.json_fields import RecordError
    from gophercite.storage.json_lines import read_json_lines

    questions = _questions(options.questions)
    lines_of_ids: dict[tuple[str, str], int] = {}
    declined = unlabelled = 0
    for number, value in read_json_lines(options.answers):
        if isinstance(value, RecordError):
            raise value
        try:
            answer = answer_from_json(value)
            assert isinstance(value, dict)  # otherwise it would not be an answer
            label = value.get("good")
            if not isinstance(label, bool | None):
                raise RecordError("must be true or false", "good")
            id = value.get("question_id")
            _require_first(id, answer.question, number, lines_of_ids)
            if label is None and (question := questions.get(str(id))) is not None:
                _require_same(answer, question, options.questions)
                label = _gold_label(answer, question)
        except RecordError as error:
            raise RecordError(error.problem, error.field, options.answers, number) from None
        if answer.declined:
            declined += 1
        elif label is None:
            unlabelled += 1
        else:
            yield answer, label
    if declined or unlabelled:
        note(
            f"left out: {counted(declined, 'question')} without an answer, "
            f"{unlabelled} without a label"
        )


def _questions(path: str | None) -> "dict[str, Question]":
    from gophercite import records

    if path is None:
        return {}
    report = records.Report()
    found = records.read_some(path, records.Question, report=report)
    questions = {question.id: question for question in found}
    if report.skipped:
        note(str(report))
    return questions


def _require_first(
    id: object, question: str, number: int, lines: dict[tuple[str, str], int]
) -> None:
    """Refuses a second answer to a question: only answers to different questions are independent.

    Args:
      id: the question's id; without one, its text tells it from others.
      question: its text.
      number: the line.
      lines: the earlier lines, by their field and what it holds; this one is added.

    Raises:
      RecordError: an earlier line answers this question.
    """
    from gophercite.storage.json_fields import RecordError

    key = ("question", question) if id is None else ("question_id", str(id))
    first = lines.setdefault(key, number)
    if first != number:
        problem = (
            f"{key[1]!r} is already the question of line {first}: keep one answer to each question"
        )
        raise RecordError(problem, key[0])


def _require_same(answer: "Answer", question: "Question", path: str) -> None:
    """Refuses an answer to another question with the same id.

    Raises:
      RecordError: the questions differ, apart from search filters, which a model does not get.
    """
    from gophercite.retrieval.engine import parse_query
    from gophercite.storage.json_fields import RecordError

    if answer.question not in (question.question, parse_query(question.question).text):
        raise RecordError(
            f"is the answer to {answer.question!r}, but question {question.id!r} of {path} is "
            f"{question.question!r}"
        )


def _gold_label(answer: "Answer", question: "Question") -> bool | None:
    """Whether the claim is right and the quote proves it; None if the record can't tell."""
    from gophercite.evaluation.metrics import judge
    from gophercite.records import Document

    if answer.declined or not all(isinstance(page, Document) for page in question.documents):
        return None
    runs: collections.Counter[tuple[str, str]] = collections.Counter()
    for citation in answer.citations:  # a quote over several pages has one for each
        runs[citation.claim, citation.title] += len(citation.spans)
    return judge(answer.text, question, max(runs.values()) - 1).supported


def _settings(answers: str) -> Mapping[str, Any] | None:
    """How the answers were produced, from what `launch/infer.py` wrote next to them."""
    from gophercite.answering.declining import settings_among
    from gophercite.storage.json_lines import read_json
    from gophercite.storage.result_file import run_file

    path = run_file(answers)
    if not path.exists():
        note(
            f"{path.name}, which records how the answers were made, is missing: make sure "
            "yourself that later answers are made in the same way"
        )
        return None
    run = read_json(path)
    try:
        return settings_among(run if isinstance(run, dict) else {})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _promised(
    calibration: "Calibration", quality: float, options: argparse.Namespace
) -> dict[str, Any]:
    from gophercite.decoding.abstention import TooFewLabelsError

    try:
        promise = calibration.promise(quality, options.confidence)
    except TooFewLabelsError as error:
        return {"quality": quality, "coverage": None, "reason": str(error)}
    return {"quality": quality, "coverage": promise.coverage, "reason": None}


def _summary(result: dict[str, Any]) -> str:
    lines = [
        f"{result['calibration']}: {counted(result['answers'], 'answer')}, "
        f"{result['good']} of them good; "
        f"area under the coverage curve {result['area_under_coverage_curve']:.3f}",
        f"with confidence {percent(result['confidence'])} it can promise",
    ]
    for promise in result["promises"]:
        can = promise["reason"] or f"answering {promise['coverage']:.0%} of the questions"
        lines.append(f"  {promise['quality']:4.0%} good answers: {can}")
    return "\n".join(lines)

"""Filters test questions as the paper does (section 3.1).

    python -m data_pipelines.filter_questions natural_questions IN OUT --train TRAIN …
    python -m data_pipelines.filter_questions eli5 IN OUT [--like RATED]

IN, TRAIN and OUT are JSON lines of questions. If their documents are search results, --index FILE
names the index that has the pages. The command prints how many questions were kept, and why others
were not.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from data_pipelines.filters import (
    LONGEST,
    SHORTEST,
    FilterReport,
    TrainingOverlap,
    eli5_filtered,
    natural_questions_filtered,
    usual_lengths,
)
from gophercite import records
from gophercite.records import Question, RatedAnswer
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.search_results import with_pages
from gophercite.storage.json_fields import RecordError, in_one_line
from gophercite.storage.overwriting import refuse_overwriting


def main(arguments: Sequence[str] | None = None) -> int:
    """Filters the questions named on the command line; returns 1 if none was kept."""
    flags = _parse(arguments)
    reading, report = records.Report(), FilterReport()
    try:
        refuse_overwriting([flags.out], [flags.input, *(flags.train or ()), flags.like])
        questions = _with_pages(flags.input, reading, flags.index, skipping=True)
        if flags.format == "natural_questions":
            train = (
                question
                for path in flags.train
                for question in _with_pages(path, reading, flags.index)
            )
            kept = natural_questions_filtered(questions, TrainingOverlap(train), report)
        else:
            kept = eli5_filtered(questions, report, *_lengths(flags, reading))
        records.write(flags.out, kept)
    except (OSError, ValueError, IndexFileError) as error:
        print(f"filter_questions: {in_one_line(error)}", file=sys.stderr)
        return 1
    if reading.skipped:
        print(reading, file=sys.stderr)
    print(report)
    return 0 if report.kept else 1


def _questions(path: Path, report: records.Report) -> Iterator[Question]:
    """Yields a file's questions.

    Raises:
      ValueError: there are none. (An empty file of training questions would let everything pass.)
    """
    before = report.read
    yield from records.read(path, Question, report=report)
    if report.read == before:
        raise ValueError(f"{path}: has no usable question\n{report}")


def _lengths(flags: argparse.Namespace, read: records.Report) -> tuple[int, int]:
    if flags.like is None:
        shortest = SHORTEST if flags.shortest is None else flags.shortest
        return shortest, LONGEST if flags.longest is None else flags.longest
    answers = records.read(flags.like, RatedAnswer, report=read)
    return usual_lengths([answer.claim for answer in answers])


def _with_pages(
    path: Path, report: records.Report, index: str | None, *, skipping: bool = False
) -> Iterator[Question]:
    """Yields questions with the pages of their search results, whose titles and URLs are needed.

    If the index lacks a page, the question is counted and skipped if `skipping`, and an error
    otherwise: without a question of the training set, overlapping test questions would pass.
    """
    questions = _questions(path, report)
    if index is None:
        yield from questions
        return
    with DocumentIndex(index) as pages:
        for question in questions:
            try:
                yield with_pages(question, pages.document)
            except RecordError as error:
                named = RecordError(f"question {question.id!r}: {error.problem}", error.field, path)
                if not skipping:
                    raise named from None
                report.read -= 1
                report.skip(named)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.filter_questions",
        description="Filters test questions as the paper does (section 3.1).",
    )
    add = parser.add_argument
    add("format", choices=("natural_questions", "eli5"), help="which filter to apply")
    add("input", type=path_on_disk, metavar="IN", help="questions, JSON lines")
    add("out", type=path_on_disk, metavar="OUT", help="file to write the questions to")
    add(
        "--train",
        type=path_on_disk,
        nargs="+",
        metavar="FILE",
        help="natural_questions: training questions that test questions must not overlap with",
    )
    add("--index", metavar="FILE", help="index with the pages of search results")
    add("--shortest", type=int, help=f"eli5: minimum characters of an answer (default {SHORTEST})")
    add("--longest", type=int, help=f"eli5: maximum characters of an answer (default {LONGEST})")
    add(
        "--like",
        type=path_on_disk,
        metavar="RATED",
        help="eli5: take both limits from the lengths of these rated answers",
    )
    flags = parser.parse_args(arguments)
    if (flags.format == "natural_questions") != (flags.train is not None):
        parser.error("natural_questions needs --train; eli5 doesn't take it")
    for name in ("shortest", "longest", "like"):
        if flags.format == "natural_questions" and getattr(flags, name) is not None:
            parser.error(f"--{name} works only for eli5")
    if flags.like is not None and (flags.shortest, flags.longest) != (None, None):
        parser.error("--like takes the place of --shortest and --longest: give one or the other")
    return flags


if __name__ == "__main__":
    sys.exit(main())

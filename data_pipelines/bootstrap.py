"""Turns the samples of a few-shot prompted model into rated answers (sections 2.5 and H).

    python -m data_pipelines.bootstrap SAMPLES QUESTIONS OUT --style short|long [--index corpus.db]

SAMPLES are JSON lines as `launch/eval.py --output` writes them, with `question_id`, `text`,
optionally `model`, and optionally `document`, the id of the page that the prompt showed. For each
question, the sample that is most like the known answer is kept. The command prints why others were
not.
"""

import argparse
import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_pipelines.bootstrapping import (
    BootstrapReport,
    BootstrapSettings,
    Sampled,
    best_answer,
)
from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.few_shot.prompting import Style
from gophercite.records import Question, RatedAnswer
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.search_results import with_pages
from gophercite.storage.json_fields import JsonFields, RecordError, in_one_line
from gophercite.storage.json_lines import read_json_lines
from gophercite.storage.overwriting import refuse_overwriting


def main(arguments: Sequence[str] | None = None) -> int:
    """Chooses among the samples that the command line names; returns 1 if none was kept."""
    flags = _parse(arguments)
    reading, report = records.Report(), BootstrapReport()
    try:
        refuse_overwriting([flags.out], [flags.samples, flags.questions])
        settings = BootstrapSettings(Style(flags.style), flags.plausible, flags.supported)
        samples = _read_samples(flags.samples, reading)
        answers = _answers(flags, samples, settings, reading, report)
        written = records.write(flags.out, answers)
    except (OSError, ValueError, IndexFileError) as error:
        print(f"bootstrap: {in_one_line(error)}", file=sys.stderr)
        return 1
    if reading.skipped:
        print(reading, file=sys.stderr)
    print(report)
    return 0 if written else 1


def _answers(
    flags: argparse.Namespace,
    samples: dict[str, list[Sampled]],
    settings: BootstrapSettings,
    reading: records.Report,
    report: BootstrapReport,
) -> Iterator[RatedAnswer]:
    pages = DocumentIndex(flags.index) if flags.index is not None else None
    for question in records.read(flags.questions, Question, report=reading):
        drawn = samples.pop(question.id, [])
        try:
            with_page = question if pages is None else with_pages(question, pages.document)
        except RecordError as error:
            problem = f"question {question.id!r}: {error.problem}"
            reading.skip(RecordError(problem, error.field, flags.questions))
            continue
        answer = best_answer(with_page, drawn, settings, report)
        if answer is not None:
            yield answer
    unasked = sum(map(len, samples.values()))
    if unasked:
        report.samples += unasked
        report.refused["the question is not in the file of questions"] += unasked


def _read_samples(path: Path, report: records.Report) -> dict[str, list[Sampled]]:
    """Returns the samples of each question, in their order."""
    samples: dict[str, list[Sampled]] = collections.defaultdict(list)
    for number, value in read_json_lines(path):
        try:
            if isinstance(value, RecordError):
                raise value
            fields = JsonFields(value, None, report.unknown_fields)
            if fields.flag("declined"):
                continue
            sample = Sampled(
                fields.text("text", empty=True),
                fields.optional_text("document"),
                fields.optional_text("model"),
            )
            samples[fields.text("question_id")].append(sample)
        except RecordError as error:
            report.skip(RecordError(error.problem, error.field, path, number))
        else:
            report.read += 1
    return samples


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.bootstrap",
        description="Turns the samples of a few-shot prompted model into rated answers.",
    )
    add = parser.add_argument
    add(
        "samples",
        type=path_on_disk,
        metavar="SAMPLES",
        help="the samples: JSON lines with question_id and text",
    )
    add("questions", type=path_on_disk, metavar="QUESTIONS", help="the questions, JSON lines")
    add("out", type=path_on_disk, metavar="OUT", help="file to write the rated answers to")
    add(
        "--style",
        choices=[style.value for style in Style],
        required=True,
        help="style of the prompts",
    )
    add("--index", metavar="FILE", help="index with the pages of search results")
    add("--plausible", type=float, default=0.5, help="minimum ROUGE-L of a claim (default 0.5)")
    add("--supported", type=float, default=0.5, help="minimum ROUGE-L of a quote (default 0.5)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

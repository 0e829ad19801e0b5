"""Converts public question-answering data into the project's JSON lines.

    python -m data_pipelines.convert squad IN.json[.gz] OUT_DIR
    python -m data_pipelines.convert natural_questions IN.jsonl[.gz] OUT_DIR
    python -m data_pipelines.convert fairytaleqa IN.jsonl[.gz] OUT_DIR

OUT_DIR gets `documents_SPLIT.jsonl`, `questions_SPLIT.jsonl` and `rated_answers_SPLIT.jsonl` for
train, validation and test, divided by article or story. The claim is the answer, the quote the
sentence that holds it. Counts go to standard output, bad records by name to standard error.
"""

import argparse
import sys
from pathlib import Path

from data_pipelines.converters.fairytaleqa import convert_fairytaleqa
from data_pipelines.converters.gold import ConversionReport, Converter
from data_pipelines.converters.natural_questions import convert_natural_questions
from data_pipelines.converters.squad import convert_squad
from data_pipelines.converters.writing import ConversionSettings, write_records

CONVERTERS: dict[str, Converter] = {
    "squad": convert_squad,
    "natural_questions": convert_natural_questions,
    "fairytaleqa": convert_fairytaleqa,
}


def main() -> int:
    """Converts what the command line says; returns 1 when nothing could be converted."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.convert",
        description="Converts public question-answering data into the project's JSON lines.",
    )
    parser.add_argument("format", choices=sorted(CONVERTERS), help="what the file holds")
    parser.add_argument("input", type=Path, metavar="IN", help="the file, compressed or not")
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="folder to write to")
    parser.add_argument("--validation", type=float, default=0.1, help="share (default 0.1)")
    parser.add_argument("--test", type=float, default=0.1, help="share (default 0.1)")
    parser.add_argument(
        "--distractors", type=int, default=0, help="other documents per question (default 0)"
    )
    parser.add_argument(
        "--quote", choices=("sentence", "passage"), default="sentence", help="what is quoted"
    )
    arguments = parser.parse_args()
    report = ConversionReport()
    try:
        settings = ConversionSettings(
            arguments.validation, arguments.test, arguments.distractors, arguments.quote
        )
        gold = list(CONVERTERS[arguments.format](arguments.input, report))
        write_records(arguments.out, arguments.format, gold, settings, report)
    except (OSError, ValueError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    print(report.summary())
    for problem in report.named_problems():
        print(problem, file=sys.stderr)
    return 0 if gold else 1


if __name__ == "__main__":
    sys.exit(main())

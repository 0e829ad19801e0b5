"""Converts public question-answering data and textbooks into the project's JSON lines.

    python -m data_pipelines.convert squad             IN.json[.gz]  … OUT_DIR
    python -m data_pipelines.convert natural_questions IN.jsonl[.gz] … OUT_DIR
    python -m data_pipelines.convert fairytaleqa       IN.jsonl[.gz] … OUT_DIR
    python -m data_pipelines.convert textbooks         IN.jsonl[.gz] … OUT_DIR

OUT_DIR gets `documents_SPLIT.jsonl`, `questions_SPLIT.jsonl` and `rated_answers_SPLIT.jsonl` for
train, validation and test, divided by article, story or section; textbooks give documents only. The
claim is the answer, the quote the sentence that holds it. Counts go to standard output, bad records
by name to standard error.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.converters.articles import join_passages
from data_pipelines.converters.fairytaleqa import convert_fairytaleqa
from data_pipelines.converters.gold import ConversionReport, Converter
from data_pipelines.converters.natural_questions import convert_natural_questions
from data_pipelines.converters.squad import convert_squad
from data_pipelines.converters.textbooks import convert_textbooks
from data_pipelines.converters.writing import ConversionSettings, write_documents, write_records

CONVERTERS: dict[str, Converter] = {
    "squad": convert_squad,
    "natural_questions": convert_natural_questions,
    "fairytaleqa": convert_fairytaleqa,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts what the command line says; returns 1 when nothing could be converted."""
    flags = _parse(arguments)
    report = ConversionReport(strict=flags.strict)
    try:
        settings = ConversionSettings(flags.validation, flags.test, flags.distractors, flags.quote)
        if flags.format == "textbooks":
            pages = list(convert_textbooks(flags.input, report))
            write_documents(flags.out, pages, settings, report)
            empty = not pages
        else:
            convert = CONVERTERS[flags.format]
            gold = list(itertools.chain(*(convert(path, report) for path in flags.input)))
            gold = join_passages(gold) if flags.articles else gold
            write_records(flags.out, flags.format, gold, settings, report)
            empty = not gold
    except (OSError, ValueError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    print(report.summary())
    for problem in report.named_problems():
        print(problem, file=sys.stderr)
    return 1 if empty else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.convert",
        description="Converts public data into the project's JSON lines.",
    )
    parser.add_argument("format", choices=sorted([*CONVERTERS, "textbooks"]), help="of the files")
    parser.add_argument(
        "input", type=Path, nargs="+", metavar="IN", help="a file, compressed or not"
    )
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="folder to write to")
    parser.add_argument("--validation", type=float, default=0.1, help="share (default 0.1)")
    parser.add_argument("--test", type=float, default=0.1, help="share (default 0.1)")
    parser.add_argument(
        "--distractors", type=int, default=0, help="other documents per question (default 0)"
    )
    parser.add_argument(
        "--quote", choices=("sentence", "passage"), default="sentence", help="what is quoted"
    )
    parser.add_argument(
        "--articles", action="store_true", help="documents are whole articles, not passages"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad record")
    flags = parser.parse_args(arguments)
    if flags.format == "textbooks" and (flags.distractors or flags.quote != "sentence"):
        parser.error("textbooks have no questions: --distractors and --quote mean nothing there")
    if flags.articles and (flags.format not in ("squad", "natural_questions") or flags.distractors):
        parser.error("--articles is for squad and natural_questions, and needs no --distractors")
    return flags


if __name__ == "__main__":
    sys.exit(main())

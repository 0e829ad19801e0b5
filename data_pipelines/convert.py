"""Converts public question-answering data, textbooks and comparisons into JSON lines.

    python -m data_pipelines.convert squad IN.json[.gz] … OUT_DIR

OUT_DIR gets files of records for train, validation and test, split by article, story, section or
question:

- Sets with gold passages (squad, natural_questions, natural_questions_simplified, fairytaleqa,
  trivia_qa, fever, fool_me_twice) give `documents_SPLIT.jsonl`, `questions_SPLIT.jsonl` and
  `rated_answers_SPLIT.jsonl`. The claim is the answer, and the quote is the sentence that contains
  it.
- Sets of questions (natural_questions_open, eli5, alce, asqa, truthfulqa, trivia_qa_open, arc,
  hand_written, fact_check) give `questions_SPLIT.jsonl`.
- textbooks gives `documents_SPLIT.jsonl`.
- Comparisons (webgpt_comparisons, qa_feedback, and fever_comparisons, fool_me_twice_comparisons and
  fever_symmetric_comparisons, which are built from checked claims) give `comparisons_SPLIT.jsonl`.
- Demonstrations of browsing (webcpm) give `demonstrations_SPLIT.jsonl.gz` and the recorded world in
  which they took place.

Counts go to standard output, and the names of bad records to standard error.
"""

import argparse
import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from data_pipelines.converters.articles import join_passages
from data_pipelines.converters.fact_checking import (
    CheckedClaim,
    ClaimReader,
    convert_fever,
    convert_fool_me_twice,
    join_groups,
    read_fever,
    read_fever_symmetric,
    read_fool_me_twice,
)
from data_pipelines.converters.fairytaleqa import convert_fairytaleqa
from data_pipelines.converters.gold import ConversionReport, Converter, of_several_files
from data_pipelines.converters.natural_questions import (
    convert_natural_questions,
    convert_simplified,
)
from data_pipelines.converters.open_questions import (
    QuestionConverter,
    convert_alce,
    convert_asqa,
    convert_eli5,
    convert_natural_questions_open,
    convert_truthfulqa,
)
from data_pipelines.converters.qa_feedback import convert_qa_feedback
from data_pipelines.converters.squad import convert_squad
from data_pipelines.converters.textbooks import convert_textbooks
from data_pipelines.converters.trivia_qa import convert_trivia_qa
from data_pipelines.converters.webcpm_episodes import convert_webcpm
from data_pipelines.converters.webgpt import convert_webgpt_comparisons
from data_pipelines.converters.webgpt_questions import (
    convert_arc,
    convert_fact_check,
    convert_hand_written,
    convert_trivia_qa_open,
)
from data_pipelines.converters.writing import (
    SPLITS,
    ConversionSettings,
    split_of,
    write_comparisons,
    write_documents,
    write_questions,
    write_records,
)
from data_pipelines.disk_paths import path_on_disk
from data_pipelines.fabricated_comparisons import TYPES, fabricate
from gophercite.records import Comparison
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting

T = TypeVar("T")
ComparisonConverter = Callable[[Path, ConversionReport], Iterator[Comparison]]

GOLD: dict[str, Converter] = {
    "squad": convert_squad,
    "natural_questions": convert_natural_questions,
    "natural_questions_simplified": convert_simplified,
    "fairytaleqa": convert_fairytaleqa,
    "trivia_qa": convert_trivia_qa,
    "fever": convert_fever,
    "fool_me_twice": convert_fool_me_twice,
}
QUESTIONS: dict[str, QuestionConverter] = {
    "natural_questions_open": convert_natural_questions_open,
    "eli5": convert_eli5,
    "alce": convert_alce,
    "asqa": convert_asqa,
    "truthfulqa": convert_truthfulqa,
    "trivia_qa_open": convert_trivia_qa_open,
    "arc": convert_arc,
    "hand_written": convert_hand_written,
    "fact_check": convert_fact_check,
}
CLAIMS: dict[str, ClaimReader] = {
    "fever_comparisons": read_fever,
    "fool_me_twice_comparisons": read_fool_me_twice,
    "fever_symmetric_comparisons": read_fever_symmetric,
}
COMPARISONS: dict[str, ComparisonConverter] = {
    "webgpt_comparisons": convert_webgpt_comparisons,
    "qa_feedback": convert_qa_feedback,
}
_OF_GOLD = "documents", "questions", "rated_answers"
_WITH_ARTICLES = ("squad", "natural_questions", "natural_questions_simplified")


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts the inputs of the command line; returns 1 if nothing could be converted."""
    flags = _parse(arguments)
    report = ConversionReport(strict=flags.strict)
    try:
        settings = ConversionSettings(flags.validation, flags.test, flags.distractors, flags.quote)
        refuse_overwriting(_outputs(flags), flags.input)
        empty = not _convert(flags, settings, report)
    except (OSError, ValueError) as error:
        print(f"convert: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(report.summary())
    for problem in report.named_problems():
        print(problem, file=sys.stderr)
    if empty and not report.problems:
        paths = " ".join(map(str, flags.input))
        print(f"convert: {paths}: found nothing that can be converted", file=sys.stderr)
    return 1 if empty else 0


def _outputs(flags: argparse.Namespace) -> list[Path]:
    """The files that a conversion writes, or may write."""
    kinds: tuple[str, ...] = _OF_GOLD
    if flags.format == "webcpm":
        kinds = ("demonstrations",)
    elif flags.format in (*COMPARISONS, *CLAIMS):
        kinds = ("comparisons",)
    elif flags.format == "textbooks":
        kinds = ("documents",)
    elif flags.format in QUESTIONS:
        kinds = ("documents", "questions")
    end = ".jsonl.gz" if flags.format == "webcpm" else ".jsonl"
    return [flags.out / f"{kind}_{split}{end}" for kind in kinds for split in SPLITS]


def _convert(
    flags: argparse.Namespace, settings: ConversionSettings, report: ConversionReport
) -> int:
    """Converts the input and returns the number of records found; writes nothing if it is 0."""
    if flags.format == "textbooks":
        pages = list(convert_textbooks(flags.input, report))
        if pages:
            write_documents(flags.out, pages, settings, report)
        return len(pages)
    if flags.format == "webcpm":
        return convert_webcpm(flags.input, flags.out, settings, report)
    if flags.format in COMPARISONS:
        compared = _all(COMPARISONS[flags.format], flags.input, report)
        if compared:
            write_comparisons(flags.out, compared, settings, report)
        return len(compared)
    if flags.format in CLAIMS:
        claims = _all(CLAIMS[flags.format], flags.input, report)
        if claims:
            _write_fabricated(flags, claims, settings, report)
        return len(claims)
    if flags.format in QUESTIONS:
        converter = QUESTIONS[flags.format]
        if flags.webgpt:
            converter = functools.partial(convert_eli5, webgpt=True)
        questions = _all(converter, flags.input, report)
        if questions:
            write_questions(flags.out, questions, settings, report)
        return len(questions)
    gold = of_several_files(GOLD[flags.format](path, report) for path in flags.input)
    gold = join_passages(gold) if flags.articles else gold
    if gold:
        write_records(flags.out, flags.format, gold, settings, report)
    return len(gold)


def _write_fabricated(
    flags: argparse.Namespace,
    claims: Sequence[CheckedClaim],
    settings: ConversionSettings,
    report: ConversionReport,
) -> None:
    source = flags.format.removesuffix("_comparisons")
    by_split: dict[str, list[CheckedClaim]] = {split: [] for split in SPLITS}
    for claim in join_groups(claims):
        by_split[split_of(claim.group, settings)].append(claim)
    # Split by split, because false quotes come from the pages of other claims.
    fabricated = [
        one
        for of_split in by_split.values()
        for one in fabricate(of_split, source, report, types=flags.types)
    ]
    groups: dict[str, str] = {}
    for one in fabricated:
        groups.setdefault(one.comparison.id, one.group)  # of equal ids the first is written
    write_comparisons(flags.out, (one.comparison for one in fabricated), settings, report, groups)


def _all(
    convert: Callable[[Path, ConversionReport], Iterator[T]],
    paths: Sequence[Path],
    report: ConversionReport,
) -> list[T]:
    return list(itertools.chain.from_iterable(convert(path, report) for path in paths))


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1")


def _number(text: str) -> int:
    with contextlib.suppress(ValueError):
        if int(text) >= 0:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.convert",
        description="Converts public data into the project's JSON lines.",
    )
    formats = sorted([*GOLD, *QUESTIONS, *CLAIMS, *COMPARISONS, "textbooks", "webcpm"])
    parser.add_argument("format", choices=formats, help="format of the input files")
    parser.add_argument(
        "input", type=path_on_disk, nargs="+", metavar="IN", help="input file, compressed or not"
    )
    parser.add_argument("out", type=path_on_disk, metavar="OUT_DIR", help="folder to write to")
    parser.add_argument(
        "--validation", type=_share, default=0.1, help="share of the validation split (default 0.1)"
    )
    parser.add_argument(
        "--test", type=_share, default=0.1, help="share of the test split (default 0.1)"
    )
    parser.add_argument(
        "--distractors", type=_number, default=0, help="other documents per question (default 0)"
    )
    parser.add_argument(
        "--quote",
        choices=("sentence", "passage"),
        default="sentence",
        help="what to quote (default sentence)",
    )
    parser.add_argument(
        "--articles", action="store_true", help="use whole articles as documents, not passages"
    )
    parser.add_argument(
        "--types",
        type=lambda text: text.split(","),
        metavar="TYPE,…",
        help="types of comparisons built from claims (default A,B,A2,B2)",
    )
    parser.add_argument(
        "--webgpt",
        action="store_true",
        help="eli5: word the questions as WebGPT's model was asked them",
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad record")
    flags = parser.parse_args(arguments)
    if flags.format not in GOLD and (flags.distractors or flags.quote != "sentence"):
        what = "has no questions" if flags.format == "textbooks" else "gives no gold passages"
        parser.error(f"{flags.format} {what}: --distractors and --quote have no effect on it")
    if flags.articles and (flags.format not in _WITH_ARTICLES or flags.distractors):
        parser.error(
            "--articles works only for squad and natural_questions, and not with --distractors"
        )
    if flags.types is not None and flags.format not in CLAIMS:
        parser.error(f"--types works only for {', '.join(CLAIMS)}")
    if flags.webgpt and flags.format != "eli5":
        parser.error("--webgpt works only for eli5")
    flags.types = flags.types or TYPES
    return flags


if __name__ == "__main__":
    sys.exit(main())

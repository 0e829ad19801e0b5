"""Gives questions and rated answers their search results from an index of whole pages.

    python -m data_pipelines.search rated-answers IN.jsonl OUT.jsonl --index corpus.db
    python -m data_pipelines.search questions     IN.jsonl OUT.jsonl --index corpus.db

Each record of OUT has hits in place of documents: ids of pages in the index (`gophercite index`
makes it) in rank order, with the snippets that it shows. Prints the gold pages' recall.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gophercite import records
from gophercite.json_fields import RecordError
from gophercite.records import Question, RatedAnswer
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.search_results import R, SearchReport, SearchSettings, with_search_results

_KEPT_PROBLEMS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches for what the command line says; returns 1 when nothing could be written."""
    flags = _parse(arguments)
    read, found = records.Report(), SearchReport()
    problems: list[str] = []
    try:
        settings = SearchSettings(flags.results, flags.append, not flags.found_only)
        with DocumentIndex(flags.index) as index:

            def search(record: R) -> R:
                return with_search_results(record, index, settings, found)

            if flags.kind == "questions":
                questions = records.read(flags.input, Question, strict=flags.strict, report=read)
                written = records.write(flags.out, _found(questions, search, flags, problems))
            else:
                answers = records.read(flags.input, RatedAnswer, strict=flags.strict, report=read)
                written = records.write(flags.out, _found(answers, search, flags, problems))
    except (OSError, ValueError, IndexFileError) as error:
        print(f"search: {error}", file=sys.stderr)
        return 1
    if read.skipped:
        print(f"{flags.input}: {read}", file=sys.stderr)
    for problem in problems[:_KEPT_PROBLEMS]:
        print(problem, file=sys.stderr)
    print(_summary(flags.out, written, len(problems), found, settings))
    return 0 if written else 1


def _found(
    asked: Iterator[R], search: Callable[[R], R], flags: argparse.Namespace, problems: list[str]
) -> Iterator[R]:
    """Yields records with their search results; those that do not fit the index are named."""
    for record in asked:
        try:
            yield search(record)
        except RecordError as error:
            name = record.question_id if isinstance(record, RatedAnswer) else record.id
            problem = f"{flags.input}: question {name!r}: {error}"
            if flags.strict:
                raise RecordError(problem) from None
            problems.append(problem)


def _summary(
    out: Path, written: int, skipped: int, found: SearchReport, settings: SearchSettings
) -> str:
    lines = [f"{out}: {written} records written, {skipped} skipped"]
    if found.questions:
        lines.append(
            f"{found.hits / found.questions:.1f} pages found for a question; "
            f"none for {found.without_hits}"
        )
    if found.with_gold:
        ranks = [k for k in (1, 5, 10) if k <= settings.results]
        shares = ", ".join(f"{found.recall(k):.1%} among {k}" for k in ranks)
        lines.append(f"gold page found: {shares} (of {found.with_gold} questions that have one)")
    if found.spans_left_out:
        lines.append(f"{found.spans_left_out} gold spans of pages that were not found left out")
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.search",
        description="Gives questions and rated answers their search results from an index.",
    )
    add = parser.add_argument
    add("kind", choices=("questions", "rated-answers"), help="what the records are")
    add("input", type=Path, metavar="IN", help="JSON lines, compressed or not")
    add("out", type=Path, metavar="OUT", help="file to write")
    add("--index", required=True, metavar="FILE", help="the index, as `gophercite index` makes it")
    add("--results", type=int, default=10, help="pages wanted for each question (default 10)")
    add("--append", default="", metavar="WORDS", help="to each query, such as -site:reddit.com")
    add(
        "--found-only",
        action="store_true",
        help="of questions: show only what was found; else gold pages that were not come last",
    )
    add("--strict", action="store_true", help="stop at the first bad record")
    flags = parser.parse_args(arguments)
    if flags.kind == "rated-answers" and flags.found_only:
        parser.error("--found-only is for questions: an answer needs the page that it quotes")
    return flags


if __name__ == "__main__":
    sys.exit(main())

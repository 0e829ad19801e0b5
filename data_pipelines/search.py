"""Gives questions and rated answers their search results, from an index of whole pages or the web.

    python -m data_pipelines.search rated-answers IN.jsonl OUT.jsonl --index corpus.db
    python -m data_pipelines.search questions     IN.jsonl OUT.jsonl --index web.db --engine brave

Each record of OUT has hits instead of documents: the ids of pages in the index (built by
`gophercite index`) in rank order, with the snippets of the results page. With a web search engine,
the pages found are fetched and added to the index, which is created if necessary. The command
prints the recall of the gold pages.
"""

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.extraction.extractor import Extractor
from gophercite.records import Question, RatedAnswer
from gophercite.retrieval.apis import ENGINES, api_from_environment
from gophercite.retrieval.engine import SearchError
from gophercite.retrieval.fetch import FetchSettings
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.search_results import R, SearchReport, SearchSettings, with_search_results
from gophercite.retrieval.stored_web import StoredWeb
from gophercite.retrieval.web import WebEngine, WebSettings
from gophercite.storage.json_fields import RecordError, in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted

_KEPT_PROBLEMS = 100
_SECONDS_BETWEEN_NOTES = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches for the given records; returns 1 if nothing could be written."""
    flags = _parse(arguments)
    reading, found = records.Report(), SearchReport()
    problems: list[str] = []
    web: StoredWeb | None = None
    try:
        refuse_overwriting([flags.out], [flags.input, flags.index])
        settings = SearchSettings(flags.results, flags.append, not flags.found_only)
        with contextlib.ExitStack() as stack:
            index = stack.enter_context(DocumentIndex(flags.index, write=flags.engine is not None))
            web = None if flags.engine is None else _web(flags, index, stack)

            def search(record: R) -> R:
                return with_search_results(record, index, settings, found, web)

            if flags.kind == "questions":
                questions = records.read(flags.input, Question, strict=flags.strict, report=reading)
                with_progress = _noted(questions, web)
                written = _write(flags.out, _found(with_progress, search, flags, problems))
            else:
                answers = records.read(
                    flags.input, RatedAnswer, strict=flags.strict, report=reading
                )
                rated = _noted(answers, web)
                written = _write(flags.out, _found(rated, search, flags, problems))
    except (OSError, ValueError, IndexFileError, SearchError) as error:
        print(f"search: {in_one_line(error)}", file=sys.stderr)
        return 1
    if reading.skipped:
        print(f"{flags.input}: {reading}", file=sys.stderr)
    failures = [f"{url}: {why}" for url, why in web.failed.items()] if web else []
    for problem in (*problems[:_KEPT_PROBLEMS], *failures[:_KEPT_PROBLEMS]):
        print(problem, file=sys.stderr)
    if not written:
        print(f"search: {flags.input}: holds no record that can be used", file=sys.stderr)
        return 1
    print(_summary(flags.out, written, len(problems), found, settings))
    if web is not None:
        print(f"{counted(web.fetched, 'page')} fetched, {len(web.failed)} could not be fetched")
    return 0


def _write(path: Path, found: Iterator[R]) -> int:
    """Writes records and returns their number; of none, what an earlier command wrote stays."""
    first = next(found, None)
    return 0 if first is None else records.write(path, itertools.chain([first], found))


def _web(flags: argparse.Namespace, index: DocumentIndex, stack: contextlib.ExitStack) -> StoredWeb:
    """The search engine that the flags name; `stack` closes it."""
    api = api_from_environment(flags.engine)
    engine = stack.enter_context(WebEngine(api, WebSettings(cache=flags.search_cache)))
    extractor = stack.enter_context(Extractor(flags.html))
    settings = FetchSettings(allowed_networks=tuple(flags.networks))
    return StoredWeb(engine, index, extractor, settings)


def _noted(asked: Iterator[R], web: StoredWeb | None) -> Iterator[R]:
    """Yields records; during a web search, which takes hours, reports progress regularly."""
    begun = noted = time.monotonic()
    for number, record in enumerate(asked):
        now = time.monotonic()
        if web is not None and now - noted > _SECONDS_BETWEEN_NOTES:
            noted = now
            print(
                f"{counted(number, 'record')} searched for, {number / (now - begun):.2f} a second; "
                f"{counted(web.fetched, 'page')} fetched, {len(web.failed)} could not be fetched",
                file=sys.stderr,
            )
        yield record


def _found(
    asked: Iterator[R], search: Callable[[R], R], flags: argparse.Namespace, problems: list[str]
) -> Iterator[R]:
    """Yields records with their search results; reports records that don't match the index."""
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
    lines = [f"{out}: {counted(written, 'record')} written, {skipped} skipped"]
    if found.questions:
        lines.append(
            f"{found.hits / found.questions:.1f} pages found per question; "
            f"none for {found.without_hits}"
        )
    if found.with_gold:
        ranks = [k for k in (1, 5, 10) if k <= settings.results]
        shares = ", ".join(f"{found.recall(k):.1%} among {k}" for k in ranks)
        lines.append(f"gold page found: {shares} (of {found.with_gold} questions that have one)")
    if found.spans_left_out:
        lines.append(
            f"{found.spans_left_out} gold spans left out, because their pages were not found"
        )
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.search",
        description="Gives questions and rated answers their search results.",
    )
    add = parser.add_argument
    add("kind", choices=("questions", "rated-answers"), help="kind of the records")
    add("input", type=path_on_disk, metavar="IN", help="the records, JSON lines, compressed or not")
    add("out", type=path_on_disk, metavar="OUT", help="file to write the records to")
    add("--index", required=True, metavar="FILE", help="index written by `gophercite index`")
    add("--engine", choices=ENGINES, help="search the web; its pages are added to the index")
    add("--results", type=int, default=10, help="number of pages per question (default 10)")
    add(
        "--append",
        default="",
        metavar="WORDS",
        help="words to append to each query, such as -site:reddit.com",
    )
    add(
        "--found-only",
        action="store_true",
        help="questions: show only pages that were found (default: other gold pages come last)",
    )
    add("--strict", action="store_true", help="stop at the first bad record")
    web = parser.add_argument_group("with --engine")
    web.add_argument(
        "--search-cache", metavar="FOLDER", help="cache the engine's results in this folder"
    )
    web.add_argument(
        "--html",
        choices=("article", "full"),
        default="article",
        help="which part of an HTML page to read (default article)",
    )
    web.add_argument(
        "--allow-network", dest="networks", action="append", default=[], metavar="NETWORK",
        help="also fetch pages from this private network, such as 10.1.0.0/16; may be repeated",
    )  # fmt: skip
    flags = parser.parse_args(arguments)
    if flags.kind == "rated-answers" and flags.found_only:
        parser.error(
            "--found-only works only for questions: an answer needs the page that it quotes"
        )
    return flags


if __name__ == "__main__":
    sys.exit(main())

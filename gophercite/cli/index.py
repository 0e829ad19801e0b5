"""`gophercite index`: builds or updates a search index of the user's own files."""

import argparse
import dataclasses
from typing import Any

from gophercite.cli.arguments import add_command, add_reading
from gophercite.cli.output import DONE, FAILED, RefusedError, print_json, print_text, shown
from gophercite.storage.json_fields import printable
from gophercite.text.counting import counted


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "index",
        run,
        "build or update a search index of your own files",
        ("notes/ papers/ --out corpus.db", "wiki.jsonl.gz --out wiki.db --json"),
    )
    command.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="files and folders: .txt, .md, .html, .pdf, and .jsonl of documents",
    )
    command.add_argument(
        "--out", required=True, metavar="FILE", help="the index file; it is created if missing"
    )
    add_reading(command)


def run(options: argparse.Namespace) -> int:
    """Updates an index for new, changed and deleted documents."""
    from gophercite.cli.sources import extractor_of
    from gophercite.retrieval import files
    from gophercite.retrieval.index import DocumentIndex
    from gophercite.retrieval.index_file import IndexFileError

    report = files.FilesReport()
    try:
        with (
            DocumentIndex(options.out, write=True) as index,
            extractor_of(options) as extractor,
        ):
            documents = files.read_by_file(options.paths, extractor, report)
            changes = index.follow(
                shown(documents, "documents"),
                lambda source: files.was_read(source, options.paths, report),
            )
            total = len(index)
    except IndexFileError as error:
        raise RefusedError(str(error)) from error
    if options.json:
        result = {"index": options.out, "documents": total, **changes._asdict()}
        problems = [str(problem) for problem in report.problems]
        counts = {**dataclasses.asdict(report), "problems": problems}
        print_json({**result, **counts})
    else:
        print_text("\n".join(map(printable, str(report).split("\n"))))
        print_text(
            f"{options.out}: {counted(total, 'document')} ({changes.added} added, "
            f"{changes.updated} updated, {changes.unchanged} unchanged, {changes.deleted} deleted)"
        )
    return FAILED if report.skipped else DONE

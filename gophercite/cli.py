"""The `gophercite` command.

Everything heavy is imported by the subcommand that needs it: `gophercite --help` answers at once.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import gophercite

T = TypeVar("T")

DONE, FAILED = 0, 1  # argparse itself exits with 2 for wrong usage

_EXAMPLES = """\
examples:
  gophercite index notes/ papers/ --out corpus.db
  gophercite validate questions.jsonl --kind questions
  gophercite info runs/quickstart --json

exit status: 0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage
"""


class RefusedError(Exception):
    """What the user asked for can't be done; the message is for the user."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: without the program's name; from the command line when None.

    Returns:
      The exit status.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (RefusedError, OSError) as error:
        print(f"gophercite {options.command}: {error}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gophercite",
        description="Language models that answer a question and prove it with a verbatim quote.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=gophercite.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    validate = _add(commands, "validate", _validate, "check files of JSON-lines records")
    validate.add_argument("files", nargs="+", metavar="FILE", help=".jsonl or .jsonl.gz")
    validate.add_argument(
        "--kind",
        required=True,
        choices=("documents", "questions", "rated-answers"),
        help="what the lines are (docs/records.md)",
    )

    index = _add(commands, "index", _index, "build or update a search index of your own files")
    index.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="files and folders: .txt, .md, .html, .pdf, and .jsonl of documents",
    )
    index.add_argument("--out", required=True, metavar="FILE", help="the index; made when missing")
    index.add_argument(
        "--html",
        choices=("article", "full"),
        default="article",
        help="of HTML pages: the main text, or all of it with tables and lists",
    )

    info = _add(commands, "info", _info, "describe a model folder or a training run's folder")
    info.add_argument("folder", metavar="FOLDER")
    return parser


def _add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> argparse.ArgumentParser:
    """A subcommand that prints its result as text or, with `--json`, as one JSON object."""
    command = commands.add_parser(name, help=summary, description=summary)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=run)
    return command


def _validate(options: argparse.Namespace) -> int:
    """Reads every record and reports the bad ones by file, line and field."""
    from gophercite import documents, records

    kinds: dict[str, type] = {
        "documents": documents.Document,
        "questions": records.Question,
        "rated-answers": records.RatedAnswer,
    }
    report = records.Report()
    for file in options.files:
        try:
            for _ in records.read(file, kinds[options.kind], report=report):
                pass
        except records.RecordError as error:
            raise RefusedError(str(error)) from error
    if options.json:
        _print_json(
            {
                "read": report.read,
                "skipped": report.skipped,
                "errors": [
                    {"file": e.path, "line": e.line, "field": e.field, "problem": e.problem}
                    for e in report.errors
                ],
                "unknown_fields": dict(report.unknown_fields),
            }
        )
    else:
        print(report)
    return FAILED if report.skipped else DONE


def _index(options: argparse.Namespace) -> int:
    """Brings an index up to date with files: new, changed and vanished ones."""
    from gophercite.retrieval import extraction, files
    from gophercite.retrieval.index import DocumentIndex
    from gophercite.retrieval.index_file import IndexFileError

    report = files.FilesReport()
    try:
        with (
            DocumentIndex(options.out, write=True) as index,
            extraction.Extractor(options.html) as extractor,
        ):
            documents = files.read_files(options.paths, extractor, report)
            changes = index.add(_shown(documents, "documents"))
            deleted = index.delete(
                id
                for id in index.ids()
                if files.is_below(id, options.paths) and not files.exists(id)
            )
            total = len(index)
    except IndexFileError as error:
        raise RefusedError(str(error)) from error
    if options.json:
        result = {"index": options.out, "documents": total, **changes._asdict()}
        _print_json({**result, "deleted": deleted, **dataclasses.asdict(report)})
    else:
        print(report)
        print(
            f"{options.out}: {total} documents ({changes.added} added, {changes.updated} updated, "
            f"{changes.unchanged} unchanged, {deleted} deleted)"
        )
    return FAILED if report.skipped else DONE


def _shown(items: Iterable[T], what: str) -> Iterator[T]:
    """Passes items through, and counts them on a terminal while the work goes on."""
    start = shown = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - shown > 1 and sys.stderr.isatty():
            shown = now
            rate = number / (now - start)
            print(f"\r{number} {what}, {rate:.1f} a second\x1b[K", end="", file=sys.stderr)
    if shown > start:
        print("\r\x1b[K", end="", file=sys.stderr)


def _info(options: argparse.Namespace) -> int:
    """Prints what a model is, from its description alone."""
    from gophercite.models import checkpoint_files, config_json, folder

    try:
        description = folder.read_description(options.folder)
    except folder.ModelFolderError as error:
        raise RefusedError(str(error)) from error
    architecture = config_json.config_to_json(description.config)
    result: dict[str, Any] = {
        "folder": options.folder,
        "parameters": description.config.parameters,
        "architecture": architecture,
        "provenance": description.provenance,
    }
    if description.parameters is None:
        result["checkpoints"] = checkpoint_files.saved_steps(options.folder)
        result["best_checkpoint"] = checkpoint_files.best_step(options.folder)
    else:
        result["files"] = sorted({stored.file for stored in description.parameters.values()})
    if options.json:
        _print_json(result)
        return DONE
    print(f"{options.folder}: {description.config.parameters:,} parameters")
    for title in ("architecture", "provenance"):
        print(f"{title}:")
        for name, value in result[title].items():
            print(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    for title in ("files", "checkpoints", "best_checkpoint"):
        if title in result:
            print(f"{title.replace('_', ' ')}: {json.dumps(result[title])}")
    return DONE


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


if __name__ == "__main__":
    sys.exit(main())

"""`gophercite verify`: checks whether the quotes of an answer stand where it says."""

import argparse
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from gophercite.cli.arguments import add_command, add_highlight, add_networks, add_reading
from gophercite.cli.output import (
    DONE,
    FAILED,
    RefusedError,
    doing,
    note,
    print_json,
    print_text,
    require_place,
    require_unread,
    write_text,
)
from gophercite.cli.sources import documents_of, fetch_settings, opened_index

if TYPE_CHECKING:
    from gophercite.answering.verification import Check, Finder
    from gophercite.records.answers import Answer


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "verify",
        run,
        "check whether an answer's quotes are really in the pages that it names",
        (
            "answer.json --documents examples/notes",
            "answer.json --index corpus.db --highlight answer.html",
            "answer.json --json   # pages of the web, fetched again",
        ),
    )
    command.add_argument(
        "answer", metavar="ANSWER.json", help="answer written by `gophercite ask --json`"
    )
    pages = command.add_mutually_exclusive_group()
    pages.add_argument(
        "--documents", nargs="+", metavar="PATH", help="check against files and folders"
    )
    pages.add_argument("--index", metavar="FILE", help="check against this index")
    add_reading(command)
    add_highlight(command)
    add_networks(command)


def run(options: argparse.Namespace) -> int:
    """Checks every quote; fails unless the pages contain all of them word for word."""
    from gophercite.answering.verification import verify
    from gophercite.cli.answer_text import AnswerText
    from gophercite.records import answers
    from gophercite.retrieval.engine import SearchError
    from gophercite.storage.json_fields import RecordError

    if options.highlight is not None:
        require_place(options.highlight)
        read = [options.answer, *(options.documents or []), options.index]
        require_unread("--highlight", options.highlight, read)
    try:
        answer = answers.read_answer(options.answer)
        with contextlib.ExitStack() as stack, doing("checking"):
            checks = verify(answer, _finder(options, answer, stack))
    except (RecordError, SearchError) as error:
        raise RefusedError(str(error)) from error
    holds = all(check.holds for check in checks)
    if options.json:
        print_json({"verified": holds, "checks": [_to_json(check) for check in checks]})
    else:
        text = AnswerText()
        for check in checks:
            print_text(text.check(check))
        counts = Counter(check.verdict.value for check in checks)
        numbers = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        print_text(numbers or "the answer was declined, so there is nothing to check")
    if options.highlight is not None:
        from gophercite.answering.highlighting import highlight_checks

        page = highlight_checks(answer, checks).page()
        write_text(options.highlight, page)
    return DONE if holds else FAILED


def _finder(options: argparse.Namespace, answer: "Answer", stack: contextlib.ExitStack) -> "Finder":
    from gophercite.answering import verification
    from gophercite.extraction.extractor import Extractor
    from gophercite.retrieval.files import FilesReport

    if options.documents is not None:
        report = FilesReport()
        finder = verification.in_documents(documents_of(options, report), answer)
        for problem in report.problems:
            note(f"skipped: {problem}")
        return finder
    if options.index is not None:
        return verification.in_index(stack.enter_context(opened_index(options.index)))
    extractor = stack.enter_context(Extractor(options.html))
    return verification.on_the_web(answer, extractor, fetch_settings(options))


def _to_json(check: "Check") -> dict[str, Any]:
    citation = check.citation
    return {
        "verdict": check.verdict.value,
        "detail": check.detail,
        "claim": citation.claim,
        "quote": check.quote,
        "title": citation.title,
        "page_title": check.page.title if check.page else None,
        "document": citation.document,
        "url": citation.url,
        "sha256": citation.sha256,
        "matched_by": check.matched_by.value if check.matched_by else None,
        "found_in": check.page.id if check.page else None,
        "page_changed": check.page_changed,
        "start": check.start,
        "end": check.end,
        "pages": list(check.pages),
        "found": check.found,
    }

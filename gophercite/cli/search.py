"""`gophercite search`: the pages that a question would be answered from, without an answer."""

import argparse
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gophercite.cli.arguments import add_command, add_pages, add_reading, add_web, positive
from gophercite.cli.output import DONE, RefusedError, doing, print_json, print_text
from gophercite.cli.sources import search_engine

if TYPE_CHECKING:
    from gophercite.retrieval.engine import Hit

_EXAMPLES = (
    "lighthouse --documents examples/notes",
    '"when was the lighthouse built" --index corpus.db --pages 3 --json',
    '"lighthouse -site:reddit.com" --engine brave',
)


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands, "search", run, "search your own files, an index or the web", _EXAMPLES
    )
    command.add_argument(
        "query", metavar="QUERY", help="the search words; site: and -site: filter the pages"
    )
    add_pages(command, "search")
    command.add_argument(
        "--pages",
        type=positive,
        default=10,
        metavar="N",
        help="number of hits to show (default: 10)",
    )
    add_reading(command)
    add_web(command)


def run(options: argparse.Namespace) -> int:
    """Prints the hits, the best first."""
    from gophercite.answering.pages import asked
    from gophercite.retrieval.engine import SearchError

    try:
        asked(options.query)
    except ValueError:
        raise RefusedError("the query has no words to search for") from None
    try:
        with contextlib.ExitStack() as stack:
            engine = search_engine(options, stack)
            with doing("searching"):
                hits = engine.search(options.query, options.pages)
    except (ValueError, SearchError) as error:
        raise RefusedError(str(error)) from error
    if options.json:
        print_json({"query": options.query, "hits": [_to_json(n, h) for n, h in _ranked(hits)]})
    else:
        from gophercite.cli.answer_text import AnswerText

        text = AnswerText()
        for rank, hit in _ranked(hits):
            print_text(text.hit(rank, hit))
        if not hits:
            print_text("No page holds any of these words.")
    return DONE


def _ranked(hits: "Sequence[Hit]") -> "enumerate[Hit]":
    return enumerate(hits, 1)


def _to_json(rank: int, hit: "Hit") -> dict[str, Any]:
    return {
        "rank": rank,
        "title": hit.title,
        "snippet": hit.snippet,
        "score": hit.score,
        "document": hit.id,
        "url": hit.url or None,
    }

"""Arguments that several commands share, so that they mean the same everywhere."""

import argparse
import ipaddress
import math
from collections.abc import Callable, Sequence
from typing import Any

from gophercite.retrieval.apis import ENGINES

LARGEST_SEED = (1 << 32) - 1
_LARGEST = (1 << 31) - 1  # the largest 32-bit integer, as arrays and databases use


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: Sequence[str],
) -> argparse.ArgumentParser:
    """A subcommand that prints its result as text or, with `--json`, as one JSON object.

    Args:
      commands: the parser's subcommands.
      name: this command's name.
      run: executes it, and returns the exit status.
      summary: one line.
      examples: command lines for `--help`, without the program's name.
    """
    lines = "".join(f"\n  gophercite {name} {example}" for example in examples)
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=run)
    return command


def add_html(command: argparse.ArgumentParser, default: str = "article") -> None:
    """`--html`: how much of an HTML page is read."""
    command.add_argument(
        "--html",
        choices=("article", "full", "browser", "browser-full"),
        default=default,
        help="how to read HTML pages: article is the main text, full is all text with tables and "
        "lists; browser and browser-full are the same as `gophercite browse` shows them "
        "(default: %(default)s)",
    )


def add_reading(command: argparse.ArgumentParser, html: str = "article") -> None:
    """How files are read: `--html`, `--max-file-size`, `--no-text-cache`."""
    add_html(command, html)
    command.add_argument(
        "--max-file-size",
        type=positive,
        default=32,
        metavar="MIB",
        help="size of the largest file to read, in MiB (default: 32)",
    )
    command.add_argument(
        "--no-text-cache",
        action="store_true",
        help="read all files again, and don't cache their texts for the next time",
    )


def add_highlight(
    command: argparse.ArgumentParser,
    what: str = "also write an HTML page that marks the quotes in their pages",
) -> None:
    """`--highlight`: a page with the quotes marked, for a browser."""
    command.add_argument("--highlight", metavar="FILE.html", help=what)


def add_pages(command: argparse.ArgumentParser, verb: str) -> None:
    """`--documents`, `--index` or `--engine`: where pages come from; one of them is required."""
    pages = command.add_mutually_exclusive_group(required=True)
    pages.add_argument(
        "--documents",
        nargs="+",
        metavar="PATH",
        help=f"{verb} files and folders: .txt, .md, .html, .pdf, and .jsonl of documents",
    )
    pages.add_argument(
        "--index", metavar="FILE", help=f"{verb} an index made by `gophercite index`"
    )
    pages.add_argument("--engine", choices=ENGINES, help=f"{verb} the web, with this search engine")


def add_web(command: argparse.ArgumentParser) -> None:
    """`--search-cache` and `--allow-network`: how the web is accessed."""
    web = command.add_argument_group("the web")
    web.add_argument(
        "--search-cache", metavar="FOLDER", help="cache the engine's results in this folder"
    )
    add_networks(web)


def add_networks(command: argparse._ActionsContainer) -> None:
    """`--allow-network`: networks that may be fetched from in addition to public addresses."""
    command.add_argument(
        "--allow-network",
        dest="networks",
        action="append",
        default=[],
        type=_network,
        metavar="NETWORK",
        help="also fetch pages from this private network, such as 10.1.0.0/16; may be repeated",
    )


def positive(text: str) -> int:
    """A positive integer."""
    return _whole(text, 1)


def count(text: str) -> int:
    """An integer of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{number}: must be at least {least}")
    if number > _LARGEST:
        raise argparse.ArgumentTypeError(f"{number}: must be at most {_LARGEST}")
    return number


def share(text: str) -> float:
    """A number strictly between 0 and 1."""
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be between 0 and 1")
    return number


def fraction(text: str) -> float:
    """A number in [0, 1)."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 0 and below 1")
    return number


def portion(text: str) -> float:
    """A number in [0, 1]."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text}: must be from 0 to 1")
    return number


def amount(text: str) -> float:
    """A finite number of at least 0."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number, at least 0")
    return number


def seed(text: str) -> int:
    """An unsigned 32-bit integer."""
    number = int(text)
    if not 0 <= number <= LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{number}: must be from 0 to {LARGEST_SEED}")
    return number


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}") from None

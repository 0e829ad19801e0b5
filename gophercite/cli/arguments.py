"""Arguments that several commands have, so that they mean the same in each."""

import argparse
import ipaddress
from collections.abc import Callable
from typing import Any


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> argparse.ArgumentParser:
    """A subcommand that prints its result as text or, with `--json`, as one JSON object."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=run)
    return command


def add_html(command: argparse.ArgumentParser) -> None:
    """`--html`: how much of an HTML page is read."""
    command.add_argument(
        "--html",
        choices=("article", "full"),
        default="article",
        help="of HTML pages: the main text, or all of it with tables and lists",
    )


def add_reading(command: argparse.ArgumentParser) -> None:
    """How files are read: `--html`, `--max-file-size`, `--no-text-cache`."""
    add_html(command)
    command.add_argument(
        "--max-file-size",
        type=positive,
        default=32,
        metavar="MIB",
        help="largest file that is read, in MiB (default: 32)",
    )
    command.add_argument(
        "--no-text-cache",
        action="store_true",
        help="read all files anew, and keep no texts for the next time",
    )


def add_highlight(command: argparse.ArgumentParser) -> None:
    """`--highlight`: a page with the quotes marked, for a browser."""
    command.add_argument(
        "--highlight",
        metavar="FILE.html",
        help="also write a page that shows the quotes, marked in their pages",
    )


def add_networks(command: argparse._ActionsContainer) -> None:
    """`--allow-network`: which addresses may be fetched from besides public ones."""
    command.add_argument(
        "--allow-network",
        dest="networks",
        action="append",
        default=[],
        type=_network,
        metavar="NETWORK",
        help="also fetch pages from this network, which is not public, such as 10.1.0.0/16",
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: must be at least 1")
    return number


def share(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be between 0 and 1")
    return number


def fraction(text: str) -> float:
    """A number from 0 to below 1."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be from 0 to below 1")
    return number


def seed(text: str) -> int:
    """A whole number that fits 32 bits."""
    number = int(text)
    if not 0 <= number < 1 << 32:
        raise argparse.ArgumentTypeError(f"{number}: must be from 0 to {(1 << 32) - 1}")
    return number


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}") from None

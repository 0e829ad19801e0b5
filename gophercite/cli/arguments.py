"""Arguments that several commands have, so that they mean the same in each."""

import argparse
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

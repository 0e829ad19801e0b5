"""Arguments of the form NAME=PATH, and what is wrong with several of them."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Sequence


def named_path(text: str) -> tuple[str, str]:
    """Reads NAME=PATH, for argparse's `type`; the path may contain further `=`.

    Raises:
      argparse.ArgumentTypeError: there is no `=`, or one side of it is empty.
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=PATH")
    return name, path


def refuse_repeated(
    parser: argparse.ArgumentParser, flag: str, given: Iterable[tuple[object, str]]
) -> None:
    """Ends with wrong usage if a name is given twice: results by name would lose the first.

    Args:
      parser: the command's.
      flag: the flag, as it is typed.
      given: its names and paths.
    """
    for name, count in Counter(name for name, _ in given).items():
        if count > 1:
            times = "twice" if count == 2 else f"{count} times"
            parser.error(f"{flag}: the name {name!r} is given {times}")


def refuse_own_results(
    parser: argparse.ArgumentParser, output: str, prefixes: Sequence[str]
) -> None:
    """Ends with wrong usage if a report would overwrite files of an evaluation that it reads.

    Args:
      parser: the command's.
      output: prefix of the report.
      prefixes: prefixes of the evaluations.
    """
    for prefix in prefixes:
        # Links included: either prefix may have them, and so may the files.
        if any(
            os.path.realpath(f"{output}{suffix}") == os.path.realpath(f"{prefix}{suffix}")
            for suffix in (".json", ".md", ".html")
        ):
            parser.error(
                f"--output {output} is also an evaluation's, whose files the report would "
                "overwrite: give another prefix"
            )

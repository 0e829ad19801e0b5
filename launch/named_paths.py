"""Arguments of the form NAME=PATH, and what is wrong with several of them."""

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence

from gophercite.storage.overwriting import refuse_overwriting

_SUFFIXES = ".json", ".md", ".html"  # of the files that evaluations and reports both write


def named_path(text: str) -> tuple[str, str]:
    """Reads NAME=PATH, for argparse's `type`; the path may contain further `=`.

    Raises:
      argparse.ArgumentTypeError: there is no `=`, a side of it is empty, or the name is not
        UTF-8.
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=PATH")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r}: the name is not UTF-8") from None
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
    written = [f"{output}{suffix}" for suffix in _SUFFIXES]
    try:
        refuse_overwriting(
            written, [f"{each}{suffix}" for each in prefixes for suffix in _SUFFIXES]
        )
    except ValueError as error:
        parser.error(f"--output: {error}")

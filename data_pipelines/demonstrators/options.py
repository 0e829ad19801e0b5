"""Shared options of the commands that generate demonstrations."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence

from data_pipelines.demonstrators.styles import STYLES, VARIED, Noise, Style
from gophercite.browser.settings import Settings

_RATES = tuple(field.name for field in dataclasses.fields(Noise))
_EVERY = 5.0  # seconds between lines of progress


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the styles, their noise and the rules of the episodes."""
    styles = parser.add_argument_group("demonstrators")
    styles.add_argument(
        "--styles",
        default=",".join(VARIED),
        metavar="STYLE,…",
        help=f"styles that take turns, out of {', '.join(STYLES)} (default %(default)s)",
    )
    styles.add_argument(
        "--noise",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="factor for all mistake rates; 0 for no mistakes (default 1)",
    )
    styles.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="NAME=RATE",
        help=f"rate of one kind of mistake, from 0 to 1, for all styles: {', '.join(_RATES)}",
    )
    add_rules(parser)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the rules of episodes."""
    rules = parser.add_argument_group("rules of the episodes")
    default = Settings()
    rules.add_argument(
        "--actions",
        type=_actions,
        default=default.actions,
        metavar="N|N-M",
        help="number of actions per episode, or a range to draw it from (default 100)",
    )
    for name, what in (
        ("view_lines", "lines per screen"),
        ("lines_above", "lines shown above what `Find in page` finds"),
        ("columns", "characters per line"),
        ("results", "hits per page of results"),
        ("reference_characters", "maximum characters of all quotes together"),
    ):
        flag = f"--{name.replace('_', '-')}"
        value = getattr(default, name)
        rules.add_argument(flag, type=int, default=value, help=f"{what} (default {value})")


def settings_of(options: argparse.Namespace) -> Settings:
    """Returns the rules given on a command line.

    Raises:
      ValueError: the rules are invalid.
    """
    return Settings(
        actions=options.actions,
        view_lines=options.view_lines,
        lines_above=options.lines_above,
        columns=options.columns,
        results=options.results,
        reference_characters=options.reference_characters,
    )


def styles_of(options: argparse.Namespace) -> list[Style]:
    """Returns the styles given on a command line, with their noise.

    Raises:
      ValueError: a flag is wrong; the message says what would be right.
    """
    if not options.noise >= 0:
        raise ValueError(f"--noise is {options.noise}: must be 0 or more")
    styles = []
    for name in options.styles.split(","):
        if name not in STYLES:
            raise ValueError(f"--styles: {name!r} is not one of {', '.join(STYLES)}")
        styles.append(STYLES[name])
    given = {}
    for rate in options.rate:
        name, _, value = rate.partition("=")
        if name not in _RATES:
            raise ValueError(f"--rate: {name!r} is not one of {', '.join(_RATES)}")
        try:
            given[name] = float(value)
        except ValueError:
            raise ValueError(f"--rate {rate}: {value!r} is not a number") from None
    return [
        dataclasses.replace(
            style, noise=dataclasses.replace(style.noise.times(options.noise), **given)
        )
        for style in styles
    ]


def progress_of(what: str, number: int) -> Callable[[int], None]:
    """Returns a function that writes the progress to standard error from time to time."""
    last = time.monotonic()

    def say(done: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            print(f"{what}: {done} of {number}", file=sys.stderr, flush=True)

    return say


def _actions(text: str) -> int | tuple[int, int]:
    least, dash, most = text.partition("-")
    try:
        return (int(least), int(most)) if dash else int(least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range N-M") from None


def numbers(text: str) -> Sequence[float]:
    """Reads comma-separated numbers.

    Raises:
      argparse.ArgumentTypeError: they are not numbers, or are negative.
    """
    try:
        found = [float(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of numbers such as 4,3,2,1"
        ) from None
    if min(found) < 0 or not 0 < sum(found) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: weights must not be negative, and not all 0")
    return found

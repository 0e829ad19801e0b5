"""The `gophercite` command, with one module per subcommand.

Everything heavy is imported by the subcommand that needs it, when it runs, so that `gophercite
--help` answers immediately.
"""

import argparse
import functools
import io
import os
import signal
import sys
from collections.abc import Sequence

import gophercite
from gophercite import interruption
from gophercite.cli import (
    ask,
    browse,
    calibrate,
    episodes,
    export_weights,
    import_weights,
    index,
    info,
    rate,
    renew,
    search,
    validate,
    verify,
)
from gophercite.cli.output import FAILED, INTERRUPTED, READER_GONE, RefusedError
from gophercite.storage.json_fields import in_one_line, printable

_COMMANDS = (
    ask,
    browse,
    episodes,
    search,
    verify,
    calibrate,
    index,
    validate,
    info,
    import_weights,
    export_weights,
    renew,
    rate,
)

# Ctrl-C ends a command at once, but these first remove the large files that they have begun.
_CLEANING_UP = {"import-weights", "export-weights"}

_EXAMPLES = """\
examples:
  gophercite ask "When was the lighthouse built?" --documents examples/notes --extractive
  gophercite browse "Who built the lighthouse?" --documents examples/notes
  gophercite episodes episodes.jsonl --out pages --world worlds/sky
  gophercite search lighthouse --documents examples/notes
  gophercite ask "When was the lighthouse built?" --index corpus.db --model runs/sft --json
  gophercite verify answer.json --documents notes/
  gophercite calibrate answers.jsonl --questions gold.jsonl --out calibration.json
  gophercite index notes/ papers/ --out corpus.db
  gophercite validate questions.jsonl --kind questions
  gophercite info runs/quickstart --json
  gophercite import-weights downloads/Qwen3-0.6B models/qwen3
  gophercite export-weights runs/sft exports/qwen3-citing
  gophercite renew models/edited
  gophercite rate new study comparisons.jsonl --documents pages.jsonl

exit status: 0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage,
69 another process of the same command is gone, 70 an error in the program itself,
130 stopped by Ctrl-C, 141 the output is not read any more (a closed pipe)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: without the program's name; None takes them from the command line.

    Returns:
      The exit status.
    """
    if sys.stdout is None:
        said = "stdout is closed, so the result can't be printed; to discard it, use >/dev/null"
        print(f"gophercite: {said}", file=sys.stderr)
        return FAILED
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # works even on an ASCII terminal
    try:
        try:
            return _run(_parser().parse_args(arguments))
        finally:
            sys.stdout.flush()  # here, where a closed pipe can still be handled quietly
    except BrokenPipeError:
        # The reader has gone, as in `gophercite … | head -1`. The remaining output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


def _run(options: argparse.Namespace) -> int:
    if options.command in _CLEANING_UP and signal.getsignal(signal.SIGINT) is interruption.heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _refuse_no_names(options)
        status: int = options.run(options)
    except BrokenPipeError:
        raise
    except (RefusedError, OSError) as error:
        said = f"gophercite {options.command}: {in_one_line(error)}"
        print(printable(said), file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _refuse_no_names(options: argparse.Namespace) -> None:
    """Refuses empty names, which would mean the working folder, and names with a null character.

    Such names come from shell variables that are not set.

    Raises:
      RefusedError: when there is such a name.
    """
    for name, value in vars(options).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and name not in ("question", "query"):
                if not text:
                    raise RefusedError(f"{name.replace('_', '-')}: the name is empty")
                if "\0" in text:
                    raise RefusedError(
                        f"{name.replace('_', '-')}: a name can't contain a null character"
                    )


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gophercite",
        description="Language models that answer a question and prove it with a verbatim quote.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=gophercite.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    return parser

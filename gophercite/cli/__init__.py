"""The `gophercite` command, a module for each subcommand.

Everything heavy is imported by the subcommand that needs it, when it runs: `gophercite --help`
answers at once.
"""

import argparse
import sys
from collections.abc import Sequence

import gophercite
from gophercite.cli import (
    ask,
    calibrate,
    export_weights,
    import_weights,
    index,
    info,
    renew,
    validate,
    verify,
)
from gophercite.cli.output import FAILED, INTERRUPTED, RefusedError
from gophercite.json_fields import printable

_COMMANDS = (
    ask,
    verify,
    calibrate,
    index,
    validate,
    info,
    import_weights,
    export_weights,
    renew,
)

_EXAMPLES = """\
examples:
  gophercite ask "When was the lighthouse built?" --documents notes/ --extractive
  gophercite ask "When was the lighthouse built?" --index corpus.db --model runs/sft --json
  gophercite verify answer.json --documents notes/
  gophercite calibrate answers.jsonl --questions gold.jsonl --out calibration.json
  gophercite index notes/ papers/ --out corpus.db
  gophercite validate questions.jsonl --kind questions
  gophercite info runs/quickstart --json
  gophercite import-weights downloads/Qwen3-0.6B models/qwen3
  gophercite export-weights runs/sft exports/qwen3-citing
  gophercite renew models/edited

exit status: 0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: without the program's name; from the command line when None.

    Returns:
      The exit status.
    """
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (RefusedError, OSError) as error:
        print(f"gophercite {options.command}: {printable(str(error))}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


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

"""The `gophercite` command, and `python -m gophercite`.

It handles Ctrl-C before it imports anything slow, so that Ctrl-C is silent during imports, too.
"""

import sys

from gophercite import importing, interruption


def main() -> int:
    """Runs one command from the command line; returns its exit status."""
    interruption.end_at_once()
    importing.look_for_garbage_rarely()
    from gophercite import cli
    from gophercite.cli import processes

    try:
        return processes.status_of(cli.main, "gophercite")
    finally:
        interruption.over()


if __name__ == "__main__":
    sys.exit(main())

"""The `gophercite` command, and `python -m gophercite`.

It handles Ctrl-C before it imports anything slow, so that Ctrl-C is silent during imports, too.
"""

import gc
import sys

from gophercite import interruption


def main() -> int:
    """Runs one command from the command line; returns its exit status."""
    interruption.end_at_once()
    # What is imported and traced stays, so garbage is worth looking for less often than usual.
    gc.set_threshold(400_000, 20, 100)
    from gophercite import cli
    from gophercite.cli import processes

    try:
        return processes.status_of(cli.main, "gophercite")
    finally:
        interruption.over()


if __name__ == "__main__":
    sys.exit(main())

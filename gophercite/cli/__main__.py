"""`python -m gophercite.cli`, where the `gophercite` script is not installed."""

import sys

from gophercite.cli import main

if __name__ == "__main__":
    sys.exit(main())

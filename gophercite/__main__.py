"""`python -m gophercite`, where the `gophercite` script is not installed or not on the path."""

import sys

from gophercite.cli import main

if __name__ == "__main__":
    sys.exit(main())

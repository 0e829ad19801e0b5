"""`python -m gophercite.cli`, the same as `python -m gophercite`."""

import sys

from gophercite.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Arguments of the form NAME=PATH."""

import argparse


def named_path(text: str) -> tuple[str, str]:
    """Reads NAME=PATH, for argparse's `type`; the path may contain further `=`.

    Raises:
      argparse.ArgumentTypeError: there is no `=`, or one side of it is empty.
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=PATH")
    return name, path

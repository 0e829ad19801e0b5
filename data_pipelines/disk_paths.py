"""Paths of commands that read and write on a disk only."""

import argparse
import pathlib

from gophercite.storage import is_remote


def path_on_disk(text: str) -> pathlib.Path:
    """Reads a path on this machine, for argparse's `type`.

    Raises:
      argparse.ArgumentTypeError: it is an address, which `pathlib.Path` would take for a folder
        `gs:` or `https:` here.
    """
    if is_remote(text):
        raise argparse.ArgumentTypeError(
            f"{text}: must be on a disk; copy files of a bucket there first, and results back"
        )
    return pathlib.Path(text)

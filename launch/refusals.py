"""What commands refuse before they load anything."""

import argparse
import os
import pathlib
from collections.abc import Iterable

from gophercite.cli.arguments import LARGEST_SEED
from gophercite.storage import is_remote

Path = str | os.PathLike[str] | None


def refuse_missing(*, files: Iterable[Path] = (), folders: Iterable[Path] = ()) -> None:
    """Raises for a file or folder that does not exist; paths in a bucket are checked later.

    Args:
      files: paths as typed; None for those that were not given.
      folders: likewise, of folders.

    Raises:
      FileNotFoundError: the first that is missing, by name.
      IsADirectoryError: a file was expected, but the path is a folder.
      NotADirectoryError: a folder was expected, but the path is a file.
    """
    for path in _local(files):
        if path.is_dir():
            raise IsADirectoryError(f"{path}: is a folder; expected a file")
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file")
    for path in _local(folders):
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such folder")
        if not path.is_dir():
            raise NotADirectoryError(f"{path}: is a file; expected the folder of a model")


def local_folder(parser: argparse.ArgumentParser, name: str, folder: str) -> pathlib.Path:
    """The path of a folder that must be on a disk; what can't be one ends the command.

    Args:
      parser: says what is wrong.
      name: the argument, as the user types it.
      folder: its value.
    """
    if is_remote(folder):
        parser.error(f"{name} is {folder}: must be a folder on a disk")
    if not folder:  # would be the current folder
        parser.error(f"{name} is empty: must be a folder on a disk")
    if os.path.isfile(folder):
        parser.error(f"{name} is {folder}: is a file; must be a folder on a disk")
    return pathlib.Path(folder)


def refuse_large_seeds(parser: argparse.ArgumentParser, first: int, count: int) -> None:
    """Ends the command if `--seed` and the `--seeds` that follow it go beyond the largest seed.

    Args:
      parser: says what is wrong.
      first: the first seed.
      count: number of seeds.
    """
    last = first + count - 1
    if last > LARGEST_SEED:
        parser.error(
            f"--seeds is {count}: the last seed would be {last}, but must be at most {LARGEST_SEED}"
        )


def _local(paths: Iterable[Path]) -> Iterable[pathlib.Path]:
    return (pathlib.Path(p) for p in paths if p is not None and not is_remote(p))

"""What commands refuse before they load anything."""

import os
import pathlib
from collections.abc import Iterable

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


def _local(paths: Iterable[Path]) -> Iterable[pathlib.Path]:
    return (pathlib.Path(p) for p in paths if p is not None and not is_remote(p))

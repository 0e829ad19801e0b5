"""Folders that are written whole or not at all."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """An empty folder that takes another's place at the end, or vanishes after an error.

    Args:
      folder: a new one, or one to replace with all that is in it.

    Yields:
      Where to write.

    Raises:
      OSError: the folder can't be made; the message is for people.
    """
    folder = pathlib.Path(folder).absolute()
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir()
    except OSError as error:
        raise OSError(f"{folder}: can't be made: {error.strerror}: {error.filename}") from error
    try:
        yield unfinished
        if folder.exists():
            replaced = folder.with_name(f".{folder.name}.{os.getpid()}.replaced")
            folder.rename(replaced)
            unfinished.rename(folder)
            shutil.rmtree(replaced)
        else:
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)

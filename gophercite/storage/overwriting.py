"""Refuses outputs that a command also reads."""

import os
import pathlib
from collections.abc import Iterable

from etils import epath

from gophercite.storage.paths import is_remote


def refuse_overwriting(
    outputs: Iterable[epath.PathLike], inputs: Iterable[epath.PathLike | None]
) -> None:
    """Refuses to write to a file that is read, whatever its names; call it before reading.

    Args:
      outputs: files that will be written.
      inputs: files or folders that are read; None for those that were not given.

    Raises:
      ValueError: the first output that is an input, or lies in one, as typed.
    """
    read = {_place(path): path for path in inputs if path is not None}
    for path in outputs:
        place = _place(path)
        for each in (place, *place.parents):
            if each in read:
                raise ValueError(
                    f"{path} would overwrite {read[each]}, which is an input: choose another output"
                )


def _place(path: epath.PathLike) -> pathlib.PurePath:
    if is_remote(path):
        return pathlib.PurePosixPath(os.fspath(path))
    return pathlib.Path(os.path.realpath(path))  # `resolve` fails on a link to itself

"""Refuses a training whose settings name files that the machines it goes to would not have."""

import os.path
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gin
import gin_files
import setting_checks
import setting_names
import train

from gophercite.storage import is_remote

# Parameters whose values are folders. Other words may only happen to be a folder's name, too.
_FOLDERS = ("folder", "vocabulary", "world", "evaluated_world", "reward_model")


def check(
    training: Sequence[str],
    held: Callable[[pathlib.PurePath], bytes | None],
    what: str,
    remedy: str,
) -> None:
    """Checks a training's settings, and that every file they name goes along.

    Args:
      training: flags of launch/train.py.
      held: what the workers have at a path from the repository's root on: a file's bytes, anything
        for a folder, None for nothing.
      what: what the workers have, for messages.
      remedy: how a gin file gets there, for messages.

    Raises:
      ConfigurationError: a setting is wrong, or the workers would not have a file or folder that is
        here, or have another one.
      OSError: a file can't be read.
    """
    settings, bindings = train.parse(training)
    files = setting_checks.check(settings.gin_file, bindings, settings.gin_search_paths)
    for file in files:
        path = file.resolve()
        inside = path.is_relative_to(gin_files.ROOT)
        found = held(path.relative_to(gin_files.ROOT)) if inside else None
        if found is None:
            raise gin_files.ConfigurationError(f"{file} is not in {what}: {remedy}")
        if found != file.read_bytes():
            raise gin_files.ConfigurationError(f"{file} is not as in {what}: {remedy}")
    for typed in (*settings.gin_file, *settings.gin_search_paths):
        if os.path.isabs(typed):
            raise gin_files.ConfigurationError(
                f"{typed} is a path of your machine: give it from the repository's folder on"
            )
    for typed in settings.gin_file:
        here = pathlib.Path(typed)
        folders = ("", *settings.gin_search_paths)
        there = [gin_files.ROOT / folder / typed for folder in folders]
        if here.is_file() and not any(each.is_file() and each.samefile(here) for each in there):
            raise gin_files.ConfigurationError(
                f"{typed} is a path from this folder on: give it from the repository's folder on, "
                "where the workers start"
            )
    with setting_names.names_only():
        gin_files.load(settings.gin_file, bindings, settings.gin_search_paths)
        for name, parameter, text in _texts():
            if _is_path(text, parameter in _FOLDERS) and not _is_held(text, held):
                place = gin_files.where_set(name, files, bindings)
                raise gin_files.ConfigurationError(
                    f"{place} is {text}: this is on your machine and not in {what}; copy it to a "
                    "bucket (gs://…)"
                )


def _texts() -> Iterator[tuple[str, str, str]]:
    """Each text in the configuration: what was set to it as typed, the parameter, the text."""
    for (scope, selector), parameters in gin.config._CONFIG.items():
        name = "/".join(filter(None, [scope, selector.removeprefix("gophercite.")]))
        for parameter, value in parameters.items():
            typed: tuple[str, Any] = scope, value
            if selector != "gin.macro":
                typed = gin_files.follow(f"{name}.{parameter}", value)
            for text in gin_files.texts(typed[1]):
                yield typed[0], parameter, text


def _is_path(text: str, folder: bool) -> bool:
    """Whether a text names something on this machine."""
    if is_remote(text):
        return False
    path = pathlib.Path(text)
    try:
        return path.exists() if folder or "/" in text else path.is_file()
    except (OSError, ValueError):  # no path: a long text, for instance
        return False


def _is_held(text: str, held: Callable[[pathlib.PurePath], bytes | None]) -> bool:
    """Whether the workers, who start in the repository's folder, have the path."""
    place = os.path.normpath(text)
    is_outside = os.path.isabs(place) or place.split(os.sep)[0] == os.pardir
    return not is_outside and held(pathlib.PurePath(place)) is not None

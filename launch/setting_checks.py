"""Refuses wrong settings before loading anything that takes longer than reading them."""

import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gin
import gin_files
import setting_names
from setting_kinds import wanted_instead
from setting_names import Setting


def check(
    files: Sequence[str],
    bindings: Mapping[str, str],
    search_paths: Sequence[str] = (),
    source: pathlib.Path = setting_names.CONFIGURATION,
    *,
    unset: list[str] | None = None,
) -> list[pathlib.Path]:
    """Checks names, types of values and names of tasks; imports neither JAX nor TensorFlow.

    Args:
      files, bindings, search_paths, unset: as for `gin_files.load`.
      source: the file that registers the library with gin.

    Returns:
      The files that were read, including included ones.

    Raises:
      ConfigurationError: something is wrong; the message names what was typed, and where.
    """
    with setting_names.names_only(source) as settings:
        files_read = gin_files.load(files, bindings, search_paths, unset=unset)
        _check_kinds(settings, files_read, bindings, unset or [])
        if not any(map(gin_files.imports_modules, files_read)):  # which may make tasks
            _check_tasks(files_read, bindings)
    return files_read


def _values() -> list[tuple[str, str, str, Any]]:
    """Each parameter that is set: as typed, the object's name, the parameter's name, the value."""
    found = []
    for (scope, selector), parameters in gin.config._CONFIG.items():
        if selector.startswith("gin."):
            continue
        name = selector.removeprefix("gophercite.")
        full = f"{scope}/{name}" if scope else name
        for parameter, value in parameters.items():
            typed, literal = gin_files.follow(f"{full}.{parameter}", value)
            found.append((typed, name, parameter, literal))
    return found


def _check_kinds(
    settings: Mapping[str, Setting],
    files: Sequence[pathlib.Path],
    bindings: Mapping[str, str],
    unset: Collection[str],
) -> None:
    """Raises for a value of the wrong kind: text for a number, a number for a part that gin has to
    build, or another part; if the source gives types."""
    for typed, name, parameter, value in _values():
        if name not in settings:  # of a module that a gin file imports
            continue
        if typed in unset or not _macros(value).isdisjoint(unset):
            continue
        wanted = wanted_instead(value, parameter, settings[name], settings)
        if wanted is not None:
            place = gin_files.where_set(typed, files, bindings)
            raise gin_files.ConfigurationError(
                f"{place} = {value!r}: must be {wanted} ({name}.{parameter})"
            )


def _macros(value: Any) -> set[str]:
    """The macros in a value."""
    macro = gin.get_configurable(gin.config.macro)
    return {"/".join(each.scopes) for each in gin.config.iterate_references(value, to=macro)}


def _check_tasks(files: Sequence[pathlib.Path], bindings: Mapping[str, str]) -> None:
    """Raises for a task or mixture that neither exists nor is built from the user's files."""
    values = _values()
    task_values = [value for _, name, parameter, value in values if _makes_task(name, parameter)]
    known = [*setting_names.read_tasks(), *filter(_is_text, task_values), *_registered()]
    for typed, _, parameter, value in values:
        if parameter != "mixture_or_task_name" or not _is_text(value):
            continue
        if value not in known and not value.startswith("tfds_"):
            place = gin_files.where_set(typed, files, bindings)
            near = gin_files.nearest(value, known)
            raise gin_files.ConfigurationError(
                f"{place}: there is no task or mixture {value!r}{near}"
            )


def _registered() -> list[str]:
    """Tasks and mixtures that a program registered before starting the run, as notebooks do."""
    seqio = sys.modules.get("seqio")
    return [] if seqio is None else [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]


def _makes_task(name: str, parameter: str) -> bool:
    return name.startswith("add_") and parameter == "name"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)

"""Refuses wrong settings before loading anything that takes longer than reading them."""

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import gin_files
import setting_names
from setting_names import Setting

_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "tuple": (tuple, list),
    "Sequence": (tuple, list),
    "Mapping": (dict,),
}
_WORDS = {
    "int": "a whole number", "float": "a number", "bool": "True or False", "str": "text",
    "tuple": "a tuple", "Sequence": "a tuple", "Mapping": "a dictionary",
}  # fmt: skip
_OR = re.compile(r"\|(?![^\[]*\])")  # outside brackets


def check(
    files: Sequence[str],
    bindings: Mapping[str, str],
    search_paths: Sequence[str] = (),
    source: pathlib.Path = setting_names.CONFIGURATION,
) -> list[pathlib.Path]:
    """Checks names, types of values and names of tasks; imports neither JAX nor TensorFlow.

    Args:
      files, bindings, search_paths: as for `gin_files.load`.
      source: the file that registers the library with gin.

    Returns:
      The files that were read, including included ones.

    Raises:
      ConfigurationError: something is wrong; the message names what was typed, and where.
    """
    with setting_names.names_only(source) as settings:
        files_read = gin_files.load(files, bindings, search_paths)
        if not any(map(gin_files.imports_modules, files_read)):
            _check_kinds(settings, files_read, bindings)
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
    settings: Mapping[str, Setting], files: Sequence[pathlib.Path], bindings: Mapping[str, str]
) -> None:
    """Raises for a value of the wrong type, such as text for a number, or a number for a part that
    gin has to build, if the source gives types."""
    for typed, name, parameter, value in _values():
        setting = settings[name]
        annotation = setting.parameters[parameter]
        kinds = [kind.partition("[")[0].strip() for kind in _OR.split(annotation)]
        if _is_made(value) or not all(kind in _KINDS or kind in setting.built for kind in kinds):
            continue
        allowed = tuple(each for kind in kinds for each in _KINDS.get(kind, ()))
        if isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)):
            continue
        wanted = " or ".join(
            _WORDS.get(kind, kind) if kind in _KINDS else _reference(kind, settings)
            for kind in kinds
        )
        place = gin_files.where_set(typed, files, bindings)
        raise gin_files.ConfigurationError(
            f"{place} = {value!r}: must be {wanted} ({name}.{parameter})"
        )


def _reference(kind: str, settings: Mapping[str, Setting]) -> str:
    """How one types a part of a kind."""
    return f"@{kind}()" if kind in settings else f"@…() that yields {kind}"


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


def _is_made(value: Any) -> bool:
    """Whether gin builds the value when it is used."""
    return isinstance(value, gin.config.ConfigurableReference)

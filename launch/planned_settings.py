"""What gin files say of a run that is planned: values, and the parts that they build."""

import pathlib
from typing import Any

import gin
import gin_files


def build(parameter: str) -> Any:
    """The object that the configuration's reference builds."""
    return reference(parameter).scoped_configurable_fn()


def reference(parameter: str) -> Any:
    """What gin builds as a parameter's value, with macros followed.

    Raises:
      ValueError: the parameter is not set, or to something else.
    """
    return _as_reference(parameter, setting(parameter))


def part_of(made_by: Any, name: str) -> Any:
    """What gin builds as a parameter of what another reference builds, in the scopes of both.

    A reference without scopes of its own is called in those of the part that it belongs to.

    Raises:
      ValueError: the parameter is not set, or to something else.
    """
    found = _as_reference(f"{kind_of(made_by)}.{name}", parameter_of(made_by, name))
    if found.scopes or not made_by.scopes:
        return found
    scoped = "/".join([*made_by.scopes, found.selector])
    return gin.config.ConfigurableReference(scoped, evaluate=True)


def _as_reference(parameter: str, value: Any) -> Any:
    if not isinstance(value, gin.config.ConfigurableReference):
        raise ValueError(f"{parameter} = {value!r}: must be a part that gin builds, @…()")
    return value


def kind_of(made_by: Any) -> str:
    """The name of what a reference builds, without module and scopes."""
    return str(made_by.selector.rpartition(".")[2])


def parameter_of(made_by: Any, name: str) -> Any:
    """A parameter's value in the scopes that a reference enters; None if nothing sets it."""
    scopes = list(made_by.scopes)
    while True:
        value = setting("/".join([*scopes, f"{made_by.selector}.{name}"]))
        if value is not None or not scopes:
            return value
        scopes.pop()


def setting(parameter: str) -> Any:
    """A parameter's value, with macros followed; None if nothing sets it."""
    try:
        value = gin.query_parameter(parameter)
    except ValueError:
        return None
    return gin_files.follow(parameter, value)[1]


def value_of_macro(name: str) -> Any:
    """A macro's own value; None if nothing sets it."""
    return gin.config._CONFIG.get((name, "gin.macro"), {}).get("value")


def names_folder(macro: str) -> bool:
    """Whether a macro's value is a folder on this machine."""
    _, folder = gin_files.follow(macro, value_of_macro(macro))
    return folder is not None and pathlib.Path(str(folder)).is_dir()

"""An architecture as JSON and back, with every wrong field named."""

import dataclasses
import types
import typing
from typing import Any, TypeVar

from gophercite.models.config import RopeScaling, TransformerConfig
from gophercite.storage.json_fields import describe, nearest

Settings = TypeVar("Settings", TransformerConfig, RopeScaling)


def config_to_json(config: TransformerConfig) -> dict[str, Any]:
    """All fields of an architecture as JSON (tuples become lists)."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
    }


def config_from_json(value: object) -> TransformerConfig:
    """The inverse of `config_to_json`. A field with a default may be absent.

    Args:
      value: the decoded JSON.

    Returns:
      The architecture.

    Raises:
      ValueError: the value is not an object, or a field is unknown, missing or of the wrong type;
        the message names it.
    """
    return _from_json(TransformerConfig, value)


def _from_json(kind: type[Settings], value: object) -> Settings:
    """Builds a dataclass of settings from the JSON object with its fields."""
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {describe(value)}")
    hints = typing.get_type_hints(kind)
    for name, entry in value.items():
        if name not in hints:
            near = nearest(name, hints.keys() - value.keys())
            raise ValueError(
                f"field {name!r} is unknown" + (f"; did you mean {near!r}?" if near else "")
            )
        if not _is_a(entry, hints[name]):
            raise ValueError(
                f"field {name!r}: expected {_name_of(hints[name])}, got {describe(entry)}"
            )
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.name not in value:
            raise ValueError(f"field {field.name!r} is missing")
    fields = {name: _plain(name, entry, hints[name]) for name, entry in value.items()}
    return kind(**fields)


def _plain(name: str, entry: Any, hint: Any) -> Any:
    """A field's value: lists become tuples, and objects become the field's dataclass."""
    if isinstance(entry, list):
        return tuple(entry)
    if isinstance(entry, dict):
        kind: Any = next(k for k in typing.get_args(hint) if dataclasses.is_dataclass(k))
        try:
            return _from_json(kind, entry)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from error
    return entry


def _is_a(value: object, hint: Any) -> bool:
    """Whether a JSON value has a field's type; lists count as tuples."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_a(value, option) for option in arguments)
    if origin is typing.Literal:
        return value in arguments
    if dataclasses.is_dataclass(hint):
        return isinstance(value, dict)
    if origin is tuple:
        return isinstance(value, list) and all(_is_a(item, arguments[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _name_of(hint: Any) -> str:
    """A field's type in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_name_of, arguments))
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple:
        return f"a list of {_name_of(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "an object"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    return words.get(hint, "null")

"""Whether a setting's value can be of the kind that its parameter's annotation names."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import gin
import gin_files
from setting_names import Part, Setting, can_be

_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "tuple": (tuple, list),
    "list": (list,),
    "Sequence": (tuple, list),
    "dict": (dict,),
    "Mapping": (dict,),
}
_WORDS = {
    "int": "a whole number", "float": "a number", "bool": "True or False", "str": "text",
    "tuple": "a tuple", "list": "a list", "Sequence": "a tuple",
    "dict": "a dictionary", "Mapping": "a dictionary",
}  # fmt: skip

_Parts = Mapping[str, Part]


def wanted_instead(
    value: Any, parameter: str, setting: Setting, settings: Mapping[str, Setting]
) -> str | None:
    """What a parameter takes, in words, if its value is of a wrong kind.

    Args:
      value: a literal, or a reference to a part that gin builds; macros in it are followed.
      parameter: the parameter's name.
      setting: the object that has the parameter.
      settings: all objects, by name.

    Returns:
      Words that follow "must be"; None if the value may be right, or if the source does not say.
    """
    annotation = setting.parameters[parameter]
    if not annotation:
        return None
    kinds = _alternatives(ast.parse(annotation, mode="eval").body)
    parts = setting.parts
    if _may_be(value, kinds, parts, settings):
        return None
    reference = _reference(value)
    if reference and not reference.evaluate and _makes(reference, kinds, parts, settings):
        return f"{value!r}(), with parentheses"
    return _in_words(kinds, settings, isinstance(value, dict | list | tuple))


def _may_be(
    value: Any, kinds: Sequence[ast.expr], parts: _Parts, settings: Mapping[str, Setting]
) -> bool:
    if not all(_name(kind) in _KINDS or _name(kind) in parts for kind in kinds):
        return True
    _, value = gin_files.follow("", value)
    reference = _reference(value)
    if reference:
        return bool(reference.evaluate) and _makes(reference, kinds, parts, settings)
    return any(_is_literal(value, kind, parts, settings) for kind in kinds)


def _is_literal(value: Any, kind: ast.expr, parts: _Parts, settings: Mapping[str, Setting]) -> bool:
    types = _KINDS.get(_name(kind), ())
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return False
    element = _element(kind)
    if element is None:
        return True
    inner: Any = value.values() if isinstance(value, dict) else value
    return all(_may_be(each, _alternatives(element), parts, settings) for each in inner)


def _makes(
    reference: Any, kinds: Sequence[ast.expr], parts: _Parts, settings: Mapping[str, Setting]
) -> bool:
    """Whether a part, once built, can be of one of the kinds."""
    maker = settings.get(reference.configurable.selector.removeprefix("gophercite."))
    annotation, made = maker.result if maker else ("", {})
    if not annotation:
        return True
    for result in map(_name, _alternatives(ast.parse(annotation, mode="eval").body)):
        if result not in _KINDS and result not in made:
            return True
        for name in map(_name, kinds):
            if result in _KINDS and name in _KINDS:
                if set(_KINDS[result]) <= set(_KINDS[name]):
                    return True
            elif result in made and name in parts and can_be(made[result], parts[name]):
                return True
    return False


def _reference(value: Any) -> Any:
    """The value if gin builds it when it is used; otherwise None."""
    return value if isinstance(value, gin.config.ConfigurableReference) else None


def _alternatives(annotation: ast.expr) -> list[ast.expr]:
    """The kinds of a union."""
    if isinstance(annotation, ast.BinOp):
        return [*_alternatives(annotation.left), *_alternatives(annotation.right)]
    return [annotation]


def _name(kind: ast.expr) -> str:
    return ast.unparse(kind.value if isinstance(kind, ast.Subscript) else kind)


def _element(kind: ast.expr) -> ast.expr | None:
    """What each element of a container is; None if the annotation does not say it of all."""
    if not isinstance(kind, ast.Subscript):
        return None
    inside = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    if _name(kind) == "tuple" and ast.unparse(inside[-1]) != "...":
        return None
    return inside[1] if _name(kind) in ("dict", "Mapping") else inside[0]


def _in_words(kinds: Sequence[ast.expr], settings: Mapping[str, Setting], inside: bool) -> str:
    words = []
    for kind in kinds:
        name, element = _name(kind), _element(kind)
        said = _WORDS.get(name, name) if name in _KINDS else _typed(name, settings)
        if inside and element is not None:
            each = "value" if name in ("dict", "Mapping") else "element"
            said += f", each {each} {_in_words(_alternatives(element), settings, inside)}"
        words.append(said)
    return " or ".join(words)


def _typed(kind: str, settings: Mapping[str, Setting]) -> str:
    """How one types a part of a kind."""
    return f"@{kind}()" if kind in settings else f"@…() that yields {kind}"

"""Describes a function or setting as a text that is the same in every process."""

import ast
import dataclasses
import functools
import hashlib
import inspect
import os
import pathlib
from collections.abc import Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from data_pipelines.features import SeqioVocabulary

# Attributes of a vocabulary, besides its tokens' bytes, on which encoded examples depend.
_OF_VOCABULARY = "eos_id", "bos_id", "pad_id", "dummy_prefix", "other_eos_ids"


def describe(value: Any) -> str:
    """Returns a text that is different for two values that would give different examples.

    For a function, it includes the code of the function's file (without comments and docstrings),
    so that any edit there changes the text. It also includes the values of the function's defaults
    and of the variables that it takes from enclosing functions. Counters, reports and other objects
    without a description are represented by their type.

    Args:
      value: a preprocessor, or one of its arguments.
    """
    return _describe(value, ())


def _describe(value: Any, around: tuple[int, ...]) -> str:
    """See `describe`; `around` are the ids of the objects that hold this one."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if id(value) in around:  # a function that calls itself, or a list in itself
        return kind
    inside = functools.partial(_describe, around=(*around, id(value)))
    if isinstance(value, functools.partial):
        keywords = {name: inside(each) for name, each in sorted(value.keywords.items())}
        return f"{inside(value.func)}{tuple(map(inside, value.args))}{keywords}"
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__qualname__}.{inside(value.__func__)}"
    if isinstance(value, FunctionType):
        name = f"{value.__module__}.{value.__qualname__} {_source_of(value)}"
        return f"{name} {[*map(inside, _held_by(value))]}"
    if isinstance(value, os.PathLike):
        return _file(os.fspath(value))
    if isinstance(value, SeqioVocabulary):
        plain = value.plain
        tokens = b"\0".join(plain.token_bytes(id) or b"" for id in range(plain.size))
        form = " question first" if plain.question_first else ""
        others = [getattr(plain, name) for name in _OF_VOCABULARY]
        return f"vocabulary {plain.size} {hashlib.sha256(tokens).hexdigest()}{form} {others}"
    if isinstance(value, Mapping):
        return repr({inside(key): inside(each) for key, each in value.items()})
    if isinstance(value, tuple | list):
        return repr([inside(each) for each in value])
    if isinstance(value, set | frozenset):
        return repr(sorted(map(inside, value)))
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return f"{value.dtype}{value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    frozen = getattr(getattr(value, "__dataclass_params__", None), "frozen", False)
    if frozen and not isinstance(value, type):
        fields = {f.name: inside(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return f"{kind}{fields}"
    return kind


def _held_by(function: FunctionType) -> list[Any]:
    """The defaults of a function, and the variables that it takes from enclosing functions."""
    return [
        function.__defaults__,
        function.__kwdefaults__,
        *map(_content, function.__closure__ or ()),  # in the order of the variables' names
    ]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing has been assigned to it
        return None


@functools.cache
def _source_of(function: Any) -> str:
    """A digest of the code in a function's file; empty if there is no file."""
    try:
        file = inspect.getsourcefile(function)
        tree = ast.parse("" if file is None else pathlib.Path(file).read_bytes())
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _file(path: str) -> str:
    """A path with the file's size and time, because an index of pages may be rebuilt."""
    try:
        found = pathlib.Path(path).stat()
    except OSError:
        return path
    return f"{path} {found.st_size} {found.st_mtime_ns}"

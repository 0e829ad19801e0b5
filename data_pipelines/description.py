"""Describes a function or setting as text that is the same in every process and on every day."""

import ast
import dataclasses
import functools
import hashlib
import inspect
import os
import pathlib
from collections.abc import Mapping
from types import MethodType
from typing import Any

from data_pipelines.features import SeqioVocabulary


def describe(value: Any) -> str:
    """Returns a text that differs if two values would give different examples.

    For functions it includes the code of the file that they are in, so that an edit there shows;
    comments and docstrings don't count. Counters, reports and other objects without a description
    are represented by their type.

    Args:
      value: a preprocessor, or one of its arguments.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, functools.partial):
        keywords = {name: describe(each) for name, each in sorted(value.keywords.items())}
        return f"{describe(value.func)}{tuple(map(describe, value.args))}{keywords}"
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__qualname__}.{describe(value.__func__)}"
    if inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__} {_source_of(value)}"
    if isinstance(value, os.PathLike):
        return _file(os.fspath(value))
    if isinstance(value, SeqioVocabulary):
        plain = value.plain
        tokens = b"\0".join(plain.token_bytes(id) or b"" for id in range(plain.size))
        form = " question first" if plain.question_first else ""
        return f"vocabulary {plain.size} {hashlib.sha256(tokens).hexdigest()}{form}"
    if isinstance(value, Mapping):
        return repr({describe(key): describe(each) for key, each in value.items()})
    if isinstance(value, tuple | list):
        return repr([describe(each) for each in value])
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    frozen = getattr(getattr(value, "__dataclass_params__", None), "frozen", False)
    if frozen and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return f"{kind}{fields}"
    return kind


@functools.cache
def _source_of(function: Any) -> str:
    """A digest of the code of the file that a function is written in; empty if there is none."""
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

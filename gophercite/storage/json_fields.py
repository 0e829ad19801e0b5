"""Typed access to the fields of untrusted JSON objects, with errors for users."""

import collections
import difflib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

from gophercite.documents import normalise_text

_LONGEST_NAME = 200  # characters of a name that may be a misspelt one


class RecordError(ValueError):
    """A record that is not valid.

    Attributes:
      problem: what is wrong and what would be right.
      field: the path of the field, such as `documents[2].title`; None for the whole line.
      path, line: the file and line number, from 1. `path` is None for a value that is not from a
        file; `line` is None for a file with a single value.
    """

    def __init__(
        self,
        problem: str,
        field: str | None = None,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
    ) -> None:
        self.problem, self.field, self.path, self.line = problem, field, path, line
        place = path if line is None else f"{path}:{line}"
        where = f"{place}: " if path is not None else ""
        super().__init__(where + (f"field {field!r}: " if field else "") + problem)


class JsonFields:
    """The fields of one JSON object, taken one by one.

    An unknown name that is close to a known but absent one is refused as a misspelling. Other
    unknown names are counted and ignored, so that files may hold more than is read here.

    Args:
      value: the decoded JSON.
      known: the known names; None if all names are.
      unknown: counts the names that were ignored.
      path: the path of the object in its record, empty for the record itself.

    Raises:
      RecordError: when `value` is not an object, or a name is misspelt. All methods raise it too.
    """

    def __init__(
        self,
        value: object,
        known: Collection[str] | None,
        unknown: collections.Counter[str],
        path: str = "",
    ) -> None:
        self._path = path
        self._unknown = unknown
        if not isinstance(value, dict):
            raise RecordError(f"expected an object, got {describe(value)}", path or None)
        self.values = cast(dict[str, Any], value)
        if known is None:
            return
        absent = set(known) - self.values.keys()
        for name in self.values.keys() - set(known):
            if right := nearest(name, absent):
                raise self.error(name, f"is unknown; did you mean {right!r}?")
            unknown[name] += 1

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def error(self, name: str, problem: str) -> RecordError:
        """Returns an error that names the field by its path in the record."""
        return RecordError(problem, self._path_of(name))

    def text(self, name: str, *, empty: bool = False, raw: bool = False) -> str:
        """Returns a required string, normalised unless `raw`; it may be blank only if `empty`."""
        text: str = self._take(name, str, "a string", required=True)
        if not raw:
            text = normalise_text(text)
        if not empty and not text.strip():
            raise self.error(name, "is empty")
        return text

    def optional_text(self, name: str) -> str | None:
        """Returns a string that is not blank, or None if the field is absent or null."""
        return self.text(name) if name in self else None

    def integer(self, name: str) -> int:
        """Returns a required whole number."""
        return self._take(name, int, "a whole number", required=True)

    def optional_number(self, name: str) -> float | None:
        """Returns a number, or None if the field is absent or null."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise self.error(name, f"expected a number or null, got {describe(value)}")
        try:
            return None if value is None else float(value)
        except OverflowError:
            raise self.error(name, "is too large for a number") from None

    def flag(self, name: str) -> bool | None:
        """Returns true or false, or None if the field is absent or null."""
        return self._take(name, bool, "true, false or null")

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of strings that are not blank, normalised; it may be absent."""
        items = self._take(name, list, "a list") or []
        texts = []
        for index, item in enumerate(items):
            texts.append(normalise_text(item) if isinstance(item, str) else "")
            if not texts[-1].strip():
                raise self.error(f"{name}[{index}]", f"expected some text, got {describe(item)}")
        return tuple(texts)

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a list of whole numbers; it may be absent."""
        items = self._take(name, list, "a list") or []
        for index, item in enumerate(items):
            if not isinstance(item, int) or isinstance(item, bool):
                raise self.error(
                    f"{name}[{index}]", f"expected a whole number, got {describe(item)}"
                )
        return tuple(items)

    def objects(
        self, name: str, known: Collection[str] | None, *, required: bool = False
    ) -> Iterator["JsonFields"]:
        """Yields the objects of a list; `known` are the names of their fields."""
        items = self._take(name, list, "a list", required=required) or []
        for index, item in enumerate(items):
            yield JsonFields(item, known, self._unknown, self._path_of(f"{name}[{index}]"))

    def optional_object(self, name: str, known: Collection[str] | None) -> "JsonFields | None":
        """Returns an object, or None if the field is absent or null; `known` as in `objects`."""
        value = self._take(name, dict, "an object or null")
        if value is None:
            return None
        return JsonFields(value, known, self._unknown, self._path_of(name))

    def _path_of(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _take(self, name: str, kind: type, expected: str, *, required: bool = False) -> Any:
        value = self.values.get(name)
        if value is None and required:
            raise self.error(name, f"is missing: expected {expected}")
        # In Python, unlike in JSON, true is a whole number.
        is_kind = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if value is not None and not is_kind:
            raise self.error(name, f"expected {expected}, got {describe(value)}")
        return value


def decode_json(text: str) -> Any:
    """Decodes JSON of an untrusted file.

    Raises:
      ValueError: the text is not JSON, or has a string with a lone surrogate, which can be neither
        written nor the name of anything.
      RecursionError: it is nested too deeply.
    """
    value = json.loads(text)
    if "\\u" in text:  # else there can be none
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            lone = error.object[error.start]
            raise ValueError(f"it holds the lone surrogate {lone!r}") from None
    return value


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate that `name` may be a misspelling of, if any.

    Long names are not compared: it takes quadratic time, and nobody typed them.
    """
    if len(name) > _LONGEST_NAME:
        return None
    typed = sorted(each for each in candidates if len(each) <= _LONGEST_NAME)
    matches = difflib.get_close_matches(name, typed, n=1, cutoff=0.75)
    return matches[0] if matches else None


def describe(value: object) -> str:
    """Names the kind of a JSON value and shows its beginning."""
    kinds = {dict: "the object", list: "the list", str: "the string", bool: "", type(None): ""}
    kind = kinds.get(type(value), "the number")
    try:
        shown = json.dumps(value, ensure_ascii=False, default=repr)
    except TypeError:  # an object from msgpack, whose names may be of any type
        shown = repr(value)
    except RecursionError:  # nearly as deep as what a line's reader takes
        shown = "nested too deeply to be shown"
    return f"{kind} {printable(shown if len(shown) <= 40 else shown[:40] + '…')}".strip()


def printable(text: str) -> str:
    """Shows the control characters of an untrusted text by their codes: they control terminals."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def in_one_line(error: Exception) -> str:
    """An error's message for users, without the operating system's error number."""
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        what = error.strerror[:1].lower() + error.strerror[1:]
        return f"{os.fsdecode(error.filename)}: {what}"
    return re.sub(r"\s*\n\s*", " ", str(error).strip())

"""A cache in memory with a size limit, for processes that run for months."""

import collections
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """Values by their keys; the least recently used are dropped first.

    Args:
      limit: maximum size of all values together; one value is kept in any case.
      size: returns the size of a value, in the unit of `limit`.
    """

    def __init__(self, limit: int, size: Callable[[Value], int]) -> None:
        self._limit = limit
        self._size_of = size
        self._values: collections.OrderedDict[Key, Value] = collections.OrderedDict()
        self._size = 0

    def get(self, key: Key, make: Callable[[Key], Value]) -> Value:
        """Returns the value of a key; `make` supplies it if it is not cached."""
        value = self.find(key)
        if value is None:
            value = make(key)
            self.keep(key, value)
        return value

    def find(self, key: Key) -> Value | None:
        """Returns the value of a key if it is cached."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def keep(self, key: Key, value: Value) -> None:
        """Adds a value to the cache, or replaces the one of this key."""
        before = self._values.pop(key, None)
        self._size += self._size_of(value) - (0 if before is None else self._size_of(before))
        self._values[key] = value
        while self._size > self._limit and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._size -= self._size_of(dropped)

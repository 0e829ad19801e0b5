"""Checks that arguments and results have the types and shapes that signatures say."""

from collections.abc import Callable
from typing import Any

from beartype import beartype


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `beartype`, which takes a millisecond to decorate a function, for lasting ones only.

    A function within another one is made anew in each call of that one.
    """
    return function if "<locals>" in function.__qualname__ else beartype(function)

"""The search engines of the web by the names that commands know them by."""

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from gophercite.retrieval.web import SearchApi

_CLASSES = {"brave": "Brave", "google": "Google", "searxng": "SearXng"}
ENGINES = tuple(_CLASSES)


def api_from_environment(name: str) -> "SearchApi":
    """Returns an API with the key or address that the environment has for it.

    Args:
      name: one of `ENGINES`.

    Raises:
      SearchError: when the environment has none; the message says which variable to set.
      ValueError: when there is no such engine.
    """
    if name not in _CLASSES:
        raise ValueError(f"no engine is named {name!r}; there are {', '.join(ENGINES)}")
    module = importlib.import_module(f"gophercite.retrieval.{name}")
    return cast("SearchApi", getattr(module, _CLASSES[name]).from_environment())

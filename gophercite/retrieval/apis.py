"""The web search engines, by the names that commands use for them."""

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from gophercite.retrieval.web import SearchApi

_CLASSES = {"brave": "Brave", "google": "Google", "searxng": "SearXng"}
ENGINES = tuple(_CLASSES)


def api_from_environment(name: str) -> "SearchApi":
    """Returns an API with the key or address that is set for it in the environment.

    Args:
      name: one of `ENGINES`.

    Raises:
      SearchError: when none is set; the message says which variable to set.
      ValueError: when there is no such engine.
    """
    if name not in _CLASSES:
        raise ValueError(f"there is no engine {name!r}; choose from {', '.join(ENGINES)}")
    module = importlib.import_module(f"gophercite.retrieval.{name}")
    return cast("SearchApi", getattr(module, _CLASSES[name]).from_environment())

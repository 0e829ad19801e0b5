"""Brave's Web Search API."""

import dataclasses
import html
from typing import Any, Self

from gophercite.retrieval.engine import Hit, Query
from gophercite.retrieval.web import ApiRequest, from_environment, hit

# The API refuses queries of more than 50 words or 400 characters; this leaves room for the filters.
_WORDS, _CHARACTERS = 40, 300


@dataclasses.dataclass(frozen=True)
class Brave:
    """The API: `BRAVE_API_KEY` in the environment.

    Attributes:
      key: the subscription token.
      endpoint: its address.
    """

    key: str = dataclasses.field(repr=False)
    endpoint: str = "https://api.search.brave.com/res/v1/web/search"

    name = "Brave Search"
    page_size = 1  # a page is often not full, even though more pages follow
    pages = 10

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the key from the environment."""
        return cls(from_environment("BRAVE_API_KEY", "a subscription token of Brave's Search API"))

    def request(self, query: Query, page: int) -> ApiRequest:
        """Asks for twenty results; `offset` counts pages, and highlighting is turned off."""
        words = " ".join(query.text.split()[:_WORDS])[:_CHARACTERS]
        parameters: dict[str, str | int] = {
            "q": str(dataclasses.replace(query, text=words)),
            "count": 20,
            "offset": page,
            "text_decorations": "false",
            "result_filter": "web",
        }
        return ApiRequest(self.endpoint, parameters, {"X-Subscription-Token": self.key})

    def results(self, answer: Any) -> list[Hit]:
        """`web.results`; `web` is absent when nothing was found."""
        return [
            hit(item.get("url"), _plain(item.get("title")), _plain(item.get("description")))
            for item in answer.get("web", {}).get("results", [])
        ]

    def advice(self, status: int) -> str:
        """What to do about a status."""
        if status in (401, 403, 422):
            return "check BRAVE_API_KEY"
        return "the plan's rate or quota is used up" if status == 429 else ""


def _plain(text: object) -> object:
    # Characters come as HTML entities even with highlighting turned off.
    return html.unescape(text) if isinstance(text, str) else text

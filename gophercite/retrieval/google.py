"""Google's Programmable Search JSON API, the Search API of GopherCite's paper.

It is closed to new customers, and ends on 2027-01-01 for existing ones.
"""

import dataclasses
from typing import Any, Self

from gophercite.retrieval.engine import Hit, Query
from gophercite.retrieval.web import ApiRequest, from_environment, hit


@dataclasses.dataclass(frozen=True)
class Google:
    """The API: `GOOGLE_API_KEY` and `GOOGLE_SEARCH_ENGINE_ID` in the environment.

    Attributes:
      key: the API key.
      engine_id: id of the programmable search engine (`cx`).
      endpoint: the API's address.
    """

    key: str = dataclasses.field(repr=False)
    engine_id: str
    endpoint: str = "https://customsearch.googleapis.com/customsearch/v1"

    name = "Google Programmable Search"
    page_size = 10
    pages = 10  # the API gives at most 100 results

    @classmethod
    def from_environment(cls) -> Self:
        """Reads key and engine from the environment."""
        return cls(
            from_environment("GOOGLE_API_KEY", "a key of Google's Custom Search JSON API"),
            from_environment(
                "GOOGLE_SEARCH_ENGINE_ID", "the id (cx) of a programmable search engine"
            ),
        )

    def request(self, query: Query, page: int) -> ApiRequest:
        """Asks for ten results; `start` counts results from 1."""
        parameters: dict[str, str | int] = {
            "q": str(query),
            "cx": self.engine_id,
            "num": self.page_size,
            "start": 1 + page * self.page_size,
        }
        return ApiRequest(self.endpoint, parameters, {"X-Goog-Api-Key": self.key})

    def results(self, answer: Any) -> list[Hit]:
        """`items`, which is absent when nothing was found."""
        return [
            hit(item.get("link"), item.get("title"), item.get("snippet"))
            for item in answer.get("items", [])
        ]

    def advice(self, status: int) -> str:
        """What to do about a status."""
        if status in (400, 401, 403):
            return "check GOOGLE_API_KEY and GOOGLE_SEARCH_ENGINE_ID (no new customers are taken)"
        return "the daily quota may be used up" if status == 429 else ""

"""SearXNG, a metasearch engine that users can run themselves: no key, no contract."""

import dataclasses
from typing import Any, Self

from gophercite.retrieval.engine import Hit, Query
from gophercite.retrieval.web import ApiRequest, NothingSearchedError, from_environment, hit
from gophercite.storage.json_fields import printable


@dataclasses.dataclass(frozen=True)
class SearXng:
    """The API of an instance: `SEARXNG_URL` in the environment.

    Attributes:
      endpoint: the address of the instance, such as `http://127.0.0.1:8888`.
    """

    endpoint: str

    name = "SearXNG"
    page_size = 1  # the page sizes of the underlying engines vary
    pages = 10

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the address from the environment."""
        return cls(from_environment("SEARXNG_URL", "the address of a SearXNG instance"))

    def request(self, query: Query, page: int) -> ApiRequest:
        """Asks for a page, counted from 1."""
        url = f"{self.endpoint.rstrip('/')}/search"
        return ApiRequest(url, {"q": str(query), "format": "json", "pageno": 1 + page})

    def results(self, answer: Any) -> list[Hit]:
        """`results`, which is empty when nothing was found, or when no engine has answered."""
        found = [
            hit(item.get("url"), item.get("title"), item.get("content"))
            for item in answer["results"]
        ]
        blocked = answer.get("unresponsive_engines")
        if blocked and not found:
            said = printable(", ".join(": ".join(map(str, each)) for each in blocked)[:300])
            raise NothingSearchedError(f"SearXNG found nothing; without an answer: {said}")
        return found

    def advice(self, status: int) -> str:
        """What to do about a status."""
        if status == 403:
            return (
                "JSON is turned off; the instance's settings.yml must list json under "
                "search.formats"
            )
        return (
            ("the instance's limiter refuses the request; allow your address there")
            if status == 429
            else ""
        )

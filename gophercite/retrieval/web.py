"""Search engines behind a web API: requests, paging, retries and a cache; each API is a small file.

Keys travel in headers only, and appear in no error, log, cache or `repr`.
"""

import dataclasses
import datetime
import email.utils
import hashlib
import json
import os
import pathlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx

import gophercite
from gophercite.documents import normalise_text
from gophercite.retrieval.certificates import certificates
from gophercite.retrieval.engine import Hit, Query, SearchError, check_number_of_hits, parse_query
from gophercite.storage.json_fields import printable

MAXIMUM_BYTES = 8 << 20  # maximum size of one answer
_WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})


class NothingSearchedError(SearchError):
    """An API has found nothing because the engines that it asks did not answer."""


@dataclasses.dataclass(frozen=True)
class ApiRequest:
    """The request for one page of results.

    Attributes:
      url: the address, without parameters.
      parameters: of the address; without keys.
      headers: these may hold secrets.
    """

    url: str
    parameters: Mapping[str, str | int]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


class SearchApi(Protocol):
    """How to query one API and read its answers.

    Attributes:
      name: what users call it.
      page_size: hits on a full page; a page with fewer is the last one. 1 if page sizes vary.
      pages: maximum number of pages.
    """

    name: str
    page_size: int
    pages: int

    def request(self, query: Query, page: int) -> ApiRequest:
        """Returns the request for a page, counted from 0."""
        ...

    def results(self, answer: Any) -> list[Hit]:
        """Returns the hits of a decoded answer.

        Raises:
          KeyError, TypeError, AttributeError: when it does not have the documented shape.
          NothingSearchedError: when it says that nothing was searched.
        """
        ...

    def advice(self, status: int) -> str:
        """Returns what users can do about an HTTP status; empty when nothing is known."""
        ...


@dataclasses.dataclass(frozen=True)
class WebSettings:
    """How an API is queried.

    Attributes:
      seconds: maximum time for an answer.
      attempts: maximum number of attempts for temporary failures (time-outs, 429, 5xx).
      backoff_seconds: the wait after the first attempt; each wait is twice the one before. If the
        server says how long to wait, that is used instead.
      longest_wait_seconds: if a server asks for a longer wait, the request fails at once.
      cache: a folder for answers; a request that was answered is not sent again, so a repeated run
        costs nothing and finds the same. None for no cache.
    """

    seconds: float = 20.0
    attempts: int = 4
    backoff_seconds: float = 1.0
    longest_wait_seconds: float = 60.0
    cache: str | os.PathLike[str] | None = None


class WebEngine:
    """A web search engine; threads may share it. Close it, or use it in a `with`."""

    def __init__(self, api: SearchApi, settings: WebSettings | None = None) -> None:
        self._api = api
        self._settings = settings or WebSettings()
        self._client = httpx.Client(
            verify=certificates(),
            timeout=self._settings.seconds,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "gzip",
                "User-Agent": f"gophercite/{gophercite.__version__}",
            },
        )

    def __enter__(self) -> "WebEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def search(self, query: str, k: int) -> list[Hit]:
        """Returns at most `k` hits with distinct addresses; as `SearchEngine.search`."""
        check_number_of_hits(k)
        parsed = parse_query(query)
        if not parsed.text:
            return []
        found: dict[str, Hit] = {}
        for page in range(self._api.pages):
            try:
                results = self._page(self._api.request(parsed, page))
            except NothingSearchedError:
                if not found:
                    raise
                break
            for hit in results:
                if parsed.admits(hit.url):
                    found.setdefault(hit.url, hit)
            if len(found) >= k or len(results) < self._api.page_size:
                break
        return list(found.values())[:k]

    def _page(self, request: ApiRequest) -> list[Hit]:
        place = self._place_in_cache(request)
        if place is not None and place.is_file():
            try:
                return self._results(json.loads(place.read_text("utf-8"))["answer"])
            except (ValueError, KeyError, TypeError, SearchError):
                problem = f"{place}: is damaged; delete it to ask {self._api.name} again"
                raise SearchError(problem) from None
        answer = self._ask(request)
        results = self._results(answer)
        if place is not None:
            _write_whole(
                place,
                {
                    "url": request.url,
                    "parameters": dict(request.parameters),
                    "retrieved_at": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
                    "answer": answer,
                },
            )
        return results

    def _results(self, answer: Any) -> list[Hit]:
        try:
            return [hit for hit in self._api.results(answer) if hit.url.startswith("http")]
        except (KeyError, TypeError, AttributeError):
            raise SearchError(
                f"{self._api.name}: the answer does not have the form that the documentation "
                "describes"
            ) from None

    def _ask(self, request: ApiRequest) -> Any:
        """Returns the decoded answer, after as many attempts as it takes, within the limit."""
        wait = self._settings.backoff_seconds
        for attempt in range(1, self._settings.attempts + 1):
            try:
                status, headers, body = self._get(request)
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise SearchError(f"{self._api.name}: {request.url!r}: {error}") from None
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
                asked_wait = None
            else:
                if status == 200:
                    return self._decoded(body)
                problem = self._problem(status, body, request)
                if status not in _WORTH_ANOTHER_TRY:
                    raise SearchError(problem)
                asked_wait = _retry_after(headers)
            pause = wait if asked_wait is None else asked_wait
            if attempt == self._settings.attempts:
                problem += f" (after {attempt} attempts)"
            elif pause <= self._settings.longest_wait_seconds:
                time.sleep(pause)
                wait *= 2
                continue
            else:
                problem += f"; it asks to wait for {pause:.0f} s"
            raise SearchError(_without_secrets(f"{self._api.name}: {problem}", request))
        raise ValueError("at least one attempt must be allowed")

    def _get(self, request: ApiRequest) -> tuple[int, httpx.Headers, bytes]:
        # No redirects: a key must not be sent elsewhere.
        with self._client.stream(
            "GET", request.url, params=dict(request.parameters), headers=dict(request.headers)
        ) as response:
            body = bytearray()
            end = time.monotonic() + self._settings.seconds
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("the answer does not end")
                if len(body) > MAXIMUM_BYTES:
                    raise SearchError(
                        f"{self._api.name}: the answer is longer than {MAXIMUM_BYTES} bytes"
                    )
            return response.status_code, response.headers, bytes(body)

    def _decoded(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise SearchError(f"{self._api.name}: the answer is not JSON") from None

    def _problem(self, status: int, body: bytes, request: ApiRequest) -> str:
        said = printable(body[:300].decode("utf-8", errors="replace").strip())
        problem = f"{self._api.name}: status {status}"
        if advice := self._api.advice(status):
            problem += f": {advice}"
        return _without_secrets(f"{problem}; it says: {said}" if said else problem, request)

    def _place_in_cache(self, request: ApiRequest) -> pathlib.Path | None:
        if self._settings.cache is None:
            return None
        asked = json.dumps([request.url, sorted(request.parameters.items())])
        name = hashlib.sha256(asked.encode()).hexdigest()
        return pathlib.Path(self._settings.cache, f"{name}.json")


def hit(url: object, title: object, snippet: object) -> Hit:
    """Builds a hit from an API's fields: each text on one line, empty where it is missing."""
    address, heading, shown = (
        " ".join(normalise_text(field).split()) if isinstance(field, str) else ""
        for field in (url, title, snippet)
    )
    return Hit(address, heading, shown)


def from_environment(name: str, meaning: str) -> str:
    """Returns the value of an environment variable.

    Raises:
      SearchError: when it is not set; the message names it and says what it should hold.
    """
    value = os.environ.get(name, "").strip()
    if not value:
        raise SearchError(f"the environment variable {name} is not set; it must hold {meaning}")
    if not (value.isascii() and value.isprintable()):
        raise SearchError(f"the environment variable {name} holds a value that can't be {meaning}")
    return value


def _without_secrets(message: str, request: ApiRequest) -> str:
    for secret in filter(None, request.headers.values()):
        message = message.replace(secret, "[secret]")
    return message


def _retry_after(headers: httpx.Headers) -> float | None:
    """How long the server asks to wait: in seconds, or until a date."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        until = email.utils.parsedate_to_datetime(asked)
        return max(0.0, until.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _write_whole(path: pathlib.Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
    # Half an emoji, where an engine cut a text, is written as JSON's escape.
    partial.write_text(json.dumps(value, ensure_ascii=False), "utf-8", "backslashreplace")
    partial.replace(path)

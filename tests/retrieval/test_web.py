"""The web APIs, asked of a local server that answers in each API's documented shape."""

import email.utils
import json
import logging
import pathlib
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from servers import Server, answer, serving

from gophercite.retrieval.brave import Brave
from gophercite.retrieval.engine import Hit, SearchError
from gophercite.retrieval.google import Google
from gophercite.retrieval.searxng import SearXng
from gophercite.retrieval.web import SearchApi, WebEngine, WebSettings

KEY = "sEcReT-kEy-0123456789"
QUICK = WebSettings(seconds=5, attempts=3, backoff_seconds=0.01)


def page_of(first: int, count: int) -> list[tuple[str, str, str]]:
    return [(f"https://e.example/{i}", f"T {i}", f"S {i}") for i in range(first, first + count)]


def google(results: list[tuple[str, str, str]]) -> dict[str, Any]:
    items = [
        {"kind": "customsearch#result", "link": u, "title": t, "snippet": s, "displayLink": "x"}
        for u, t, s in results
    ]
    shape: dict[str, Any] = {"kind": "customsearch#search", "queries": {}, "searchInformation": {}}
    return shape | ({"items": items} if items else {})


def brave(results: list[tuple[str, str, str]]) -> dict[str, Any]:
    rows = [
        {"type": "search_result", "url": u, "title": t, "description": s, "language": "en"}
        for u, t, s in results
    ]
    shape: dict[str, Any] = {"type": "search", "query": {"original": "x"}}
    return shape | ({"web": {"type": "search", "results": rows}} if rows else {})


def searxng(results: list[tuple[str, str, str]]) -> dict[str, Any]:
    rows = [{"url": u, "title": t, "content": s, "engine": "e"} for u, t, s in results]
    return {"query": "x", "results": rows, "answers": [], "unresponsive_engines": []}


Case = tuple[Callable[[str], SearchApi], str, Callable[[list[tuple[str, str, str]]], Any]]
CASES: dict[str, Case] = {
    "google": (lambda base: Google(KEY, "cx1", f"{base}/v1"), "/v1", google),
    "brave": (lambda base: Brave(KEY, f"{base}/web"), "/web", brave),
    "searxng": (lambda base: SearXng(f"{base}/"), "/search", searxng),
}


class Asked:
    """One API at a server, with the engine that asks it."""

    def __init__(self, name: str, server: Server) -> None:
        make, self.path, self.shape = CASES[name]
        self.api, self.server = make(server.base), server

    def answers(self, *pages: list[tuple[str, str, str]]) -> None:
        """Answers with these pages in turn, then with empty ones."""
        left = list(pages)
        self.server.answers[self.path] = lambda handler: answer(
            json.dumps(self.shape(left.pop(0) if left else [])), type="application/json"
        )(handler)

    def search(self, query: str, k: int, settings: WebSettings = QUICK) -> list[Hit]:
        with WebEngine(self.api, settings) as engine:
            return engine.search(query, k)

    def problem(self, settings: WebSettings = QUICK) -> str:
        with pytest.raises(SearchError) as raised:
            self.search("lighthouse", 3, settings)
        assert KEY not in str(raised.value)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    def parameters(self) -> list[dict[str, str]]:
        queries = (urllib.parse.urlsplit(path).query for path in self.server.requests)
        return [dict(urllib.parse.parse_qsl(query)) for query in queries]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=CASES)
def asked(request: pytest.FixtureRequest, server: Server) -> Asked:
    return Asked(request.param, server)


def test_results(asked: Asked) -> None:
    asked.answers([("https://e.example/1", "A\n  title", "Caf\u0065\u0301 \u200bhere")])
    expected = [Hit("https://e.example/1", "A title", "Café here")]
    assert asked.search("lighthouse site:e.example", 1) == expected
    assert asked.parameters()[0]["q"] == "lighthouse site:e.example"


def test_no_results(asked: Asked) -> None:
    asked.answers()
    assert asked.search("lighthouse", 3) == []
    assert asked.search("site:e.example", 3) == []
    assert len(asked.server.requests) == 1


def test_pages_until_there_are_enough(asked: Asked) -> None:
    asked.answers(page_of(0, 10), page_of(8, 10), page_of(18, 10))
    assert [hit.url for hit in asked.search("x", 15)] == [u for u, *_ in page_of(0, 15)]
    assert len(asked.server.requests) == 2


def test_filters_are_checked(asked: Asked) -> None:
    asked.answers([*page_of(0, 9), ("https://other.example/", "O", "o")], page_of(20, 1))
    found = asked.search("x -site:e.example", 1)
    assert [hit.url for hit in found] == ["https://other.example/"]


def test_pages_are_counted_as_each_api_counts(server: Server) -> None:
    counted = {"google": ("start", ["1", "11"]), "brave": ("offset", ["0", "1"]),
               "searxng": ("pageno", ["1", "2"])}  # fmt: skip
    for name, (parameter, values) in counted.items():
        asked = Asked(name, server)
        server.requests.clear()
        asked.answers(page_of(0, 10), page_of(10, 10))
        assert len(asked.search("x", 20)) == 20
        assert [parameters[parameter] for parameters in asked.parameters()] == values


def test_brave_without_decorations_and_within_its_limits(server: Server) -> None:
    asked = Asked("brave", server)
    asked.answers([("https://e.example/1", "Tom &amp; Jerry", "It&#x27;s &lt;b&gt;")])
    (found,) = asked.search("why " * 100 + "-site:reddit.com", 1)
    assert (found.title, found.snippet) == ("Tom & Jerry", "It's <b>")
    (parameters,) = asked.parameters()
    assert parameters["text_decorations"] == "false"
    assert parameters["q"].endswith(" -site:reddit.com")
    assert len(parameters["q"].split()) <= 50
    assert len(parameters["q"]) <= 400


def test_searxng_says_that_json_is_off(server: Server) -> None:
    asked = Asked("searxng", server)
    server.answers["/search"] = answer("<html>", status=403)
    assert "settings.yml must list json under search.formats" in asked.problem()
    assert len(server.requests) == 1


def test_searxng_whose_engines_are_blocked_has_not_found_nothing(
    server: Server, tmp_path: pathlib.Path
) -> None:
    asked = Asked("searxng", server)
    blocked = [["brave", "timeout"], ["google", "Suspended: CAPTCHA"]]
    answers = [searxng([]), searxng(page_of(0, 3)), searxng([])]
    answers[0]["unresponsive_engines"] = answers[2]["unresponsive_engines"] = blocked
    left = iter(answers)
    server.answers["/search"] = lambda handler: answer(json.dumps(next(left)))(handler)
    settings = WebSettings(cache=tmp_path)
    said = "SearXNG found nothing; without an answer: brave: timeout, google: Suspended: CAPTCHA"
    assert said in asked.problem(settings)
    assert list(tmp_path.iterdir()) == []
    assert len(asked.search("lighthouse", 5, settings)) == 3


def test_keys_travel_in_headers_alone(
    server: Server, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, header in (("google", "X-Goog-Api-Key"), ("brave", "X-Subscription-Token")):
        asked = Asked(name, server)
        assert KEY not in repr(asked.api)
        # Even where the API itself repeats it.
        server.answers[asked.path] = answer(f"key {KEY} is not valid", status=403)
        assert f"check {name.upper()}_API_KEY" in asked.problem()
        server.answers[asked.path] = answer(f"{KEY} is too quick", status=429, Retry_After="0")
        asked.problem()
        asked.answers(page_of(0, 1))
        asked.search("x", 1, WebSettings(cache=tmp_path))
        assert server.headers[-1][header] == KEY
    assert not any(KEY in path for path in server.requests)
    assert KEY not in caplog.text
    assert len(list(tmp_path.iterdir())) == 2
    assert not any(KEY in file.read_text() for file in tmp_path.iterdir())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_retries(asked: Asked, status: int) -> None:
    good = json.dumps(asked.shape(page_of(0, 1)))
    answers = [answer(status=status), answer(status=status, Retry_After="0"), answer(good)]
    asked.server.answers[asked.path] = lambda handler: answers.pop(0)(handler)
    assert len(asked.search("x", 1)) == 1
    assert len(asked.server.requests) == 3
    asked.server.answers[asked.path] = answer("busy", status=status)
    problem = asked.problem()
    assert f"status {status}" in problem
    assert problem.endswith("it says: busy (after 3 attempts)")


def test_too_long_a_wait_is_not_waited(asked: Asked) -> None:
    for wait in ("3600", email.utils.formatdate(time.time() + 3600, usegmt=True)):
        asked.server.requests.clear()
        asked.server.answers[asked.path] = answer(status=429, Retry_After=wait)
        assert "it asks to wait for 3" in asked.problem()
        assert len(asked.server.requests) == 1


@pytest.mark.parametrize(
    "body", ["", "no JSON", "[]", "7", '{"items": 7, "web": 7, "results": 7}', "[" * 100_000,
             '{"items": [7], "web": {"results": [7]}, "results": [7]}']
)  # fmt: skip
def test_answers_of_another_shape(asked: Asked, body: str) -> None:
    asked.server.answers[asked.path] = answer(body, type="application/json")
    problem = asked.problem()
    assert "is not JSON" in problem or "does not have the form" in problem


def test_results_without_an_address_are_left_out(asked: Asked) -> None:
    asked.answers([("javascript:alert(1)", "T", "S"), *page_of(0, 1)])
    assert [hit.url for hit in asked.search("x", 5)] == ["https://e.example/0"]


def test_time_outs(asked: Asked) -> None:
    released = threading.Event()
    asked.server.answers[asked.path] = lambda handler: released.wait(20) and None
    settings = WebSettings(seconds=0.2, attempts=2, backoff_seconds=0.01)
    assert "ReadTimeout" in asked.problem(settings)
    assert len(asked.server.requests) == 2
    released.set()


def test_redirects_are_not_followed(asked: Asked) -> None:
    asked.server.answers[asked.path] = answer(status=302, Location="/elsewhere")
    assert "status 302" in asked.problem()
    assert len(asked.server.requests) == 1


def test_cache(asked: Asked, tmp_path: pathlib.Path) -> None:
    settings = WebSettings(attempts=1, cache=tmp_path / "answers")
    (url, _, snippet), *others = page_of(0, 10)
    half = "half an emoji \ud83d"  # where an engine cut its title
    asked.answers([(url, half, snippet), *others], page_of(10, 10))
    first = asked.search("x", 12, settings)
    asked.server.answers.clear()
    assert asked.search("x", 12, settings) == first
    assert len(asked.server.requests) == 2
    with pytest.raises(SearchError):  # failures are not kept
        asked.search("y", 12, settings)
    (file, _) = (tmp_path / "answers").iterdir()
    assert json.loads(file.read_text())["parameters"]["q"] == "x"
    for file in (tmp_path / "answers").iterdir():
        file.write_text("{")
    with pytest.raises(SearchError, match="is damaged; delete it"):
        asked.search("x", 12, settings)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_SEARCH_ENGINE_ID", "BRAVE_API_KEY", "SEARXNG_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SearchError, match="GOOGLE_API_KEY is not set; it must hold a key"):
        Google.from_environment()
    monkeypatch.setenv("BRAVE_API_KEY", f" {KEY}\n")
    assert Brave.from_environment().key == KEY
    monkeypatch.setenv("BRAVE_API_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(SearchError, match="BRAVE_API_KEY holds a value that can't be") as raised:
        Brave.from_environment()
    assert KEY not in str(raised.value)
    monkeypatch.setenv("SEARXNG_URL", "searx.example")
    with WebEngine(SearXng.from_environment()) as engine, pytest.raises(SearchError):
        engine.search("x", 1)

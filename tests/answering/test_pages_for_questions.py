"""Where the pages of a question come from."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from pages import HTML
from retrieval.servers import Server, answer, serving

from gophercite.answering.pages import (
    IndexedPages,
    WebPages,
    asked,
    given_pages,
    index_in_memory,
)
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.fetch import FetchSettings
from gophercite.retrieval.searxng import SearXng
from gophercite.retrieval.web import WebEngine

PAGES = [
    Document("a", "Ormsby", "Its lighthouse was built in 1874.", "https://ormsby.example/"),
    Document("b", "Bees", "Bees dance.", "https://bees.example/"),
    Document("c", "Salt", "Salt is made in the yards.", "https://salt.example/"),
]


def test_the_question_without_its_filters() -> None:
    assert asked(" Who\n built it? site:ormsby.example") == "Who built it?"
    for blank in ("", " \n", "site:ormsby.example"):
        with pytest.raises(ValueError, match="there is no question"):
            asked(blank)


def test_pages_of_an_index_come_with_their_snippets() -> None:
    with index_in_memory(PAGES) as index:
        found = IndexedPages(index).find("Who built the lighthouse?", 5)
        (result,) = found.results
        assert result.document == PAGES[0]
        assert result.snippet == "Its lighthouse was built in 1874."
        assert found.search_inside
        filtered = IndexedPages(index).find("lighthouse bees -site:ormsby.example", 1)
        assert [result.document.id for result in filtered.results] == ["b"]


def test_few_documents_are_all_taken_when_no_word_is_found() -> None:
    with index_in_memory(PAGES) as index:
        found = IndexedPages(index).find("xyzzy", 3)
        assert [result.document for result in found.results] == PAGES
        assert all(result.snippet is None for result in found.results)
        assert IndexedPages(index).find("xyzzy", 2).results == ()


def test_what_a_filter_excludes_is_not_taken_either() -> None:
    with index_in_memory(PAGES) as index:
        source = IndexedPages(index)
        assert source.find("lighthouse -site:ormsby.example", 5).results == tuple(
            SearchResult(page) for page in PAGES[1:]
        )
        assert source.find("bees site:nowhere.example", 5).results == ()
        (only,) = source.find("xyzzy site:salt.example", 5).results
        assert only.document == PAGES[2]


def test_given_pages_are_searched_unless_a_search_has_found_them() -> None:
    first, second = map(SearchResult, PAGES[:2])
    assert given_pages([second, first]).results == (second, first)
    assert given_pages([first, second]).search_inside
    assert not given_pages([first, SearchResult(PAGES[1], "Bees")]).search_inside


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        server.answers["/page"] = answer(HTML, type="text/html; charset=utf-8")
        hits = [
            {"url": f"{server.base}/{path}", "title": "T", "content": "The lighthouse was built"}
            for path in ("gone", "page")
        ]
        server.answers["/search"] = answer(json.dumps({"results": hits}))
        yield server


def test_pages_of_the_web_are_fetched_even_where_a_loop_runs(server: Server) -> None:
    """A notebook runs its cells inside an event loop."""
    settings = FetchSettings(allowed_networks=("127.0.0.1/32",))

    async def cell() -> None:
        with Extractor() as extractor, WebEngine(SearXng(server.base)) as engine:
            found = WebPages(engine, extractor, settings).find("lighthouse", 5)
        assert not found.search_inside
        (result,) = found.results
        assert result.document.url == f"{server.base}/page"
        assert "built in 1874 by Anna Vell" in result.document.text
        assert result.snippet == "The lighthouse was built"
        (gone,) = found.left_out
        assert gone.document == f"{server.base}/gone"
        assert "status 404" in gone.reason

    asyncio.run(cell())


def test_where_hits_are_redirected_to_counts(server: Server) -> None:
    """Two may lead to one page, or one to a site that the question excludes."""
    base = server.base
    paths = ("/page", "/short", "/elsewhere")
    hits = [{"url": f"{base}{path}", "title": "", "content": "The lighthouse"} for path in paths]
    server.answers["/search"] = answer(json.dumps({"results": hits}))
    server.answers["/short"] = answer(status=302, Location="/page")
    server.answers["/elsewhere"] = answer(status=302, Location=f"{base}/private/page")
    server.answers["/private/page"] = answer(HTML, type="text/html")
    settings = FetchSettings(allowed_networks=("127.0.0.1/32",))
    with Extractor() as extractor, WebEngine(SearXng(base)) as engine:
        pages = WebPages(engine, extractor, settings)
        found = pages.find("lighthouse -site:127.0.0.1/private", 3)
        assert [result.document.id for result in found.results] == [f"{base}/page"]
        (excluded,) = found.left_out
        assert excluded.document == f"{base}/elsewhere"
        said = f"is redirected to {base}/private/page, which the question's filters exclude"
        assert excluded.reason == said
        assert len(pages.find("lighthouse", 3).results) == 2

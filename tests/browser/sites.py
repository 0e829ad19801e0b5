"""Small worlds for the browser's tests."""

from collections.abc import Mapping, Sequence

from gophercite.browser.pages import Page
from gophercite.browser.shown import Link
from gophercite.browser.worlds import SiteWorld
from gophercite.documents import Document
from gophercite.retrieval.engine import Hit, SearchError

HILL = "http://hill.example/lighthouse"
BAY = "http://www.bay.example/town"


class ListedResults:
    """A search engine that knows what it answers; it can't answer the query `fail`."""

    def __init__(self, results: Mapping[str, Sequence[Hit]]) -> None:
        self._results = results

    def search(self, query: str, k: int) -> list[Hit]:
        if query == "fail":
            raise SearchError("the engine is asleep")
        return list(self._results.get(query, []))[:k]


def page(url: str, title: str, text: str, links: Mapping[str, str] = {}, **anchors: str) -> Page:
    """A page; links and anchors are given by the words that they stand at."""
    places = sorted(
        (text.index(words), text.index(words) + len(words), target)
        for words, target in links.items()
    )
    return Page(
        Document(url, title, text, url, "2026-11-23T05:00:00Z"),
        tuple(Link(*place) for place in places),
        {name: text.index(words) for name, words in anchors.items()},
    )


LIGHTHOUSE = "The lighthouse was built in 1874 by Anna Vell.\nIt burned down in 1901."
LONG = "\n".join(f"Line {number} of the chronicle." for number in range(200))


def site() -> SiteWorld:
    """Two hosts, five pages, and an engine that finds them for `lighthouse`."""
    pages = [
        page(
            HILL,
            "The ♦ lighthouse",
            f"{LIGHTHOUSE}\n\nSee the town, its keeper, Reddit and the archive.",
            {
                "the town": BAY,
                "its keeper": "http://hill.example/keeper",
                "Reddit": "https://old.reddit.com/r/lighthouses",
                "the archive": "http://hill.example/archive#line150",
            },
        ),
        page(BAY, "Bay", "A town on the coast with a STRASSE named Große Straße."),
        page("http://hill.example/archive", "Archive", LONG, line150="Line 150 "),
        page("http://reddit.com/x", "Blocked", "Never to be seen."),
        page(
            "http://bay.example/answer",
            "Answer",
            "It says: one two three four five six seven eight nine, TEN — eleven.",
        ),
    ]
    hits = [Hit(each.document.url or "", each.document.title, "A page.") for each in pages]
    engine = ListedResults({"lighthouse": hits, "nothing": []})
    return SiteWorld("site", pages, engine)

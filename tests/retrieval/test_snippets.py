"""Snippets of results pages are found in the pages they are from, and nowhere else."""

import html
import importlib.util
import random
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz

from gophercite.documents import Document
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.snippets import (
    MAXIMUM_LENGTH,
    find_snippet,
    fragments,
    plain_spaces,
)

PAGE = (
    "Ormsby\n\nThe lighthouse of Ormsby was built in 1874 by the engineer Ada Fenwick.\n"
    "It stands 31 metres above the harbour; its lamp was lit with whale oil until 1902.\n\n"
    "Trade & crafts\n\nMost families work in the salt yards, where 5 < 7 pans are used... They "
    "sell it at the market “of the salt”.\nThe town lies on the river\xa0Ilse."
)
LAMP = "its lamp was lit with whale oil until 1902."
TOWN = "The town lies on the river"

words = st.lists(
    st.sampled_from(["salt", "lamp", "the", "of", "river", "1902", "harbour.", "It\n", "a"])
)
pages = st.one_of(words.map(" ".join), st.text("ab c", max_size=60), st.text(max_size=60))


def shown(snippet: str) -> list[str]:
    match = find_snippet(snippet, PAGE)
    return [] if match is None else [PAGE[start:end] for start, end in match.spans]


@pytest.mark.parametrize(
    "snippet",
    [
        LAMP,
        "its <b>lamp</b> was lit with <strong class='x'>whale oil</strong> until<br/>1902.",
        "its  lamp\nwas lit with whale&nbsp;oil until 1902.",
        "Mar 3, 2019 — its lamp was lit with whale oil until 1902.",
        "3 days ago · its lamp was lit with whale oil until 1902.",
        "2019-03-03: its lamp was lit with whale oil until 1902.",
        "12 March 2019 ... its lamp was lit with whale oil until 1902. ...",
        "… its lamp was lit with whale oil until 1902. …",
        "its lamp was lit with \u200bwhale oil\u200b until 1902.",
    ],
)
def test_decorations_do_not_matter(snippet: str) -> None:
    match = find_snippet(snippet, PAGE)
    assert match is not None
    assert match.ratio == 1
    assert shown(snippet) == [LAMP]


def test_fragments_are_found_each_at_its_place_the_longest_first() -> None:
    snippet = f"{TOWN} ... {LAMP} ... the"
    assert fragments(snippet) == (TOWN, LAMP)
    assert shown(snippet) == [LAMP, TOWN]
    match = find_snippet(snippet, PAGE)
    assert match is not None
    lamp, town = match.spans
    assert list(match.hulls()) == [(lamp[0], town[1]), lamp]


PROSE = " ".join(f"In the year {1700 + n} mill {n} of {n % 7} was built." for n in range(60))


@pytest.mark.parametrize("changed", ["start", "middle", "end"])
def test_a_run_that_stands_once_decides_the_place(changed: str) -> None:
    """Where a third of a long fragment is verbatim, the place is that of a full alignment."""
    for first in range(0, 1200, 97):
        run = PROSE[first : first + 160]
        place = {"start": 4, "middle": 78, "end": 150}[changed]
        snippet = f"{run[:place]}formerly{run[place + 5 :]}".strip()
        match = find_snippet(snippet, PROSE)
        best = fuzz.partial_ratio_alignment(snippet, PROSE)
        assert match is not None
        assert best is not None
        assert match.ratio == pytest.approx(best.score / 100, abs=0.01)
        ((start, end),) = match.spans
        assert abs(start - best.dest_start) <= 4
        assert end - start == best.dest_end - best.dest_start
    # Runs that stand twice decide nothing, nor does one whose rest is something else.
    twice = f"{PROSE} and later {PROSE[:300]}x{PROSE[300:]}"
    assert find_snippet(PROSE[200:360].replace("built", "burnt"), twice) is not None
    assert find_snippet(PROSE[:50] + " nobody knows, and nobody ever will " * 3, PROSE) is None


def test_text_that_looks_like_markup_is_text() -> None:
    assert shown("where 5 &lt; 7 pans are used") == ["where 5 < 7 pans are used"]
    assert fragments("write &lt;b&gt;bold&lt;/b&gt; in <nav>HTML</nav>") == (
        "write <b>bold</b> in <nav>HTML</nav>",
    )


MILL = (
    '<span class="year" style="color: red">18{:02d}</span> <b>Mill</b> <span class="n">number {}'
    "</span> burned down.\n"
)
OWN_PAGES = {  # of pages whose text has markup, which the embedded index shows as it is
    "tags": "".join(MILL.format(n, n) for n in range(40)),
    "a table": "| load | Set&lt;Entry&lt;String,&nbsp;Long&gt;&gt; |\n|  mill |   Map&lt;A&gt; |\n"
    * 20,
    "entities": "R&amp;D of the mill was paid by AT&amp;T... or was it? 3 &lt; 4. " * 20,
    "a list": "".join(f"&lt;li&gt; mill {n} … &lt;/li&gt;\n\n" for n in range(40)),
    "dates": "Mar 3, 2019 — the mill burned. 2019-03-04: it was built again. " * 20,
}


@pytest.mark.parametrize("text", OWN_PAGES.values(), ids=OWN_PAGES)
def test_markup_in_the_text_of_your_own_pages_is_text(text: str) -> None:
    with DocumentIndex(None) as index:
        index.add([Document("mills", "Mills", f"{text}\n\n{PROSE}\n\n{text}")])
        page = index.document("mills").text
        for question in ("mill number 7 year", "load", "AT&T", "li mill 3", "In the year 1720"):
            for hit in index.search(question, 1):
                match = find_snippet(hit.snippet, page)
                assert match is not None, hit.snippet
                assert match.ratio == 1
                shown = plain_spaces(hit.snippet)
                assert all(plain_spaces(page[start:end]) in shown for start, end in match.spans)


def test_a_changed_page_is_still_found_and_another_is_not() -> None:
    match = find_snippet("its lamps were lit by whale oil till 1902.", PAGE)
    assert match is not None
    assert 0.75 <= match.ratio < 1
    (start, end) = match.spans[0]
    assert "lamp was lit with whale oil" in PAGE[start:end]
    assert find_snippet("Sign in to read our newsletter and get 20 % off", PAGE) is None


def test_spaces_between_words_do_not_matter_however_many() -> None:
    table = (
        "Pan 1\t\t\t\t24 tons\n\t\t\tPan 2        3 tons\n\n\n\n\n\n\n\nPan 3   \n   none, so far"
    )
    page = f"  Salt\n\n\n{table} as we know.\n"
    match = find_snippet("Pan 1 24 tons Pan 2 3 tons Pan 3 none, so far …", page)
    assert match is not None
    assert match.ratio == 1
    ((start, end),) = match.spans
    assert page[start:end] == table


def test_missing_fragments_count_against_the_page() -> None:
    absent = "Sign in to read our letters."
    assert find_snippet(f"{LAMP} ... {absent}", PAGE) is None
    match = find_snippet(f"{LAMP} ... {absent}", PAGE, threshold=0.6)
    assert match is not None
    assert match.ratio == pytest.approx(len(LAMP) / (len(LAMP) + len(absent)))
    assert len(match.spans) == 1


@pytest.mark.parametrize("snippet", ["", "...", "<b></b>", "Mar 3, 2019 …", "\u200b", "&nbsp;"])
def test_a_snippet_that_says_nothing_matches_nothing(snippet: str) -> None:
    assert fragments(snippet) == ()
    assert find_snippet(snippet, PAGE) is None


def test_a_page_shorter_than_the_snippet_is_not_found_inside_it() -> None:
    assert find_snippet(LAMP, "lamp") is None
    assert find_snippet(LAMP, LAMP[:-1]) is not None


@given(pages, st.integers(0, 60), st.integers(1, 40))
def test_what_stands_in_the_page_is_found_exactly(page: str, start: int, length: int) -> None:
    snippet = page[start : start + length]
    if fragments(snippet) != (snippet,):
        return  # not as a results page would show it
    match = find_snippet(html.escape(snippet), page)
    assert match is not None
    assert match.ratio == 1
    ((begin, end),) = match.spans
    assert page[begin:end].split() == snippet.split()


@given(st.text("abc ", min_size=12, max_size=90), st.text("abc ", min_size=1, max_size=140))
def test_no_window_of_the_page_is_better(snippet: str, page: str) -> None:
    parts = fragments(snippet)
    if len(parts) != 1 or len(parts[0]) >= len(page):
        return
    length = len(parts[0])
    best = max(  # of all runs of the page as long as the fragment, or cut at an end
        fuzz.ratio(parts[0], page[max(0, start) : start + length])
        for start in range(1 - length, len(page))
    )
    match = find_snippet(snippet, page, threshold=0.0)
    ratio = 0.0 if match is None else match.ratio
    assert ratio >= best / 100 - 1e-9
    if match is not None:
        ((start, end),) = match.spans
        shown = " ".join(page[start:end].split())  # what is found word for word has its spaces
        as_shown = 1.0 if shown == parts[0] else fuzz.ratio(parts[0], page[start:end]) / 100
        assert as_shown == pytest.approx(match.ratio)
    assert (find_snippet(snippet, page) is not None) == (ratio >= 0.75)


@given(st.text(), pages, st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_any_text_is_a_snippet(snippet: str, page: str, threshold: float) -> None:
    match = find_snippet(snippet, page, threshold=threshold)
    if match is not None:
        assert threshold <= match.ratio <= 1
        assert all(0 <= start <= end <= len(page) for start, end in match.spans)


@pytest.mark.parametrize(
    ("snippet", "page"),
    [
        ("<b " * 100_000, "<b " * 100_000),
        ("." * 300_000, "." * 300_000),
        (". " * 100_000 + "x", "x" * 300_000),
        ("&amp;" * 50_000, "&" * 300_000),
        ("a" * 500 + "b" * 500, "b" * 300_000),
        ("Jan " * 50_000, "1, " * 100_000),
    ],
)
def test_hostile_lengths_end(snippet: str, page: str) -> None:
    assert sum(map(len, fragments(snippet))) <= MAXIMUM_LENGTH
    match = find_snippet(snippet, page)
    assert match is None or match.ratio >= 0.75


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="'rapidfuzz' or 'fuzzywuzzy'"):
        find_snippet(LAMP, PAGE, engine="difflib")  # type: ignore[arg-type]


def test_fuzzywuzzy_is_imported_only_when_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fuzzywuzzy", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "fuzzywuzzy.fuzz", None)
    assert shown(LAMP) == [LAMP]
    with pytest.raises(ModuleNotFoundError, match=r"gophercite\[paper\].*GPL"):
        find_snippet(LAMP, PAGE, engine="fuzzywuzzy")


@pytest.mark.skipif(importlib.util.find_spec("fuzzywuzzy") is None, reason="needs fuzzywuzzy")
def test_fuzzywuzzy_judges_and_misses_more() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises a faster GPL library
        assert find_snippet(LAMP, PAGE[:250], engine="fuzzywuzzy") == find_snippet(LAMP, PAGE[:250])
        rng = random.Random(0)
        long_page = " ".join(rng.choice(PAGE.split()) for _ in range(4000)) + PAGE
        found = {
            engine: sum(
                find_snippet(PAGE[start : start + 60], long_page, engine=engine) is not None
                for start in range(80, 240, 10)
            )
            for engine in ("rapidfuzz", "fuzzywuzzy")
        }
    assert found["rapidfuzz"] == 16
    assert found["fuzzywuzzy"] < 16

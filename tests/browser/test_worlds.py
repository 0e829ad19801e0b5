"""Worlds: the live web on loopback, recordings, documents; answers that can be verified."""

import hashlib
import itertools
import json
import pathlib
import re
import time
from collections.abc import Iterator

import pytest
from browser.sites import LIGHTHOUSE, ListedResults, page, site
from hypothesis import given
from hypothesis import strategies as st
from pages import pdf, words_at
from retrieval.servers import Server, answer, serving

from gophercite.answering.verification import Verdict, in_documents, on_the_web, verify
from gophercite.browser.browsed_answers import answer_of, cited
from gophercite.browser.document_worlds import IndexWorld
from gophercite.browser.environment import page_of, replay, reset
from gophercite.browser.episodes import episode_from_json, episode_to_json, played, replayed
from gophercite.browser.hosts import is_blocked
from gophercite.browser.kept_pages import KeptPages
from gophercite.browser.live import LiveWorld
from gophercite.browser.page_lines import page_from_json, page_to_json
from gophercite.browser.pages import Page, error_page
from gophercite.browser.recorded import RecordedWorld, Recorder
from gophercite.browser.settings import Settings
from gophercite.browser.shown import Link, ShownPage
from gophercite.browser.state import State, dumps
from gophercite.documents import Document
from gophercite.extraction.extractor import Extractor
from gophercite.records import read
from gophercite.records.answers import answer_from_json, answer_to_json
from gophercite.retrieval.engine import Hit, SearchError
from gophercite.retrieval.fetch import FetchSettings
from gophercite.retrieval.index import DocumentIndex
from gophercite.storage.json_fields import RecordError

LOOPBACK = FetchSettings(allowed_networks=("127.0.0.0/8",))
TOWN = """<title>Ormsby 【town】</title><body><h1>Ormsby</h1><p>Ormsby has a
<a href="tower.html#keeper">lighthouse</a>, built in 1874 for 12 m<sup>2</sup> of lamps, a
<a href="mailto:a@b">post office</a>, a <a href="javascript:x()">trap</a> and a
<a href="https://www.reddit.com/r/ormsby">forum</a>. Ormsby lies at the
<a href="http://coast.example:8080/x">coast</a>, where ships <a href="/moved">moved</a>
along.</p>"""
TOWER = "<title>Tower</title><body><p>It is tall." + "<p>Stairs." * 60 + "<p id=keeper>Tom kept it."


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor("browser") as it:
        yield it


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as it:
        it.answers |= {
            "/": answer(TOWN, type="text/html; charset=utf-8"),
            "/tower.html": answer(TOWER, type="text/html"),
            "/moved": answer(status=302, Location="/"),
            "/report.pdf": answer(
                pdf(words_at("The keeper was Tom Brandt.")), type="application/pdf"
            ),
            "/data.json": answer('{"keeper": "Tom"}', type="application/json"),
            "/film": answer(b"\0", type="video/mp4"),
            "/broken": answer(status=500),
            "/blank": answer("<p> </p>", type="text/html"),
        }
        yield it


def found(server: Server, *paths: str) -> ListedResults:
    return ListedResults({"all": [Hit(server.base + path, path, "A hit.") for path in paths]})


@pytest.fixture
def live(server: Server, extractor: Extractor) -> Iterator[LiveWorld]:
    paths = ("/", "/report.pdf", "/data.json", "/film", "/broken", "/blank", "/none", "/moved")
    with LiveWorld(found(server, *paths), extractor, LOOPBACK) as world:
        yield world


def at(world: LiveWorld, number: int, *texts: str) -> State:
    return replay(world, reset("Who?"), ["Search all", f"Clicked on link {number}", *texts])


def test_a_live_page_is_shown_as_appendix_a_has_it(live: LiveWorld) -> None:
    state = at(live, 0)
    assert state.view.title == "Ormsby 〖town〗 (127.0.0.1)"
    assert state.view.text == (
        "Ormsby has a 【0†lighthouse】, built in 1874 for 12 m^2 of lamps, a post office, a "
        "trap and a forum. Ormsby lies at the 【1†coast†coast.example】, where ships 【2†moved】 "
        "along."
    )
    tower = at(live, 0, "Clicked on link 0")
    assert tower.view.title == "Tower (127.0.0.1)"
    assert tower.view.text.endswith("Tom kept it.")
    assert tower.view.first > 0
    assert tower.actions[-1].past == "Click Tower 127.0.0.1"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "The keeper was Tom Brandt."),
        (2, '{"keeper": "Tom"}'),
        (3, "This page can't be shown: has type 'video/mp4', which can't be read."),
        (4, "This page can't be shown: the server answers with status 500."),
        (5, "This page can't be shown: has no text."),
        (6, "This page can't be shown: the server answers with status 404."),
    ],
)
def test_other_kinds_and_errors_are_pages(live: LiveWorld, number: int, text: str) -> None:
    state = at(live, number)
    assert state.view.text == text
    assert (page_of(live, state).problem is None) == (number < 3)
    assert replay(live, state, ["Back"]).view == at(live, number, "Back").view


def test_no_page_and_no_search_is_asked_for_twice(live: LiveWorld, server: Server) -> None:
    first = at(live, 7)
    asked = list(server.requests)
    assert first == at(live, 7)
    assert at(live, 0).view == first.view  # where it was redirected to is known too
    assert server.requests == asked
    assert page_of(live, first).document.url == f"{server.base}/"


def test_what_was_seen_stays_when_a_redirect_leads_there(
    live: LiveWorld, server: Server, tmp_path: pathlib.Path
) -> None:
    """Though the page has changed since: equal requests get equal results."""
    texts = ["Search all", "Clicked on link 0", "Quote: built in 1874", "Clicked on link 2", "Back"]
    texts += ["Top", "End: Answer", "In 1874 [1]."]
    for world in (live, Recorder(live, tmp_path / "w")):
        server.answers["/"] = answer(TOWN, type="text/html; charset=utf-8")
        state = replay(world, reset("Who?"), texts[:3])
        server.answers["/"] = answer(TOWN.replace("1874", "1875"), type="text/html; charset=utf-8")
        state = replay(world, state, texts[3:])
        assert "1874" in state.references[0].extract
        assert replay(world, reset("Who?"), texts) == state
        assert world.open(f"{server.base}/moved") == world.open(f"{server.base}/")
    with RecordedWorld(tmp_path / "w") as recorded:
        assert dumps(replay(recorded, reset("Who?"), texts)) == dumps(state)


def test_a_recording_keeps_what_it_has_seen_of_a_page(tmp_path: pathlib.Path) -> None:
    """Also if the world itself doesn't, and in another process."""
    texts = ["Search all", "Clicked on link 0", "Back", "Clicked on link 1", "Back"]
    texts += ["Clicked on link 0"]
    home, moved = "http://a.example/", "http://a.example/moved"
    contents = itertools.count()

    class Changing:
        name = "changing"
        search = ListedResults({"all": [Hit(home, "Home", ""), Hit(moved, "Moved", "")]}).search

        def open(self, url: str) -> Page:
            return page(home, "Home", f"Version {next(contents)}.")

    for first in (2, 6):
        folder = tmp_path / f"{first}"
        with Recorder(Changing(), folder) as recorder:
            state = replay(recorder, reset("Who?"), texts[:first])
        with Recorder(Changing(), folder) as recorder:
            state = replay(recorder, state, texts[first:])
        with RecordedWorld(folder) as recorded:
            assert replay(recorded, reset("Who?"), texts) == state
            assert recorded.open(home) == recorded.open(moved)
            assert [each.text for each in recorded.documents()] == [state.view.text]


def test_a_recorded_error_stays_when_a_redirect_leads_there(tmp_path: pathlib.Path) -> None:
    home, moved = "http://a.example/", "http://a.example/moved"

    class Waking:
        name, search = "waking", ListedResults({}).search

        def open(self, url: str) -> Page:
            return error_page(url, "asleep") if url == home else page(home, "Home", "It is up.")

    with Recorder(Waking(), tmp_path / "w") as recorder:
        seen = [recorder.open(url) for url in (home, moved, home)]
    with RecordedWorld(tmp_path / "w") as recorded:
        assert [recorded.open(url) for url in (home, moved, home)] == seen
    assert [each.problem for each in seen] == ["asleep", None, "asleep"]


def test_a_page_that_is_too_long_is_recorded_as_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gophercite.browser.recorded.MAXIMUM_LINE_BYTES", 1000)
    texts = ["Search lighthouse", "Clicked on link 0", "Clicked on link 2", "Back"]
    with Recorder(site(), tmp_path / "w") as recorder:
        state = replay(recorder, reset("Why?"), texts)
        archive = recorder.open("http://hill.example/archive")
        assert archive.problem == "it is too long to be recorded"
    with RecordedWorld(tmp_path / "w") as recorded:
        assert replay(recorded, reset("Why?"), texts) == state
        assert recorded.open("http://hill.example/archive") == archive
        assert recorded.search("lighthouse built", 5)


def test_long_addresses_are_no_links(live: LiveWorld, server: Server) -> None:
    links = "".join(f"<a href='{i}'>to {i}</a> " for i in range(3000))
    base = "http://b.example/" + "x" * 3900 + "/"
    for more, shown in (("", 1 << 23), ("y" * 100_000, 0)):
        text = f"<base href='{base}{more}'><p>A page. {links}"
        server.answers["/"] = answer(text, type="text/html; charset=utf-8")
        with LiveWorld(found(server, "/"), live._extractor, LOOPBACK) as world:
            (*_, last) = read = world.open(f"{server.base}/").links
        if more:
            assert last.url == f"{server.base}/2999"
        else:
            assert shown - 4000 < sum(len(link.url) for link in read) <= shown
            assert len(read) < 2200


def test_links_take_room_in_the_cache() -> None:
    kept, links = KeptPages(), [Link(0, 4, "http://a.example/" + "x" * (1 << 20))] * 100
    for number in range(3):
        kept.keep(f"{number}", Page(Document("x", "X", "Text."), tuple(links)))
    assert [kept.find(f"{number}") is None for number in range(3)] == [True, True, False]


def test_hosts_with_many_dots_are_quick() -> None:
    host = "a." * 1900 + "com"
    links = [Link(0, 4, f"http://{host}/{i}") for i in range(2000)]
    began = time.process_time()
    Page(Document("x", "X", "Text."), tuple(links)).shown(Settings())
    assert time.process_time() - began < 5
    for url, blocked in (
        ("http://old.reddit.com./x", True),
        ("http://reddit.com:80", True),
        ("http://notreddit.com/", False),
        ("http://reddit.com.example/", False),
    ):
        assert is_blocked(url, Settings().blocked) == blocked


def test_a_live_world_keeps_the_latest_searches(extractor: Extractor) -> None:
    queries = []

    class Counting(ListedResults):
        def search(self, query: str, k: int) -> list[Hit]:
            queries.append(query)
            return super().search(query, k)

    engine = Counting({"a": [Hit("http://a.example/", "A" * 3000, "")], "b": []})
    with LiveWorld(engine, extractor, kept_searches=5000) as world:
        for query in ("a", "fail", "b", "fail", "b"):
            assert replay(world, reset("Who?"), [f"Search {query}"])
        assert queries == ["a", "fail", "b"]
        replay(world, reset("Who?"), ["Search a"])
        assert queries == ["a", "fail", "b", "a"]


TEXTS = [
    *("Search all", "Clicked on link 0", "Quote: BUILT in 1874 for 12m^2", "Clicked on link 1"),
    *("Back", "Clicked on link 0", "Quote: tom kept it", "Back", "Clicked on link 2"),
    *("Search nothing", "Search fail", "Clicked on link 4", "End: Answer"),
    "It was built in 1874 [1]. Tom kept it [2].",
]


def test_a_recording_is_browsed_without_the_web_to_the_same_bytes(
    live: LiveWorld, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "world"
    with Recorder(live, folder) as recorder:
        state = replay(recorder, reset("Who?"), TEXTS)
    before = digests(folder)
    with RecordedWorld(folder) as world:
        assert world.name == "world"
        assert dumps(replay(world, reset("Who?"), TEXTS)) == dumps(state)
        # What was not recorded: pages are errors, queries are answered from the pages.
        assert world.open("http://new.example/").problem == "it is not in this recorded world"
        (hit, *_) = world.search("tall stairs", 3)
        assert hit.url.endswith("/tower.html")
        assert world.open(hit.url + "#keeper").document.title == "Tower"
        with pytest.raises(SearchError, match="asleep"):
            world.search("fail", 10)
    assert digests(folder) == before


def digests(folder: pathlib.Path) -> dict[str, str]:
    files = sorted(folder.iterdir())
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_a_killed_recording_goes_on(tmp_path: pathlib.Path) -> None:
    with Recorder(site(), tmp_path / "w") as recorder:
        whole = replay(recorder, reset("Why?"), ["Search lighthouse", "Clicked on link 0"])
    for name in ("pages", "addresses", "searches"):
        with (tmp_path / f"w/{name}.jsonl").open("ab") as file:
            file.write(b'{"url": "http://cut')
    asked = site()
    asked.search = asked.open = None  # type: ignore[method-assign, assignment]
    with Recorder(asked, tmp_path / "w") as recorder:
        texts = ["Search lighthouse", "Clicked on link 0"]
        assert replay(recorder, reset("Why?"), texts) == whole
    with Recorder(site(), tmp_path / "w") as recorder:
        more = [*texts, "Clicked on link 2", "Scrolled down 1", "Quote: the chronicle."]
        state = replay(recorder, reset("Why?"), more)
    with RecordedWorld(tmp_path / "w") as world:
        assert replay(world, reset("Why?"), more) == state


def test_a_recording_that_was_killed_as_it_began_goes_on(tmp_path: pathlib.Path) -> None:
    names = ("pages.jsonl", "addresses.jsonl", "searches.jsonl", "world.json")
    for number in range(len(names) + 1):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for name in names[:number]:
            (folder / name).touch()
        with Recorder(site(), folder) as recorder:
            replay(recorder, reset("Why?"), ["Search lighthouse"])
        with RecordedWorld(folder) as world:
            assert world.name == folder.name
            assert world.knows_search("lighthouse", 10)
    (folder / "mine.txt").touch()
    (folder / "world.json").unlink()
    with pytest.raises(RecordError, match="is not empty and is not a recorded world"):
        Recorder(site(), folder)


def test_only_one_process_records_into_a_folder(tmp_path: pathlib.Path) -> None:
    """Each would note down wrong places of the other's pages."""
    texts = ["Search lighthouse", "Clicked on link 0"]
    with Recorder(site(), tmp_path / "w") as recorder:
        with pytest.raises(RecordError, match="another process is recording here"):
            Recorder(site(), tmp_path / "w")
        state = replay(recorder, reset("Why?"), texts)
        with RecordedWorld(tmp_path / "w") as world:  # reading is for everybody
            assert replay(world, reset("Why?"), texts) == state
    Recorder(site(), tmp_path / "w").close()


def test_documents_of_one_address_are_each_opened(tmp_path: pathlib.Path) -> None:
    """Such as the parts of a page, whose addresses may differ in their fragments."""
    page_of_all = "http://a.example/all"
    documents = [
        Document("one", "One", "The lighthouse burned down.", page_of_all),
        Document("two", "Two", "The lighthouse was built again.", page_of_all),
        Document("three", "Three", "The lighthouse was sold.", f"{page_of_all}#sold"),
        Document("four", "Four", "The lighthouse was painted.", "http://a.example/paint"),
    ]
    with DocumentIndex(None) as index:
        index.add(documents)
        texts = [each.text for each in documents]
        for world in (IndexWorld(index), Recorder(IndexWorld(index), tmp_path / "w")):
            opened = [world.open(hit.url) for hit in world.search("lighthouse", 9)]
            assert sorted(each.document.text for each in opened) == sorted(texts)
            assert {each.document.url for each in opened} == {each.url for each in documents}
            assert world.open("http://a.example/paint").document.id == "four"
    with RecordedWorld(tmp_path / "w") as recorded:
        for query in ("lighthouse", "the lighthouse"):  # the other one was not recorded
            opened = [recorded.open(hit.url) for hit in recorded.search(query, 9)]
            assert sorted(each.document.text for each in opened) == sorted(texts)


def test_a_damaged_recording_is_named(tmp_path: pathlib.Path) -> None:
    with Recorder(site(), tmp_path / "w") as recorder:
        state = replay(recorder, reset("Why?"), ["Search lighthouse", "Clicked on link 0"])
    pages = tmp_path / "w/pages.jsonl"
    good = pages.read_text("utf-8")
    pages.write_text(good.replace("1874", "1875"), "utf-8")
    with RecordedWorld(tmp_path / "w") as world, pytest.raises(RecordError, match="not that of"):
        page_of(world, state)
    pages.write_text("x" + good, "utf-8")
    with (
        RecordedWorld(tmp_path / "w") as world,
        pytest.raises(RecordError, match="not a line of JSON"),
    ):
        page_of(world, state)
    addresses = tmp_path / "w/addresses.jsonl"
    kept = addresses.read_text("utf-8")
    addresses.write_text(re.sub(r'"at": \d+', f'"at": {10**30}', kept), "utf-8")
    assert addresses.read_text("utf-8") != kept
    with (
        pytest.raises(RecordError, match=r"at byte 10{30}"),
        RecordedWorld(tmp_path / "w") as world,
    ):
        page_of(world, state)
    addresses.write_text(kept, "utf-8")
    searches = tmp_path / "w/searches.jsonl"
    searches.write_text('{"query": "x", "k": "ten"}\n', "utf-8")
    with pytest.raises(RecordError, match=r"searches.jsonl:1: field 'k'"):
        RecordedWorld(tmp_path / "w")
    (tmp_path / "w/world.json").write_text('{"format": "other", "version": 1, "name": "x"}')
    with pytest.raises(RecordError, match="is this a recorded world"):
        RecordedWorld(tmp_path / "w")
    with pytest.raises(FileNotFoundError):
        RecordedWorld(tmp_path / "none")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(RecordError, match="not empty"):
        Recorder(site(), tmp_path / "other")


def test_documents_with_and_without_addresses_are_a_world() -> None:
    with DocumentIndex(None) as index:
        index.add(
            [Document("a b", "Notes", "A harbour."), Document("x", "Bay", "A bay.", "file:///b")]
        )
        world = IndexWorld(index)
        state = replay(world, reset("Why?"), ["Search harbour bay", "Clicked on link 0", "Back"])
        assert {hit.url for hit in world.search("harbour bay", 5)} == {
            "document:a%20b",
            "file:///b",
        }
        for number in range(2):
            state = replay(world, state, [f"Clicked on link {number}", "Quote: a", "Back"])
        assert {each.document for each in state.references} == {"a b", "x"}
        assert world.open("document:none").problem is not None
        assert world.open("file:///c").problem is not None


# --- Verifying ---


def test_the_answer_of_a_browsed_page_is_verified_on_the_web_and_by_the_recording(
    live: LiveWorld, extractor: Extractor, tmp_path: pathlib.Path
) -> None:
    with Recorder(live, tmp_path / "w") as recorder:
        state = replay(recorder, reset("Who?"), TEXTS)
    browsed = answer_of(state, "person")
    assert answer_from_json(json.loads(json.dumps(answer_to_json(browsed)))) == browsed
    claims = [(citation.claim, citation.quote) for citation in browsed.citations]
    assert claims == [
        ("It was built in 1874 .", "built in 1874 for 12 m^2"),
        ("Tom kept it .", "Tom kept it"),
    ]
    for finder in (
        on_the_web(browsed, extractor, LOOPBACK),
        in_documents(read(tmp_path / "w/pages.jsonl", Document, strict=True), browsed),
    ):
        checks = verify(browsed, finder)
        assert [check.verdict for check in checks] == [Verdict.EXACT] * 2
        assert not any(check.page_changed for check in checks)


def test_answers_that_cite_nothing_and_none() -> None:
    texts = ["Search lighthouse", "Clicked on link 0", "Quote: anna vell", "End: Answer"]
    state = replay(site(), reset("Who?"), [*texts, "She did [7]."])
    assert [each.claim for each in answer_of(state, "x").citations] == ["She did [7]."]
    assert cited("a [1], b [2, 3] c [1][04] [x]") == (1, 2, 3, 4)
    nonsense = replay(site(), reset("Who?"), ["End: Nonsense"])
    assert answer_of(nonsense, "x").reason == "the question was judged to be nonsense"
    blank = replay(site(), reset("Who?"), [*texts, " "])
    assert answer_of(blank, "x").reason == "the answer is blank"
    assert answer_of(replay(site(), reset("Who?"), ["End: Answer"]), "x").declined
    with pytest.raises(ValueError, match="not over"):
        answer_of(reset("Who?"), "x")


# --- Episodes ---


def test_an_episode_is_recorded_read_and_replayed() -> None:
    texts = ["Search lighthouse", "Clicked on link 0", "what?", "Quote: anna vell", "End: Answer"]
    start = reset("Who?", reference_answer="Nobody knows.")
    episode = played(site(), start, [*texts, "Anna [1]."], id="e", question_id="q", by="ada")
    value = json.loads(json.dumps(episode_to_json(episode)))
    assert value["steps"][2]["invalid"] == "is none of the commands"
    assert value["steps"][0]["observation"].startswith("♦Question\nWho?\n♦Quotes\n♦Past")
    assert value["steps"][5] == {
        "observation": "Who?■[1] The ◆ lighthouse (hill.example)\n\nAnna Vell■",
        "action": "Anna [1].",
    }
    again = replayed(site(), episode_from_json(value))
    assert again == episode
    assert episode_to_json(again) == episode_to_json(episode)
    with pytest.raises(ValueError, match="not over"):
        played(site(), start, texts, id="e", question_id="q", by="ada")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"end": "tired"}, "end"),
        ({"limit": 0}, "limit"),
        ({"steps": [{"action": "Top"}]}, r"steps\[0\].observation"),
        ({"settings": {"columns": 1}}, "settings"),
        ({"referenzes": []}, None),
        ({"answer": "x", "references": []}, "answer"),
        ({"by": None}, "by"),
    ],
)
def test_a_bad_episode_is_refused_by_its_field(change: dict[str, object], field: str) -> None:
    start = reset("Who?")
    episode = played(site(), start, ["End: Answer"], id="e", question_id="q", by="ada")
    value = json.loads(json.dumps(episode_to_json(episode))) | change
    if field is None:
        assert episode_from_json(value).end.references == ()  # unknown names are passed over
        return
    with pytest.raises(RecordError, match=field):
        episode_from_json(value)


# --- Pages ---

PAGE_TEXTS = st.text(alphabet="ab ß\n【】†━■♦éÉ\u200f\U0001f469漢", max_size=60)


@given(text=PAGE_TEXTS, cuts=st.lists(st.integers(0, 60), max_size=12), columns=st.integers(20, 30))
def test_what_is_shown_is_the_pages_text_with_its_links_marked(
    text: str, cuts: list[int], columns: int
) -> None:
    document = Document("http://a.example/", "A", text, "http://a.example/")
    text = document.text
    places = sorted(min(cut, len(text)) for cut in cuts)
    links = [Link(a, b, "http://b.example/") for a, b in itertools.pairwise(places)]
    page = Page(document, tuple(link for link in links if link.start < link.end))
    shown = ShownPage(text, page.links, "a.example", columns)
    assert len(shown.plain) == len(text)
    stripped = shown.text
    for number, _ in enumerate(shown.links):
        stripped = stripped.replace(f"【{number}†", "", 1).replace("†b.example】", "", 1)
    assert stripped == shown.plain
    assert not set(shown.plain) & set("【】†━■♦")
    # Lines: nothing is lost between them, none is too long, places lead to lines and back.
    assert "".join(lines_with_ends(shown)) == shown.text
    assert all(len(line.rstrip(" \n")) <= columns for line in lines_with_ends(shown))
    for place in range(len(text)):
        line = shown.line_of(place)
        assert shown.place_of_line(line) <= place
        if line + 1 < len(shown):
            assert place <= shown.place_of_line(line + 1)
    assert page_from_json(json.loads(json.dumps(page_to_json(page)))) == page if text else True


def test_a_line_may_begin_within_the_marks_of_a_long_link() -> None:
    shown = ShownPage("x" * 17 + "yz", (Link(0, 17, "http://b.example.org/"),), "", 20)
    assert lines_with_ends(shown)[1].startswith("†b.example")
    assert [shown.place_of_line(line) for line in range(2)] == [0, 17]
    shown = ShownPage("x" * 16 + "yz", (Link(0, 16, "http://b.example.org/"),), "", 20)
    assert lines_with_ends(shown)[1].startswith("b.example")
    assert shown.place_of_line(1) == 16


def lines_with_ends(shown: ShownPage) -> list[str]:
    starts = [*shown.line_starts, len(shown.text)]
    return [shown.text[a:b] for a, b in itertools.pairwise(starts)]


@given(text=PAGE_TEXTS, start=st.integers(0, 60), length=st.integers(1, 20), other=PAGE_TEXTS)
def test_whatever_stands_in_a_page_is_found_and_quoted_there(
    text: str, start: int, length: int, other: str
) -> None:
    shown = ShownPage(text, (), "", 20)
    part = shown.plain[start : start + length]
    for find in (shown.matcher.find, shown.matcher.quote):
        for wanted in (part, part.upper(), other):
            place = find(wanted, 0)
            if wanted is not other and part.strip():
                assert place is not None
                assert place[0] <= start + len(part) - len(part.lstrip())
            if place is not None:
                said = shown.plain[slice(*place)]
                squeezed = "".join(wanted.split()).casefold()
                assert squeezed in "".join(said.split()).casefold()


def test_finding_is_as_quick_in_long_pages() -> None:
    text = f"{LIGHTHOUSE} " * 20_000
    shown = ShownPage(text, (), "", 68)
    (start, end) = shown.matcher.quote("Itburneddown", len(text) // 2) or (0, 0)
    assert text[start:end] == "It burned down"


def test_white_space_is_what_python_takes_for_it() -> None:
    text = "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, 0x110000)))
    spaces = "".join(character for character in text if character.isspace())
    shown = ShownPage(f"a{spaces}b", (), "", 20)
    assert shown.matcher.quote("ab", 0) == shown.matcher.find("a b", 0) == (0, len(spaces) + 2)
    # And nothing else is left aside.
    assert ShownPage(text, (), "", 20).matcher.quote("\u200bx", 0) is None
    assert ShownPage("x \u0130 y", (), "", 20).matcher.find("i\u0307 Y", 0) == (2, 5)

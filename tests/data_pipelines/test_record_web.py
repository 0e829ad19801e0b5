"""Recorded worlds of documents: addresses, links by titles, an index; browsed and verified."""

import gzip
import json
import pathlib

import pytest

from data_pipelines.record_web import main, record
from gophercite.answering.verification import Verdict, in_documents, verify
from gophercite.browser.browsed_answers import answer_of
from gophercite.browser.environment import replay, reset
from gophercite.browser.pages import Page
from gophercite.browser.recorded import RecordedWorld
from gophercite.documents import Document
from gophercite.records import read
from gophercite.storage.json_fields import RecordError

HARBOUR = "The Old Harbour lies below Ada Fenwick Tower. The Old Harbour has boats."
TOWER = "The tower is named after Ada Fenwick, as is the Old Harbour's school in Ora."


@pytest.fixture
def world(tmp_path: pathlib.Path) -> str:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/Old Harbour.txt").write_text(HARBOUR, "utf-8")
    documents = [
        {"id": "1", "title": "Ada Fenwick Tower", "text": TOWER, "url": "http://t.example/tower"},
        {"id": "2", "title": "Ada Fenwick", "text": "An engineer of Ora."},
        {"id": "3", "title": "Ada Fenwick", "text": "A sailor, not the engineer."},
        {"id": "4", "title": "Ora", "text": "Ora is a town."},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in documents)
    (tmp_path / "documents.jsonl").write_text(lines, "utf-8")
    html = "<title>Web</title><body><p>Of <a href='/x'>Ada Fenwick</a>, and Ada Fenwick again."
    with gzip.open(tmp_path / "pages.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"id": "w", "html": html}) + '\n{"id": "no html"}\n')
    out = str(tmp_path / "world")
    paths = [str(tmp_path / name) for name in ("own", "documents.jsonl", "pages.jsonl.gz")]
    assert main([*paths, "--out", out, "--name", "harbours"]) == 0
    return out


def shown(world: RecordedWorld, url: str) -> list[tuple[str, str]]:
    page = world.open(url)
    assert page.problem is None
    return [(page.document.text[link.start : link.end], link.url) for link in page.links]


def test_pages_are_linked_where_they_first_name_others(world: str) -> None:
    with RecordedWorld(world) as it:
        assert it.name == "harbours"
        assert shown(it, "http://documents.example/Old_Harbour") == [
            ("Ada Fenwick Tower", "http://t.example/tower")  # not its own title, the longest one
        ]
        assert shown(it, "http://t.example/tower") == [
            ("Ada Fenwick", "http://documents.example/Ada_Fenwick"),
            ("Old Harbour", "http://documents.example/Old_Harbour"),
        ]
        # Namesakes have addresses of their own; what is too short is no name.
        assert it.open("http://documents.example/Ada_Fenwick_2").document.id == "3"
        assert shown(it, "http://documents.example/Ada_Fenwick") == []
        assert shown(it, "http://documents.example/w") == [
            ("Ada Fenwick", "http://documents.example/x"),
            ("Ada Fenwick", "http://documents.example/Ada_Fenwick"),
        ]


def test_it_is_searched_browsed_and_verified(world: str) -> None:
    texts = [
        *("Search old harbour boats", "Clicked on link 0", "Clicked on link 0"),
        *("Quote: named after ada fenwick", "End: Answer", "After her [1]."),
    ]
    with RecordedWorld(world) as it:
        state = replay(it, reset("After whom?"), texts)
    assert state.references[0].title == "Ada Fenwick Tower"
    browsed = answer_of(state, "x")
    (check,) = verify(browsed, in_documents(read(f"{world}/pages.jsonl", Document), browsed))
    assert check.verdict is Verdict.EXACT


def test_pages_that_only_their_fragments_tell_apart_have_addresses_of_their_own(
    tmp_path: pathlib.Path,
) -> None:
    """A browser opens an address without its fragment."""
    url = "http://t.example/tower"
    documents = [
        {"id": part, "title": part, "text": f"The {part}.", "url": f"{url}#{part}"}
        for part in ("History", "Other")
    ]
    pages = [{"id": f"p#{n}", "html": f"<title>Web {n}</title><p>Page {n}"} for n in (1, 2)]
    for name, lines in (("d.jsonl", documents), ("p.jsonl", pages)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    paths = [str(tmp_path / name) for name in ("d.jsonl", "p.jsonl")]
    assert main([*paths, "--out", str(tmp_path / "world")]) == 0
    with RecordedWorld(tmp_path / "world") as it:
        found = {hit.url: it.open(hit.url) for hit in it.search("history other page", 10)}
        assert {page.problem for page in found.values()} == {None}
        assert len(found) == 4
        assert it.open(f"{url}#History").document.text == "The History."
        assert it.open("http://documents.example/p%231").document.title == "Web 1"


def test_what_cannot_be_recorded_is_said(
    world: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "own"), "--out", world]) == 1
    assert "already exists" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), "--out", str(tmp_path / "new")]) == 1
    assert "hold no document" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert main([str(tmp_path / "none"), "--out", str(tmp_path / "new")]) == 1


def test_a_page_that_its_own_address_does_not_open_is_refused(tmp_path: pathlib.Path) -> None:
    page = Page(Document("1", "One", "First.", "http://t.example/page#one"))
    with pytest.raises(RecordError, match=r"http://t.example/page#one: .*there is no such page"):
        record([page], tmp_path / "world")
    assert not (tmp_path / "world").exists()

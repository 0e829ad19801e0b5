"""Questions, an engine of the web, and the prompts that show its pages: all on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from retrieval.servers import Server, answer, serving

from data_pipelines import search, tasks
from data_pipelines.rollout_input import RolloutInput
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import records
from gophercite.extraction.extractor import Extractor
from gophercite.retrieval.contexts import ContextSettings
from gophercite.retrieval.fetch import FetchSettings
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.searxng import SearXng
from gophercite.retrieval.stored_web import StoredWeb
from gophercite.retrieval.web import WebEngine

VOCABULARY = bundled_vocabulary()
SNIPPET = "The lighthouse of <b>Ormsby</b> was …"
SENTENCE = "The lighthouse of Ormsby was built in 1874."


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        filling = "<p>The town has a mill and a red bridge over the river.</p>" * 40
        for name in ("ormsby", "tower"):
            page = f"<title>{name.title()}</title><main>{filling}<p>{SENTENCE}</p>{filling}</main>"
            server.answers[f"/{name}"] = answer(page, type="text/html; charset=utf-8")
        server.answers["/moved"] = answer(status=302, Location="/tower")
        results = [
            {"url": f"{server.base}/{path}", "title": path, "content": SNIPPET}
            for path in ("ormsby", "gone", "moved")
        ]  # fmt: skip
        found = {"query": "x", "results": results, "answers": []}
        server.answers["/search"] = answer(json.dumps(found), type="application/json")
        yield server


def found(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setenv("SEARXNG_URL", server.base)
    question = records.Question("q", "When was the lighthouse of Ormsby built?", "us", ())
    records.write(folder / "questions.jsonl", [question])
    files = (folder / "questions.jsonl", folder / "found.jsonl", "--index", folder / "web.db")
    arguments = ["questions", *map(str, files), "--engine", "searxng", "--html", "full", *more]
    return search.main([*arguments, "--allow-network", "127.0.0.1/32"])


def test_questions_get_pages_of_the_web_which_prompts_show(
    server: Server, tmp_path: Path, monkeypatch, capsys
) -> None:
    cache = str(tmp_path / "cache")
    assert found(server, tmp_path, monkeypatch, "--search-cache", cache) == 0
    printed = capsys.readouterr()
    assert "1 record written, 0 skipped" in printed.out
    assert "2 pages fetched, 1 could not be fetched" in printed.out
    assert f"{server.base}/gone: the server answers with status 404" in printed.err
    (question,) = records.read(tmp_path / "found.jsonl", records.Question, strict=True)
    ids = [f"{server.base}/ormsby", f"{server.base}/moved"]
    assert [source.id for source in question.documents] == ids
    with DocumentIndex(tmp_path / "web.db") as index:
        assert index.ids() == ids
        moved = index.document(ids[1])
        assert moved.url == f"{server.base}/tower"
        assert SENTENCE in moved.text

    tasks.add_questions(
        "web", {"train": tmp_path / "found.jsonl"}, VOCABULARY, contexts=ContextSettings(),
        index=tmp_path / "web.db",
    )  # fmt: skip
    (batch,) = RolloutInput("web", "train", 128, 32, 64, 1, seed=0).one_pass()
    text = VOCABULARY.decode(batch["prompts"][0][: batch["prompt_lengths"][0]].tolist())
    assert text.startswith("Page: ")
    assert "lighthouse of Ormsby was" in text.split("Question:")[0]

    # Neither engine nor pages are asked for again, but those that were not to be had.
    server.requests.clear()
    assert found(server, tmp_path, monkeypatch, "--search-cache", cache) == 0
    assert "0 pages fetched, 1 could not be fetched" in capsys.readouterr().out
    assert server.requests == ["/robots.txt", "/gone"]
    assert list(records.read(tmp_path / "found.jsonl", records.Question)) == [question]


def test_filters_apply_to_where_a_hit_is_redirected(server: Server, tmp_path: Path) -> None:
    """Now, and for pages that an earlier query has stored."""
    networks = FetchSettings(allowed_networks=("127.0.0.1/32",))
    excluding = "lighthouse -site:127.0.0.1/tower"
    with (
        DocumentIndex(tmp_path / "web.db", write=True) as index,
        Extractor("full") as extractor,
        WebEngine(SearXng(server.base)) as engine,
    ):
        web = StoredWeb(engine, index, extractor, networks)
        for query, paths in (
            (excluding, ["ormsby"]),
            ("lighthouse", ["ormsby", "moved"]),
            (excluding, ["ormsby"]),
            ("lighthouse site:127.0.0.1/moved", []),
        ):
            ids = [hit.id for hit in web.search(query, 5)]
            assert ids == [f"{server.base}/{path}" for path in paths], query


def test_a_question_that_no_engine_has_answered_is_named(
    server: Server, tmp_path: Path, monkeypatch, capsys
) -> None:
    """It ends no run of hours: for rare words, one of many engines is often silent."""
    nothing = {"results": [], "unresponsive_engines": [["google", "Suspended: CAPTCHA"]]}
    server.answers["/search"] = answer(json.dumps(nothing), type="application/json")
    assert found(server, tmp_path, monkeypatch) == 0
    printed = capsys.readouterr()
    assert "lighthouse of Ormsby built? : SearXNG found nothing; without an" in printed.err
    assert "none for 1" in printed.out


def test_an_engine_that_cannot_answer_ends_the_run_and_leaves_no_file(
    server: Server, tmp_path: Path, monkeypatch, capsys
) -> None:
    server.answers["/search"] = answer(status=403)
    assert found(server, tmp_path, monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "JSON is turned off" in line
    assert not (tmp_path / "found.jsonl").exists()

    monkeypatch.delenv("SEARXNG_URL")
    paths = map(str, (tmp_path / "questions.jsonl", tmp_path / "out.jsonl"))
    assert (
        search.main(
            ["questions", *paths, "--index", str(tmp_path / "web.db"), "--engine", "searxng"]
        )
        == 1
    )
    assert "SEARXNG_URL" in capsys.readouterr().err

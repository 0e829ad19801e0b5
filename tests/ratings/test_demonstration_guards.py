"""What the demonstration browser refuses, what comes twice or late, and strangers' texts."""

import concurrent.futures
import json
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from browser.sites import LIGHTHOUSE, ListedResults, page
from retrieval.servers import answer, serving

from gophercite import cli
from gophercite.browser.recorded import Recorder
from gophercite.browser.worlds import SiteWorld
from gophercite.documents import Document
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.schema import audit, items, leases, ratings
from gophercite.ratings.study import Study
from gophercite.retrieval.engine import Hit
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.browsing import (
    Demonstrator,
    at_hill,
    export,
    question,
    served_site,
    steps_of,
    study_of,
    write,
)
from tests.ratings.databases import postgresql
from tests.ratings.served import Served, serve
from tests.ratings.studies import Clock
from tests.ratings.test_attacks import EVIL, assert_harmless

Says = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("demonstrated")


@pytest.fixture(scope="module")
def served(folder: pathlib.Path) -> Iterator[Served]:
    with served_site(folder) as served:
        yield served


# --- What can't be done, and what comes twice ---


def test_what_can_t_be_done_is_said_and_not_counted(served: Served) -> None:
    person = at_hill(served, "Clumsy")
    version = person.version
    for send, said in (
        (lambda: person.quote("no such words"), "the page does not hold this text"),
        (lambda: person.search(" "), "says only 'Search'"),
        (lambda: person.send(do="Clicked on link 99"), "no link 99"),
        (lambda: person.send(do="Fly away"), "none of the commands"),
        (lambda: person.send(do="search", text="x" * 20_000), "more than 10000"),
        (lambda: person.send(), "is empty"),
    ):
        wrong = send()
        assert wrong.status == 422
        assert said in wrong.text, wrong.text
        assert person.version == version
    assert person.quote("no such words", "at all").elements.form["until"] == "at all"
    assert steps_of(served, "Clumsy") == ["Search lighthouse", "Clicked on link 0"]
    missing = person.find("no such words")
    assert missing.status == 200, "a valid action, which changes nothing"
    assert "The page does not hold this text" in missing.text


def test_old_pages_and_forms_sent_twice_change_nothing(served: Served) -> None:
    person = Demonstrator(served, "Doubtful")
    first = person.hidden
    search = first | {"do": "search", "text": "lighthouse"}
    for _ in range(3):
        page = person.browser.send("/e/1", search)
        assert page.status == 200
    assert steps_of(served, "Doubtful") == ["Search lighthouse"]
    for old in (
        first | {"do": "search", "text": "another"},
        first | {"do": "End: Nonsense"},
        first | {"do": "search", "text": "lighthouse", "version": "-1"},
        first | {"do": "search", "text": "lighthouse", "version": "7"},
        first | {"do": "search", "text": "lighthouse", "version": ""},
    ):
        page = person.browser.send("/e/1", old)
        assert page.status == 409
        assert "nothing was done" in page.text
        assert page.form["version"] == "1"
    assert steps_of(served, "Doubtful") == ["Search lighthouse"]


def test_a_form_that_is_sent_by_many_at_once_is_done_once(served: Served) -> None:
    person = at_hill(served, "Impatient")
    forms = [person.hidden | {"do": "quote", "text": "burned down"}] * 8
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda form: person.browser.send("/e/1", form), forms))
    assert {page.status for page in pages} == {200}
    assert steps_of(served, "Impatient").count("Quote: burned down") == 1


def test_tickets_are_for_one_rater_and_pools_for_theirs(served: Served) -> None:
    person, other = Demonstrator(served, "Owner"), Demonstrator(served, "Thief")
    stolen = other.hidden | {"ticket": person.hidden["ticket"], "do": "search", "text": "x"}
    assert other.browser.send("/e/1", stolen).status == 403
    foreign = other.hidden | {"form": person.hidden["form"], "do": "search", "text": "x"}
    assert other.browser.send("/e/1", foreign).status == 403
    without = {name: value for name, value in other.hidden.items() if name != "form"}
    assert other.browser.send("/e/1", without | {"do": "search", "text": "x"}).status == 403
    assert served.browser("wide one", pool="wide").get("/e/1").status == 404
    assert steps_of(served, "Thief") == steps_of(served, "Owner") == []
    assert person.browser.send("/e/1", {"text": "x" * 300_000}).status == 413


# --- Leases, links, limits ---


def test_no_lease_or_link_that_expires_loses_a_step(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = at_hill(served, "Slow")
        clock.time += 31 * 60
        other = at_hill(served, "Quick")
        other.quote("burned down")
        other.press("End: Answer")
        other.answer("It burned down [1].")
        page = person.browser.get("/e/1")
        assert "The ◆ lighthouse" in page.text, "who was at work goes on, and is not sent away"
        person.page = page
        person.quote("Anna Vell")
        person.press("End: Answer")
        clock.time += 3600
        late = person.answer("Anna Vell [1].")
        assert late.status == 403
        assert "What you wrote was saved" in late.text
        again = Demonstrator(served, "Slow")
        assert "This is what you had written" in again.page.text
        assert again.page.elements.form["answer"] == "Anna Vell [1]."
        assert "Nothing is left" in again.answer("Anna Vell [1].").text
        with study.store.reading() as connection:
            assert connection.execute(sa.select(items.c.load)).scalar_one() == 2
            assert connection.execute(sa.select(sa.func.count(ratings.c.id))).scalar_one() == 2
    assert len(export(tmp_path / "study", "demonstration", tmp_path / "e.jsonl")) == 1, (
        "one was wanted"
    )
    study.store.close()


def test_a_form_of_a_link_that_was_replaced_does_nothing_and_loses_nothing(
    tmp_path: pathlib.Path,
) -> None:
    study = study_of(tmp_path)
    with serve(study) as served:
        person = at_hill(served, "Renewed")

        def replace_link(*, opened: bool = True) -> None:
            add_rater(study.store, "Renewed", "super", new_link=True)
            if opened:
                assert person.browser.get(served.link("Renewed")).status == 200

        replace_link()
        again = person.quote("burned down")
        assert "link was replaced" in again.text
        assert again.elements.form["text"] == "burned down"
        assert steps_of(served, "Renewed") == ["Search lighthouse", "Clicked on link 0"]
        person.quote("burned down")
        person.press("End: Answer")
        replace_link(opened=False)
        assert (
            "It burned down [1]."
            in person.browser.send("/e/1", person.hidden | {"answer": "It burned down [1]."}).text
        )
        replace_link()
        again = person.answer("It burned down [1].")
        assert again.elements.form["answer"] == "It burned down [1]."
        assert "Nothing is left" in person.answer("It burned down [1].").text
        assert len(steps_of(served, "Renewed")) == 5
    study.store.close()


def test_each_step_renews_the_lease(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = Demonstrator(served, "Steady")
        clock.time += 29 * 60
        person.search("lighthouse")
        with study.store.reading() as connection:
            expires = connection.execute(sa.select(leases.c.expires_at)).scalar_one()
        assert expires == clock.time + 30 * 60
        person.browser.send("/e/1", person.hidden | {"do": "search", "text": " "})
        clock.time += 29 * 60
        form = person.hidden | {"do": "Clicked on link 0"}
        person.browser.client.post("/e/1", data=form, follow_redirects=False)
        with study.store.reading() as connection:
            again = connection.execute(sa.select(leases.c.expires_at)).scalar_one()
        assert again == clock.time + 30 * 60, "by the step itself, not by the page behind it"
    study.store.close()


def test_skipping_and_saving(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path, question("q0", "One?"), question("q1", "Two?")).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = at_hill(served, "Skipper")
        begun = "One?" if "One?" in person.page.text else "Two?"
        old = person.hidden
        skipped = person.send(action="skip")
        assert begun not in skipped.text
        assert "No page is open" in skipped.text
        other = at_hill(served, "Second")
        assert begun in other.page.text, "somebody else has it"
        again = person.browser.send("/e/1", old | {"action": "skip"})
        assert again.status == 200, "a form that is sent twice does nothing"
        assert begun not in again.text
        other.quote("burned down")
        other.press("End: Answer")
        saved = other.browser.send("/e/1", other.hidden | {"answer": "A dr", "action": "save"})
        assert saved.elements.form["answer"] == "A dr"
        draft = other.hidden | {"answer": "A draft"}
        assert other.browser.send("/e/1/draft", draft).source == '{"saved":true}'
        assert other.browser.get("/e/1").elements.form["answer"] == "A draft"
        clock.time += 31 * 60
        third = Demonstrator(served, "Third")
        assert begun in third.page.text
        taken = other.browser.send("/e/1", other.hidden | {"action": "skip"})
        assert begun not in taken.text, "skipped, though others have it"
        assert begun not in other.browser.get("/e/1").text
    study.store.close()


def test_browsing_ends_with_the_actions_and_the_characters(tmp_path: pathlib.Path) -> None:
    rules = ("--browser", "actions=3", "--browser", "reference_characters=40")
    study = study_of(tmp_path, more=(*rules, "--set", "raters=9"))
    with serve(study) as served:
        empty = at_hill(served, "empty")
        assert "Nothing is left" in empty.find("town").text, "no quote, and so no answer"
        full = at_hill(served, "full")
        assert "have used all your actions" in full.quote("burned down").text
        assert "Nothing is left" in full.answer("It burned down [1].").text
        much = at_hill(served, "much")
        told = much.quote("The lighthouse was built in 1874 by Anna")
        assert "as much as is allowed" in told.text
        long = at_hill(served, "long")
        assert "can be quoted" in long.quote(LIGHTHOUSE).text
    ended = [each.end.end for each in export(study.folder, "demonstration", tmp_path / "e.jsonl")]
    assert sorted(map(str, ended)) == ["actions", "actions"]
    study.store.close()


# --- Strangers ---


def test_nothing_of_strangers_runs(tmp_path: pathlib.Path) -> None:
    """Pages, titles, addresses, queries, questions, quotes, past actions, answers."""
    index = tmp_path / "index.db"
    text = f"Before {EVIL} after.\n{EVIL}"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document(f"d {EVIL}", f"T {EVIL}", text, f"http://x.example/{EVIL}")])
    line = write(tmp_path / "q.jsonl", question(f"q {EVIL}", f"Q {EVIL}?"))
    options = ["--form", "demonstration", "--index", str(index), "--experiment", "E <img src=x>"]
    options += ["--browser", "censored_words=0"]
    assert cli.main(["rate", "new", str(tmp_path / "study"), line, *options]) == 0
    with serve(Study(tmp_path / "study")) as served:
        person = Demonstrator(served, "victim")
        pages = [person.page, person.search(f"before {EVIL}")]
        assert "<script>alert(1)</script>" in person.page.elements.text
        pages += [person.press("Clicked on link 0"), person.find(f"Before {EVIL[:300]}")]
        pages += [person.quote(f"no {EVIL}"), person.quote("Before", "after.")]
        assert len(steps_of(served, "victim")) == 4
        pages += [person.press("End: Answer"), person.answer(f"{EVIL} [7]")]
        pages += [person.browser.get("/"), person.browser.get("/e/1/instructions")]
        assert "<script>alert(1)</script>" in pages[-3].elements.form["answer"]
        for page in pages:
            assert_harmless(page)
        assert "Nothing is left" in person.answer(f"{EVIL} [1]").text


def test_no_click_reaches_a_network(tmp_path: pathlib.Path) -> None:
    """Links of recorded and indexed pages lead to what is there, and to nothing else."""
    reached = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def listen() -> None:
            try:
                listening.accept()[0].close()
                reached.set()
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        inside = f"http://127.0.0.1:{port}/latest/meta-data"
        trap = page("http://trap.example/", "Trap", "Go inside now.", {"inside": inside})
        engine = ListedResults({"trap": [Hit("http://trap.example/", "Trap", "")]})
        with Recorder(SiteWorld("trap", [trap], engine), tmp_path / "world") as recorder:
            recorder.search("trap", 10)
            recorder.open("http://trap.example/")
        study = study_of(tmp_path)
        with serve(study) as served:
            person = Demonstrator(served, "curious")
            person.search("trap")
            person.press("Clicked on link 0")
            assert "This page can't be shown" in person.press("Clicked on link 0").text
        assert not reached.is_set()
        study.store.close()


def test_the_live_web_is_asked_only_by_studies_that_say_so_and_never_for_private_pages(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Says
) -> None:
    """A search engine on this machine may be asked; a page there, which is not public, may not."""
    file = write(tmp_path / "q.jsonl", question())
    options = ["--form", "demonstration", "--engine", "searxng"]
    monkeypatch.delenv("SEARXNG_URL", raising=False)
    study = str(tmp_path / "study")
    assert cli.main(["rate", "new", study, file, *options]) == 1
    assert "SEARXNG_URL" in capsys.readouterr().err
    with serving() as web:
        monkeypatch.setenv("SEARXNG_URL", web.base)
        hit = {"url": f"{web.base}/secret", "title": "Inside", "content": "Keys."}
        web.answers["/search"] = answer(json.dumps({"results": [hit]}))
        web.answers["/secret"] = answer("<p>The keys of the kingdom.", type="text/html")
        assert cli.main(["rate", "new", study, file, *options]) == 0
        with serve(Study(study)) as served:
            person = Demonstrator(served, "attacker")
            assert "Inside" in person.search("inside").text
            opened = person.press("Clicked on link 0")
            assert "This page can't be shown" in opened.text
            assert "kingdom" not in opened.source
            assert "no source that could be quoted" in opened.text
        assert {request.partition("?")[0] for request in web.requests} == {"/search"}
    assert (tmp_path / "study/worlds/1/searches.jsonl").read_text().count("Inside") == 1


def test_an_episode_on_postgresql(tmp_path: pathlib.Path) -> None:
    with postgresql() as url:
        study = study_of(tmp_path, more=("--database", url))
        with serve(study) as served:
            person = at_hill(served, "Ada")
            twice = person.hidden | {"do": "quote", "text": "burned down"}
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: person.browser.send("/e/1", twice), range(4)))
            person.page = person.browser.get("/e/1")
            person.press("End: Answer")
            assert "Nothing is left" in person.answer("It burned down [1].").text
        (episode,) = export(study.folder, "demonstration", tmp_path / "e.jsonl")
        assert len(episode.steps) == 5
        study.store.close()


def test_a_world_that_is_gone_is_no_rater_s_fault(tmp_path: pathlib.Path) -> None:
    study = study_of(tmp_path)
    (tmp_path / "world").rename(tmp_path / "moved")
    with serve(study) as served:
        person = Demonstrator(served, "patient")
        gone = person.search("lighthouse")
        assert gone.status == 503
        assert "What you did before is kept" in gone.text
        assert str(tmp_path) not in gone.source
        with study.store.reading() as connection:
            query = sa.select(audit.c.action).where(audit.c.action == "world-unreadable")
            assert connection.execute(query).scalar() == "world-unreadable"
        (tmp_path / "moved").rename(tmp_path / "world")
        person.page = person.browser.get("/e/1")
        assert person.search("lighthouse").status == 200
        person.press("Clicked on link 0")
        person.quote("burned down")
        person.press("End: Answer")
    (tmp_path / "world").rename(tmp_path / "moved")
    with serve(study) as served:
        person.browser.client.base_url = served.url
        assert "Nothing is left" in person.answer("It burned down [1].").text, "no page is needed"
    study.store.close()

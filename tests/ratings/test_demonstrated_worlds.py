"""Worlds that are demonstrated in: an index, kills of the server, and the command's errors."""

import concurrent.futures
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest
import sqlalchemy as sa
from browser.sites import HILL, LIGHTHOUSE

from gophercite import cli
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings as BrowserSettings
from gophercite.documents import Document
from gophercite.ratings.browsed_worlds import WAITING, WEB, BrowsedWorld, BusyError, Environment
from gophercite.ratings.schema import episode_steps
from gophercite.ratings.study import Study
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.browsing import (
    Demonstrator,
    export,
    is_replayed,
    question,
    recorded,
    study_of,
    write,
)
from tests.ratings.served import Browser, serve

Says = pytest.CaptureFixture[str]


def test_what_was_browsed_of_an_index_is_a_recorded_world(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    index = tmp_path / "index.db"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document("light", "Lighthouse", "The lighthouse was built in 1874.")])
    lines = [question("q0"), question("q1", "When was the lighthouse built?")]
    file = write(tmp_path / "q.jsonl", *lines)
    options = ["--form", "demonstration", "--index", str(index), "--experiment", "notes"]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, *options]) == 0
    for _ in range(2):  # two servers, one after the other, write into the same recording
        with serve(Study(tmp_path / "study")) as served:
            person = Demonstrator(served, "indexed")
            person.search("lighthouse")
            person.press("Clicked on link 0")
            person.quote("built in 1874")
            person.press("End: Answer")
            person.answer("In 1874 [1].")
    index.unlink()
    out = tmp_path / "episodes.jsonl"
    episodes = export(tmp_path / "study", "notes", out)
    said = capsys.readouterr().out
    world = tmp_path / "study" / "worlds" / "1"
    assert f"their world: {world}" in said
    with RecordedWorld(world) as opened_world:
        assert opened_world.name == "notes" == episodes[0].world
        assert all(is_replayed(opened_world, each) for each in episodes)
        assert len(episodes) == 2


def test_a_server_does_not_start_without_its_worlds(tmp_path: pathlib.Path, capsys: Says) -> None:
    study_of(tmp_path).store.close()
    (tmp_path / "world").rename(tmp_path / "moved")
    assert cli.main(["rate", "serve", str(tmp_path / "study"), "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert "experiment 'demonstration'" in said
    assert str(tmp_path / "world") in said


def test_a_second_server_does_not_write_into_the_recording(tmp_path: pathlib.Path) -> None:
    index = tmp_path / "index.db"
    with DocumentIndex(index, write=True) as opened:
        opened.add([Document("light", "Lighthouse", "The lighthouse was built in 1874.")])
    file = write(tmp_path / "q.jsonl", question())
    options = ["--form", "demonstration", "--index", str(index)]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, *options]) == 0
    with serve(Study(tmp_path / "study")) as one, serve(Study(tmp_path / "study")) as two:
        assert Demonstrator(one, "Ada").search("lighthouse").status == 200
        assert two.browser("Ada").get("/e/1").status == 503


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes, which end with the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_each_step_that_was_answered_survives_a_kill(
    tmp_path: pathlib.Path, started: list[subprocess.Popen[str]]
) -> None:
    """A server process that is killed after every other answer, and in the middle of one."""
    study_of(tmp_path, more=("--browser", "view_lines=20")).store.close()
    program = [sys.executable, "-m", "gophercite", "rate", "serve", "study", "--invite", "me"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [*program, "--port", str(port)]
        server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        link = server.stdout.readline().split()[1]
        assert "serving" in server.stdout.readline()
        return server, link

    server, link = start()
    browser = Browser(f"http://127.0.0.1:{port}")
    patient = httpx.HTTPTransport(retries=12)  # until a server that was started listens
    browser.client = httpx.Client(
        base_url=browser.client.base_url, follow_redirects=True, transport=patient, timeout=30
    )
    browser.get(link.removeprefix(f"http://127.0.0.1:{port}"))
    person = Demonstrator.__new__(Demonstrator)
    person.browser, person.here, person.page = browser, "/e/1", browser.get("/e/1")
    done: list[str] = []
    for commands in (
        ("Search lighthouse", "Clicked on link 2"),
        ("Scrolled down 2", "Quote: Line 41"),
    ):
        for command in commands:
            person.follow(command)
            done.append(command)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server, _ = start()
        person.page = browser.get("/e/1")
        rows = _standing(tmp_path)
        assert rows == done
    form = person.hidden | {"do": "End: Answer"}
    browser.send("/e/1", form)
    server.send_signal(signal.SIGKILL)
    server.wait()
    server, _ = start()
    again = browser.send("/e/1", form)  # as a person would who saw no answer
    assert "Write your answer" in again.text
    person.page = again
    assert "Nothing is left" in person.answer("It is line 41 [1].").text
    (episode,) = export(tmp_path / "study", "demonstration", tmp_path / "e.jsonl")
    assert [each.action for each in episode.steps[:-2]] == done
    with RecordedWorld(tmp_path / "world") as world:
        assert is_replayed(world, episode)


def _standing(folder: pathlib.Path) -> list[str]:
    study = Study(folder / "study")
    with study.store.reading() as connection:
        query = sa.select(episode_steps.c.text, episode_steps.c.merges)
        rows = connection.execute(query.order_by(episode_steps.c.number)).all()[1:]
    study.store.close()
    standing: list[str] = []
    for row in rows:
        if row.merges:
            standing.pop()
        standing.append(row.text)
    return standing


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--form", "demonstration"), "needs --world, --index or --engine"),
        (("--world", "WORLD"), "--world is for --form demonstration"),
        (("--browser", "actions=3"), "--browser is for --form demonstration"),
        (("--form", "demonstration", "--world", "absent"), "absent"),
        (("--form", "demonstration", "--world", "."), "world.json"),
        (("--form", "demonstration", "--index", "absent.db"), "absent.db"),
        (("--form", "demonstration", "--world", "WORLD", "--gold", "x"), "--gold is not for"),
        (
            ("--form", "demonstration", "--world", "WORLD", "--browser", "action=3"),
            "did you mean 'actions'",
        ),
        (
            ("--form", "demonstration", "--world", "WORLD", "--browser", "actions=0"),
            "must be a number, at least 1, or a range",
        ),
        (("--form", "demonstration", "--world", "WORLD", "--browser", "actions"), "NAME=VALUE"),
    ],
)
def test_errors_are_for_people(
    tmp_path: pathlib.Path,
    capsys: Says,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    world = recorded(tmp_path / "world")
    file = write(tmp_path / "q.jsonl", question())
    monkeypatch.chdir(tmp_path)
    words = [world if each == "WORLD" else each for each in arguments]
    assert cli.main(["rate", "new", "study", file, *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gophercite rate: ")
    assert said in error
    assert not (tmp_path / "study").exists()


def test_bad_questions_are_named_and_episodes_are_nobody_s_votes(
    tmp_path: pathlib.Path, capsys: Says
) -> None:
    world = recorded(tmp_path / "world")
    file = write(tmp_path / "q.jsonl", question(), {"id": "x"}, question("q1", "Why?"))
    twice = write(tmp_path / "r.jsonl", question("q1", "Why?"))
    options = ["--form", "demonstration", "--world", world]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, twice, *options]) == 1
    said = capsys.readouterr()
    assert "with 2 items" in said.out
    assert "q.jsonl:2" in said.err
    assert "id of a question in another file" in said.err
    study = str(tmp_path / "study")
    votes = tmp_path / "v.csv"
    votes.write_text("item,rater,answer\nq0,ada,yes\n")
    assert cli.main(["rate", "import", study, "demonstration", str(votes)]) == 1
    assert cli.main(["rate", "adjudicate", study, "demonstration", "new"]) == 1
    out = str(tmp_path / "e.jsonl")
    assert cli.main(["rate", "export", study, "demonstration", "episodes", out]) == 1
    assert "2 without a vote that counts" in capsys.readouterr().err
    assert cli.main(["rate", "new", study, "--checks", "none"]) == 0
    assert cli.main(["rate", "export", study, "comparison", "episodes", out]) == 1
    assert "'comparison' has no world to browse" in capsys.readouterr().err
    assert cli.main(["rate", "status", study, "--json"]) == 0
    capsys.readouterr()
    more = write(tmp_path / "s.jsonl", question("q1", "Why?"), question("q2"))
    assert cli.main(["rate", "add", study, "demonstration", more]) == 0
    assert "1 items added to 'demonstration'; 1 were already there" in capsys.readouterr().out
    assert cli.main(["rate", "add", study, "demonstration", more, "--gold", more]) == 1
    assert "--gold is not for" in capsys.readouterr().err


def test_pages_that_say_the_answer_are_censored(tmp_path: pathlib.Path) -> None:
    told = f"It says that {' '.join(LIGHTHOUSE.split()).lower()} And so on."
    study = study_of(tmp_path, question(answers=["short", told]))
    with serve(study) as served:
        person = Demonstrator(served, "cheat")
        person.search("lighthouse")
        person.press("Clicked on link 0")
        assert "word for word" in person.page.text
        assert told not in person.page.source
        assert HILL not in person.page.source
    study.store.close()


def test_a_slow_web_keeps_no_more_than_some_waiting(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else raters who wait for strangers' pages would use up what answers all others."""
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:1")
    environment = Environment(WEB, "searxng", "web", BrowserSettings())
    world, slow = BrowsedWorld(environment, tmp_path / "worlds/1"), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(WAITING) as pool:
        waiting = [pool.submit(world.ask, lambda _: slow.wait()) for _ in range(WAITING)]
        late = threading.Timer(20, slow.set)  # so that nobody waits for ever where none is refused
        late.start()
        while world.waiting < WAITING:
            slow.wait(0.001)
        with pytest.raises(BusyError):
            world.ask(lambda _: None)
        late.cancel()
        slow.set()
        assert all(each.result() for each in waiting)
    assert world.ask(lambda opened: opened.name) == "web"
    world.close()

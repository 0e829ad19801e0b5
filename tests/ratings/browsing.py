"""A small web for demonstrators, and a person without scripts who browses it by a real server."""

import contextlib
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from browser.sites import site

from gophercite import cli
from gophercite.browser.episodes import Episode, episode_to_json, read_episodes, replayed
from gophercite.browser.recorded import Recorder
from gophercite.browser.worlds import World
from gophercite.ratings.schema import episode_steps
from gophercite.ratings.study import Study
from tests.ratings.served import Browser, Page, Served, serve

QUESTION = "Who built the lighthouse?"


def write(path: pathlib.Path, *lines: Any) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def question(name: str = "q0", text: str = QUESTION, **more: Any) -> dict[str, Any]:
    return {"id": name, "question": text, "source": "mine", "documents": [], **more}


def recorded(folder: pathlib.Path) -> str:
    """The site of the browser's tests as a recorded world: its pages and one search."""
    world = site()
    with Recorder(world, folder, "site") as recorder:
        for hit in recorder.search("lighthouse", 10):
            recorder.open(hit.url)
    return str(folder)


def study_of(folder: pathlib.Path, *lines: Any, more: tuple[str, ...] = ()) -> Study:
    """A study whose raters demonstrate in that world."""
    questions = write(folder / "questions.jsonl", *(lines or (question(),)))
    world = recorded(folder / "world") if not (folder / "world").exists() else folder / "world"
    options = ["--form", "demonstration", "--world", str(world), *more]
    assert cli.main(["rate", "new", str(folder / "study"), questions, *options]) == 0
    return Study(folder / "study")


class Demonstrator:
    """Somebody who browses; what they press must be on the page, and not disabled."""

    def __init__(self, served: Served, name: str, here: str = "/e/1") -> None:
        self.browser: Browser = served.browser(name)
        self.here = here
        self.page: Page = self.browser.get(here)

    @property
    def hidden(self) -> dict[str, str]:
        return {name: self.page.form[name] for name in ("form", "ticket", "version")}

    @property
    def version(self) -> int:
        return int(self.page.form["version"])

    def send(self, **fields: str) -> Page:
        self.page = self.browser.send(self.here, self.hidden | fields)
        return self.page

    def can(self, command: str) -> bool:
        return any(
            tag == "button" and found.get("value") == command and "disabled" not in found
            for tag, found in self.page.elements.elements
        )

    def press(self, command: str) -> Page:
        assert self.can(command), f"{command!r} can't be pressed: {self.page.text}"
        return self.send(do=command)

    def search(self, query: str) -> Page:
        return self.send(do="search", text=query)

    def find(self, text: str) -> Page:
        return self.send(do="find", text=text)

    def quote(self, text: str, until: str = "") -> Page:
        return self.send(do="quote", text=text, until=until)

    def answer(self, text: str) -> Page:
        assert "Write your answer" in self.page.text
        return self.send(answer=text)

    def follow(self, command: str) -> None:
        """Does what a command says as a person does it."""
        name, _, text = command.partition(" ")
        if name == "Search":
            self.search(text)
        elif command.startswith("Find in page: "):
            self.find(command.removeprefix("Find in page: "))
        elif name == "Quote:":
            self.quote(*text.split("━"))
        elif scroll := re.fullmatch(r"(Scrolled (?:up|down)) ([123])", command):
            for _ in range(int(scroll[2])):
                self.press(f"{scroll[1]} 1")
        else:
            self.press(command)
        assert self.page.status == 200, (command, self.page.text)


@contextlib.contextmanager
def served_site(folder: pathlib.Path) -> Iterator[Served]:
    """A question for everybody, thirty actions, and screens of twenty lines."""
    more = ("--set", "raters=999", "--browser", "view_lines=20", "--browser", "actions=30")
    study = study_of(folder, more=more)
    with serve(study) as served:
        yield served
    study.store.close()


def steps_of(served: Served, name: str) -> list[str]:
    """The rows of a rater, in their order."""
    with served.study.store.reading() as connection:
        query = (
            sa.select(episode_steps.c.text)
            .join(sa.text("raters"), sa.text("raters.id = episode_steps.rater_id"))
            .where(sa.text("raters.name = :name").bindparams(name=name))
            .order_by(episode_steps.c.number)
        )
        return list(connection.execute(query).scalars())[1:]


def export(study: pathlib.Path, experiment: str, out: pathlib.Path) -> list[Episode]:
    assert cli.main(["rate", "export", str(study), experiment, "episodes", str(out)]) == 0
    assert cli.main(["validate", str(out), "--kind", "episodes"]) == 0
    return list(read_episodes(out, strict=True))


def is_replayed(world: World, episode: Episode) -> bool:
    """Whether an episode goes in a world as its record says, step by step."""
    return episode_to_json(replayed(world, episode)) == episode_to_json(episode)


def at_hill(served: Served, name: str) -> Demonstrator:
    person = Demonstrator(served, name)
    person.search("lighthouse")
    person.press("Clicked on link 0")
    return person

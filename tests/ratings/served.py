"""A real server on loopback, and a browser without scripts that reads its forms."""

import contextlib
import dataclasses
import html.parser
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx

from gophercite.rating_site.app import server
from gophercite.rating_site.security import Signer
from gophercite.rating_site.site import Options
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.study import Study


class Elements(html.parser.HTMLParser):
    """The elements of a page, its text, and what its form would send."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.marked = ""
        self.form: dict[str, str] = {}
        self.names: set[str] = set()
        self._open: list[str] = []
        self._area: str | None = None
        self._select: str | None = None
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        self._open.append(tag)
        name, value = found.get("name"), found.get("value") or ""
        if tag == "input" and name:
            self.names.add(name)
            if found.get("type") != "radio" or "checked" in found:
                self.form[name] = value
        elif tag == "textarea" and name:
            self.names.add(name)
            self._area = name
            self.form[name] = ""
        elif tag == "select" and name:
            self.names.add(name)
            self._select = name
        elif tag == "option" and self._select and "selected" in found:
            self.form[self._select] = value

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._area:
            self.form[self._area] += data
        if "mark" in self._open:
            self.marked += data


@dataclasses.dataclass(frozen=True)
class Page:
    """What a server answered."""

    status: int
    source: str
    headers: httpx.Headers
    elements: Elements

    @property
    def text(self) -> str:
        return " ".join(self.elements.text.split())

    @property
    def form(self) -> dict[str, str]:
        return dict(self.elements.form)

    def has(self, tag: str, **attributes: str) -> bool:
        return any(
            tag == other and attributes.items() <= found.items()
            for other, found in self.elements.elements
        )


class Browser:
    """A visitor with cookies, who follows redirects and runs no scripts."""

    def __init__(self, url: str) -> None:
        # Without certificates, which take longer to read than a page does.
        self.client = httpx.Client(
            base_url=url, follow_redirects=True, timeout=30, trust_env=False, verify=False
        )

    def get(self, path: str) -> Page:
        return _page(self.client.get(path))

    def send(self, path: str, form: dict[str, str], **headers: str) -> Page:
        return _page(self.client.post(path, data=form, headers=headers))


def _page(answer: httpx.Response) -> Page:
    is_html = answer.headers.get("content-type", "").startswith("text/html")
    source = answer.text if is_html else ""
    return Page(answer.status_code, answer.text, answer.headers, Elements(source))


@dataclasses.dataclass
class Served:
    """A study that is served."""

    study: Study
    url: str

    def link(self, name: str, pool: str = "super", seconds: float = 3600) -> str:
        rater = add_rater(self.study.store, name, pool)
        token = Signer(self.study.secret).link(
            rater.id, rater.link_version, self.study.store.now() + seconds
        )
        return f"/r/{token}"

    def browser(self, name: str | None = None, pool: str = "super") -> Browser:
        browser = Browser(self.url)
        if name is not None:
            assert browser.get(self.link(name, pool)).status == 200
        return browser


@contextlib.contextmanager
def serve(study: Study, *, seconds_for_headers: float = 20.0, **guards: Any) -> Iterator[Served]:
    """Serves a study in a thread."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    options = Options(**{"requests_a_minute": 100_000, **guards})
    running = server(study, "127.0.0.1", port, options, seconds_for_headers)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        yield Served(study, f"http://127.0.0.1:{port}")
    finally:
        running.should_exit = True
        thread.join()
        listening.close()


def study_in(folder: pathlib.Path, clock: Any = time.time) -> Study:
    return Study.create(folder / "study", clock=clock)

"""Where demonstrators browse: the world of an experiment, and the thread in which it runs.

Every episode can be replayed. A recorded world is read as it is. If raters browse an index or the
web, all that they see is recorded in the study's folder.
"""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa

from gophercite.browser.document_worlds import IndexWorld
from gophercite.browser.live import LiveWorld
from gophercite.browser.recorded import RecordedWorld, Recorder
from gophercite.browser.settings import Settings as BrowserSettings
from gophercite.browser.state import settings_from_json
from gophercite.browser.worlds import World
from gophercite.extraction.extractor import Extractor
from gophercite.ratings.experiments import Experiment
from gophercite.ratings.schema import environments
from gophercite.ratings.store import StudyError
from gophercite.retrieval.apis import api_from_environment
from gophercite.retrieval.engine import SearchError
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.web import WebEngine, WebSettings
from gophercite.storage.json_fields import RecordError

T = TypeVar("T")

RECORDED, INDEX, WEB = "recorded", "index", "web"
WAITING = 8  # maximum number of requests that wait for the web; other worlds have no limit
_DAMAGE = (RecordError, SearchError, OSError)  # errors of opening and reading a world


class BusyError(Exception):
    """Too many requests are already waiting for a page of the web."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """Where an experiment's raters browse, and with which settings.

    Attributes:
      kind: `RECORDED`, `INDEX` or `WEB`. Only `WEB` ever uses the network.
      place: the folder, the index file, or the name of the search engine.
      name: the world's name in records of episodes.
      settings: the browser's settings.
    """

    kind: str
    place: str
    name: str
    settings: BrowserSettings

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON to store."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Environment":
        """Restores an environment from its stored JSON."""
        return cls(**{**value, "settings": settings_from_json(value["settings"])})

    def folder(self, study: pathlib.Path, experiment: Experiment) -> pathlib.Path:
        """The recorded world in which the experiment's episodes can be replayed."""
        recording = study / "worlds" / str(experiment.id)
        return pathlib.Path(self.place) if self.kind == RECORDED else recording


def keep_environment(
    connection: sa.Connection, experiment: Experiment, environment: Environment
) -> None:
    """Stores where the raters of a new experiment browse."""
    row = {"experiment_id": experiment.id, "content": environment.to_json()}
    connection.execute(environments.insert(), row)


def environment_of(connection: sa.Connection, experiment: Experiment) -> Environment:
    """Returns where an experiment's raters browse.

    Raises:
      StudyError: the experiment has no world.
    """
    query = sa.select(environments.c.content).where(environments.c.experiment_id == experiment.id)
    content = connection.execute(query).scalar_one_or_none()
    if content is None:
        raise StudyError(f"experiment {experiment.name!r} has no world to browse")
    return Environment.of(content)


class BrowsedWorld:
    """A world in its own thread, opened on the first request.

    Args:
      environment: the world's description.
      recording: the folder in which new pages are recorded.
    """

    def __init__(self, environment: Environment, recording: pathlib.Path) -> None:
        self._environment, self._recording = environment, recording
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "world")
        self._opened = contextlib.ExitStack()
        self._world: World | None = None
        self._lock = threading.Lock()
        self.waiting = 0  # number of requests that wait for an answer

    def ask(self, call: Callable[[World], T]) -> T:
        """Returns the result of a function of the world; only one runs at a time.

        Raises:
          StudyError: the world can't be opened or read.
          BusyError: so many requests wait for the web that one more would delay other raters.
        """

        def run() -> T:
            try:
                if self._world is None:
                    with contextlib.ExitStack() as stack:
                        world = self._open(stack)
                        self._opened, self._world = stack.pop_all(), world
                return call(self._world)
            except _DAMAGE as error:
                raise StudyError(f"the world {self._environment.name!r}: {error}") from error

        with self._lock:
            if self._environment.kind == WEB and self.waiting >= WAITING:
                raise BusyError
            self.waiting += 1
        try:
            return self._thread.submit(run).result()
        finally:
            with self._lock:
                self.waiting -= 1

    def close(self) -> None:
        """Closes the world."""
        self._thread.submit(self._opened.close).result()
        self._thread.shutdown()

    def _open(self, stack: contextlib.ExitStack) -> World:
        kind, place, name = (
            self._environment.kind,
            self._environment.place,
            self._environment.name,
        )
        if kind == RECORDED:
            return stack.enter_context(RecordedWorld(place))
        self._recording.parent.mkdir(mode=0o700, exist_ok=True)
        # Two servers would mix their lines in one file.
        lock = stack.enter_context(self._recording.with_suffix(".lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(f"the world {name!r}: another server records it already") from None
        inner: World
        if kind == INDEX:
            inner = IndexWorld(stack.enter_context(DocumentIndex(place)), name)
        else:
            engine = stack.enter_context(WebEngine(api_from_environment(place), WebSettings()))
            extractor = stack.enter_context(Extractor("browser"))
            # With default settings, addresses that are not public are refused.
            inner = stack.enter_context(LiveWorld(engine, extractor, name=name))
        return stack.enter_context(Recorder(inner, self._recording, name))


class BrowsedWorlds:
    """The worlds of a study's experiments, each opened once.

    Args:
      folder: the study's folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._worlds: dict[int, BrowsedWorld] = {}
        self._lock = threading.Lock()

    def of(self, experiment: Experiment, environment: Environment) -> BrowsedWorld:
        """Returns the world of an experiment."""
        with self._lock:
            if experiment.id not in self._worlds:
                recording = environment.folder(self._folder, experiment)
                self._worlds[experiment.id] = BrowsedWorld(environment, recording)
            return self._worlds[experiment.id]

    def close(self) -> None:
        """Closes all worlds that were opened."""
        with self._lock:
            while self._worlds:
                self._worlds.popitem()[1].close()

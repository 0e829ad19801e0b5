"""What demonstrators browse, from the flags of `gophercite rate new`."""

import argparse
import json
import os
import pathlib
from typing import Any

from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browser.state import settings_from_json
from gophercite.cli.output import RefusedError
from gophercite.ratings.browsed_worlds import (
    INDEX,
    RECORDED,
    WEB,
    Environment,
    environment_of,
)
from gophercite.ratings.experiments import experiments
from gophercite.ratings.forms import DEMONSTRATION
from gophercite.ratings.study import Study
from gophercite.retrieval.apis import api_from_environment
from gophercite.retrieval.engine import SearchError
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.storage.json_fields import nearest

_OF_RATINGS = ("gold", "checks", "examples", "screening", "documents", "questions")


def environment_from(options: argparse.Namespace, name: str) -> Environment | None:
    """Returns where raters browse, after checking that it exists; None for other forms.

    Args:
      options: options of `gophercite rate new`.
      name: the experiment's name.

    Raises:
      RefusedError: flags are missing, or belong to other forms; an index can't be opened.
      RecordError, FileNotFoundError: there is no such world.
    """
    worlds = {"--world": options.world, "--index": options.index, "--engine": options.engine}
    given = [flag for flag, value in worlds.items() if value is not None]
    if options.form != DEMONSTRATION:
        if given or options.browser_settings:
            flag = (given or ["--browser"])[0]
            raise RefusedError(f"{flag} is for --form {DEMONSTRATION}")
        return None
    refuse_flags_of_ratings(options)
    settings = _settings(options.browser_settings)
    if options.world is not None:
        with RecordedWorld(options.world) as world:
            return Environment(RECORDED, _lasting(options.world), world.name, settings)
    if options.index is not None:
        try:
            with DocumentIndex(options.index) as index:
                if not len(index):
                    raise RefusedError(f"{options.index}: holds no documents")
        except IndexFileError as error:
            raise RefusedError(str(error)) from error
        return Environment(INDEX, _lasting(options.index), name, settings)
    if options.engine is not None:
        _check_engine(options.engine)
        return Environment(WEB, options.engine, name, settings)
    raise RefusedError(f"--form {DEMONSTRATION} needs --world, --index or --engine")


def refuse_flags_of_ratings(options: argparse.Namespace) -> None:
    """Refuses flags that have no meaning for demonstrations.

    Raises:
      RefusedError: one of them is given.
    """
    for flag in _OF_RATINGS:
        if getattr(options, flag, None):
            raise RefusedError(f"--{flag} is not for --form {DEMONSTRATION}")


def check_worlds(study: Study) -> None:
    """Checks that the demonstrators' worlds still exist, before a server starts.

    Raises:
      RefusedError: something is missing; the message names the experiment.
    """
    with study.store.reading() as connection:
        browsed = [each for each in experiments(connection) if each.interface == DEMONSTRATION]
        worlds = [(each.name, environment_of(connection, each)) for each in browsed]
    for name, world in worlds:
        if world.kind == WEB:
            _check_engine(world.place)
        elif "://" not in world.place and not os.path.exists(world.place):
            raise RefusedError(f"{world.place}: is missing, but experiment {name!r} browses it")


def _check_engine(name: str) -> None:
    try:
        api_from_environment(name)
    except SearchError as error:
        raise RefusedError(f"--engine {name}: {error}") from error


def _settings(given: list[str]) -> Settings:
    values: dict[str, Any] = {}
    known = list(Settings.__dataclass_fields__)
    for setting in given:
        name, equals, text = setting.partition("=")
        if not equals:
            raise RefusedError(f"--browser {setting}: expected NAME=VALUE")
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
            raise RefusedError(f"--browser {setting}: {name!r} is unknown; {hint}")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return settings_from_json(values)


def _lasting(path: str) -> str:
    """A path that is valid wherever the server is started; bucket addresses stay unchanged."""
    return path if "://" in path else str(pathlib.Path(os.path.abspath(path)))

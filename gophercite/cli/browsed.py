"""What demonstrators browse, by the flags of `gophercite rate new`."""

import argparse
import json
import os
import pathlib
from typing import Any

from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browser.state import settings_from_json
from gophercite.cli.output import RefusedError
from gophercite.ratings.browsed_worlds import INDEX, RECORDED, WEB, Environment
from gophercite.ratings.forms import DEMONSTRATION
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.storage.json_fields import nearest

_OF_RATINGS = ("gold", "checks", "examples", "screening", "documents", "questions")


def environment_from(options: argparse.Namespace, name: str) -> Environment | None:
    """Returns where raters are to browse, once it is seen to be there; None for other forms.

    Args:
      options: of `gophercite rate new`.
      name: of the experiment.

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
    for flag in _OF_RATINGS:
        if getattr(options, flag):
            raise RefusedError(f"--{flag} is not for --form {DEMONSTRATION}")
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
        return Environment(WEB, options.engine, name, settings)
    raise RefusedError(f"--form {DEMONSTRATION} needs --world, --index or --engine")


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
    """A path that is right wherever the server is started; addresses of buckets stay."""
    return path if "://" in path else str(pathlib.Path(os.path.abspath(path)))

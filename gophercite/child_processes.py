"""Starts Python child processes that run this package, and nothing from the current directory.

Python looks for modules in the current directory first (`python -m`, `python -c`, an empty entry of
PYTHONPATH). A user may work in a folder of downloads, and a `json.py` there would run. So a child
starts in isolated mode at the root of the file system, and finds modules where its parent did,
except in the parent's current directory.
"""

import contextlib
import json
import os
import pathlib
import site
import sys
import sysconfig

import gophercite

# The child's first code. Isolated mode leaves only the standard library and the interpreter's own
# packages; the parent's package is loaded from its file, wherever that is.
_START = """
import importlib.util, json, sys
path, package, module, arguments = json.loads(sys.argv[1])
sys.path[:] = path
spec = importlib.util.spec_from_file_location(
    "gophercite", package + "/__init__.py", submodule_search_locations=[package]
)
sys.modules["gophercite"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["gophercite"])
importlib.import_module(module).main(*arguments)
"""

FOLDER = "/"  # the children's working directory


def python_command(module: str, *arguments: str) -> list[str]:
    """Returns the command that calls a module's `main` in a separate Python process.

    Start it in `FOLDER`. Python's environment variables have no effect on it.

    Args:
      module: a module of this package, such as `gophercite.extraction.extractor`.
      arguments: the arguments of `main`.
    """
    package = str(pathlib.Path(gophercite.__file__).resolve().parent)
    given = json.dumps([_module_path(), package, module, arguments])
    return [sys.executable, "-I", "-c", _START, given]


def environment() -> dict[str, str]:
    """Returns this process's environment for a child that runs a script in the user's directory.

    It removes the entries of PYTHONPATH that mean the current directory: relative ones, and an
    empty one, which `PYTHONPATH=$PYTHONPATH:/somewhere` may leave by accident.
    """
    values = dict(os.environ)
    if "PYTHONPATH" in values:
        entries = values.pop("PYTHONPATH").split(os.pathsep)
        if kept := [entry for entry in entries if os.path.isabs(entry)]:
            values["PYTHONPATH"] = os.pathsep.join(kept)
    return values


def _module_path() -> list[str]:
    """This process's module search path, without relative paths and the current directory."""
    interpreters = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")}
    interpreters |= set(site.getsitepackages())
    return [
        entry
        for entry in sys.path
        if os.path.isabs(entry) and (entry in interpreters or not _is_current_directory(entry))
    ]


def _is_current_directory(folder: str) -> bool:
    with contextlib.suppress(OSError):  # one of them does not exist any more
        return os.path.samefile(folder, os.curdir)
    return False

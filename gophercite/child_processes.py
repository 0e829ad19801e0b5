"""Python processes of our own: they run this very package, and nothing that lies where they start.

Python looks for modules in the current directory first (`python -m`, `python -c`, an empty entry of
PYTHONPATH). Whoever answers from a folder of downloads stands in it, and a `json.py` there would
run. So a child starts isolated, at the root of the file system, and finds modules where its parent
found them, but for the parent's current directory.
"""

import contextlib
import json
import os
import pathlib
import site
import sys
import sysconfig

import gophercite

# What the child runs first. Isolated mode has left it with the standard library and the
# interpreter's own packages; the parent's package is loaded from its file, wherever that lies.
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

FOLDER = "/"  # where children start


def python_command(module: str, *arguments: str) -> list[str]:
    """Returns the command that calls a module's `main` in a Python process of its own.

    Start it in `FOLDER`, with an environment that says nothing to Python (it is not asked).

    Args:
      module: of this package, such as `gophercite.retrieval.extraction`.
      arguments: what `main` is called with.
    """
    package = str(pathlib.Path(gophercite.__file__).resolve().parent)
    given = json.dumps([_module_path(), package, module, arguments])
    return [sys.executable, "-I", "-c", _START, given]


def environment() -> dict[str, str]:
    """Returns this process's environment for a child that runs a script where the user stands.

    PYTHONPATH loses its entries that mean the current directory: an empty one, which
    `PYTHONPATH=$PYTHONPATH:/somewhere` leaves by accident, and relative ones.
    """
    values = dict(os.environ)
    if "PYTHONPATH" in values:
        entries = values.pop("PYTHONPATH").split(os.pathsep)
        if kept := [entry for entry in entries if os.path.isabs(entry)]:
            values["PYTHONPATH"] = os.pathsep.join(kept)
    return values


def _module_path() -> list[str]:
    """Where this process finds modules, without relative places and the current directory."""
    interpreters = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")}
    interpreters |= set(site.getsitepackages())
    return [
        entry
        for entry in sys.path
        if os.path.isabs(entry) and (entry in interpreters or not _is_current_directory(entry))
    ]


def _is_current_directory(folder: str) -> bool:
    with contextlib.suppress(OSError):  # one of them is gone
        return os.path.samefile(folder, os.curdir)
    return False

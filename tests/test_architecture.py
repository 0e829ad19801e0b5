"""The house rules that a program can check: floors, TensorFlow's place, no flags in the library."""

import ast
import functools
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# From the ground up; a room imports only from floors below its own.
FLOORS = (
    ("native", "importing", "interruption", "child_processes"),
    ("documents", "partitioning", "kernels"),
    ("evidence", "storage", "text"),
    ("vocabularies",),
    ("prompts", "records", "html"),
    ("extraction",),
    ("retrieval",),
    ("models", "browser"),
    ("model_folders",),
    ("few_shot", "weights", "quoting"),
    ("commands",),
    ("decoding",),
    ("data_pipelines",),
    ("learning", "answering", "evaluation"),
    ("browsing", "reports"),
    ("monitoring", "ratings"),
    ("training", "rating_site"),
    ("planning",),
    ("cli",),
    ("launch", "__main__"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

TENSORFLOW = {"tensorflow", "tensorflow_datasets", "tensorflow_text", "seqio"}
EDGE = {"gin", "absl", "argparse"}  # configuration and flags belong to launch/ and cli/


def sources(folder: str) -> list[pathlib.Path]:
    return sorted((ROOT / folder).rglob("*.py"))


ALL = [path for folder in ("gophercite", "data_pipelines", "launch") for path in sources(folder)]
LIBRARY = [path for path in sources("gophercite") if path.parent.name != "cli"]


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: pathlib.Path) -> list[tuple[int, str]]:
    """Each imported module with its line, wherever in the file it is imported."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            if node.module == "gophercite":
                found += [(node.lineno, f"gophercite.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, node.module))
    return found


def is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def room_of(module: str) -> str | None:
    """The room that a module of ours belongs to; None for the package itself and for others'."""
    first, *rest = module.split(".")
    if first in ("data_pipelines", "launch"):
        return first
    return rest[0] if first == "gophercite" and rest else None


def points_down(path: pathlib.Path) -> Iterator[str]:
    """What is wrong with a file's imports."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    here = room_of(".".join(part for part in parts if part != "__init__"))
    if here is None:
        at_once = [node for node in parsed(path).body if is_import(node)]
        if [node.module for node in at_once] != ["typing"]:  # type: ignore[attr-defined]
            yield f"{name_of(path)}: the package must load at once"
    elif here not in FLOOR_OF:
        yield f"give the room {here!r} a floor in {name_of(pathlib.Path(__file__))}"
    else:
        for line, module in imports(path):
            there = room_of(module)
            if there is None or there == here or not (ROOT / module.split(".")[0]).is_dir():
                continue
            if FLOOR_OF[there] >= FLOOR_OF[here]:
                yield (
                    f"{name_of(path)}:{line}: {here} (floor {FLOOR_OF[here]}) imports {module} "
                    f"(floor {FLOOR_OF[there]}): imports only point down"
                )


def imported_from(paths: list[pathlib.Path], roots: set[str]) -> list[str]:
    """Where these files import any of these packages."""
    return [
        f"{name_of(path)}:{line}: imports {module}"
        for path in paths
        for line, module in imports(path)
        if module.split(".")[0] in roots
    ]


def test_imports_point_down() -> None:
    assert [wrong for path in ALL for wrong in points_down(path)] == []


def test_only_data_pipelines_import_tensorflow() -> None:
    others = [path for path in ALL if "data_pipelines" not in path.parts]
    assert imported_from(others, TENSORFLOW) == []
    assert imported_from(ALL, TENSORFLOW), "data_pipelines do"


def test_library_has_no_flags_and_no_prints() -> None:
    assert imported_from(LIBRARY, EDGE) == []
    prints = [
        f"{name_of(path)}:{node.lineno}: the library does not print"
        for path in LIBRARY
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert prints == []


def test_git_ignores_nothing_that_it_keeps() -> None:
    """What is ignored is not checked for style, and new files beside it are forgotten."""
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("not a checkout")
    assert found.stdout.split() == []

"""Modules that lie where somebody stands are never run by the processes that we start."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import gophercite
from gophercite import child_processes

ROOT = pathlib.Path(gophercite.__file__).parents[1]
LIGHTHOUSE = "Ormsby is a town. Its lighthouse was built in 1874 by Anna Vell."

# Modules that are imported on the way to a page's text, by the standard library, by what reads
# pages, or by Python itself.
PLANTED = (
    "_json", "chardet", "charset_normalizer", "contextlib", "dataclasses", "htmldate", "importlib",
    "io", "json", "justext", "logging", "lxml", "pdfminer", "re", "resource", "runpy", "signal",
    "sitecustomize", "struct", "threading", "trafilatura", "typing", "usercustomize", "w3lib",
)  # fmt: skip


@pytest.fixture
def downloads(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of a stranger's: a page, and code that says so when it is run."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    (folder / "page.html").write_text(f"<html><title>Ormsby</title><p>{LIGHTHOUSE}</p></html>")
    trap = f"open({str(tmp_path / 'trapped')!r}, 'a').write(__file__ + '\\n')\n"
    for name in PLANTED:
        (folder / f"{name}.py").write_text(trap)
    for package in ("gophercite", "gophercite/extraction", "urllib3"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(trap)
    (folder / "gophercite/extraction/extractor.py").write_text(trap)
    return folder


def trapped(downloads: pathlib.Path) -> str:
    path = downloads.parent / "trapped"
    return path.read_text() if path.exists() else ""


def run(downloads: pathlib.Path, *command: object, **environment: str) -> str:
    finished = subprocess.run(
        [*map(str, command)],
        cwd=downloads,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


ASK = ("ask", "When was the lighthouse built?", "--documents", "page.html", "--extractive")


def test_the_command_answers_from_a_hostile_folder(downloads: pathlib.Path) -> None:
    script = pathlib.Path(sys.executable).with_name("gophercite")
    if not script.exists():
        pytest.skip("the gophercite script is not installed")
    said = json.loads(run(downloads, script, *ASK, "--json"))
    assert said["answer"][0]["quote"] == "Its lighthouse was built in 1874 by Anna Vell."
    assert trapped(downloads) == ""


@pytest.mark.parametrize("place", ["", ".", "the folder itself"])
def test_what_the_parent_would_have_run_the_child_does_not(
    downloads: pathlib.Path, place: str
) -> None:
    """The parent has loaded all it needs when the folder comes to the head of its path."""
    program = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from gophercite.extraction.extractor import Extractor\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "os.chdir(sys.argv[2])\n"
        "with Extractor() as extractor:\n"
        "    print(extractor.page_text(open('page.html', 'rb').read(), 'text/html').text)\n"
    )
    entry = str(downloads) if place == "the folder itself" else place
    # As a script: its own folder is the first place then, not the current one.
    (downloads.parent / "program").mkdir()
    script = downloads.parent / "program/run.py"
    script.write_text(program)
    assert run(downloads, sys.executable, script, entry, downloads).strip() == LIGHTHOUSE
    assert trapped(downloads) == ""


def test_a_child_runs_the_package_that_its_parent_runs(tmp_path: pathlib.Path) -> None:
    """A checkout that is only on the path, with another one installed."""
    other = tmp_path / "checkout"
    other.mkdir()
    for part in ("__init__.py", "child_processes.py"):
        (other / "gophercite").mkdir(exist_ok=True)
        (other / "gophercite" / part).write_text((ROOT / "gophercite" / part).read_text())
    (other / "gophercite/said.py").write_text("def main(word): print(word, __file__)\n")
    program = tmp_path / "run.py"
    program.write_text(
        "import subprocess\n"
        "from gophercite import child_processes\n"
        "command = child_processes.python_command('gophercite.said', 'hello')\n"
        "subprocess.run(command, cwd=child_processes.FOLDER, env={}, check=True)\n"
    )
    said = run(tmp_path, sys.executable, program, PYTHONPATH=str(other))
    assert said.split() == ["hello", str(other / "gophercite/said.py")]
    # Also where somebody stands in it.
    said = run(other, sys.executable, "-c", program.read_text())
    assert said.split() == ["hello", str(other / "gophercite/said.py")]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(":/a::/b:", "/a:/b"), (".:sub", None), ("", None), ("/a", "/a")],
)
def test_a_script_gets_no_place_that_depends_on_where_it_starts(
    given: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", given)
    monkeypatch.setenv("OTHER", "x")
    environment = child_processes.environment()
    assert environment.get("PYTHONPATH") == kept
    assert environment["OTHER"] == "x"

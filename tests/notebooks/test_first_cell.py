"""The notebooks' first cell, in an environment without gophercite, as Colab's is."""

import os
import pathlib
import subprocess
import venv
import zipfile

import nbformat
import pip
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# A stand-in for the repository, built by itself: what is installed is not what is tested here.
PROJECT = """
[build-system]
requires = []
build-backend = "build"
backend-path = ["."]
[project]
name = "gophercite"
version = "9.9"
"""
METADATA = "Metadata-Version: 2.1\nName: gophercite\nVersion: 9.9\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
NAME = "gophercite-9.9-py3-none-any.whl"
BACKEND = f"""
import os, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(os.path.join(folder, {NAME!r}), "w") as wheel:
        wheel.writestr("gophercite.pth", os.getcwd())
        wheel.writestr("gophercite-9.9.dist-info/METADATA", {METADATA!r})
        wheel.writestr("gophercite-9.9.dist-info/WHEEL", {WHEEL!r})
        wheel.writestr("gophercite-9.9.dist-info/RECORD", "")
    return {NAME!r}
"""
FILES = {
    "pyproject.toml": PROJECT,
    "build.py": BACKEND,
    "gophercite/__init__.py": '__version__ = "9.9"\n',
}


def first_cell(notebook: pathlib.Path, source: object = "") -> str:
    code = next(
        cell.source
        for cell in nbformat.read(notebook, as_version=nbformat.NO_CONVERT).cells
        if cell.cell_type == "code"
    )
    assert code.count('SOURCE = ""\n') == 1
    return code.replace('SOURCE = ""\n', f"SOURCE = {str(source)!r}\n")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The interpreter of an environment that has pip, lent from ours, and nothing else."""
    folder = tmp_path_factory.mktemp("colab")
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    lent = tmp_path_factory.mktemp("lent")
    (lent / "pip").symlink_to(pathlib.Path(pip.__file__).parent)
    (packages / "lent.pth").write_text(f"{lent}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("drive") / "gophercite"
    _write(folder)
    return folder


def _write(folder: pathlib.Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(
    python: pathlib.Path, code: str, folder: pathlib.Path
) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [python, "-c", code],
        cwd=folder,
        env=kept | {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_a_source_it_stops_with_a_line(
    notebook: pathlib.Path, python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = run(python, first_cell(notebook) + "\nprint('went on')", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gophercite is not installed: set SOURCE at the top of this cell\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("file:///nowhere/gophercite", "could not be cloned: see git's message above"),
        ("/content/drive/MyDrive/gophercite", "there is no such folder or file here"),
    ],
)
def test_a_source_that_is_not_there_stops_it(
    python: pathlib.Path, tmp_path: pathlib.Path, source: str, said: str
) -> None:
    done = run(python, first_cell(NOTEBOOKS[0], source) + "\nprint('went on')", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"SOURCE = {source!r}")
    assert said in done.stderr.splitlines()[-1]


SHOW = "\nimport gophercite\nprint(gophercite.__version__, gophercite.__file__)"
REMOVE = ("-m", "pip", "uninstall", "--quiet", "--yes", "gophercite")


@pytest.mark.parametrize("kind", ["folder", "address", "wheel"])
def test_what_can_be_installed_is(
    python: pathlib.Path, project: pathlib.Path, tmp_path: pathlib.Path, kind: str
) -> None:
    source: object = project
    if kind == "wheel":
        source = tmp_path / NAME
        with zipfile.ZipFile(source, "w") as wheel:
            wheel.write(project / "gophercite" / "__init__.py", "gophercite/__init__.py")
            wheel.writestr("gophercite-9.9.dist-info/METADATA", METADATA)
            wheel.writestr("gophercite-9.9.dist-info/WHEEL", WHEEL)
            wheel.writestr("gophercite-9.9.dist-info/RECORD", "")
    if kind == "address":
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(tmp_path))
        subprocess.run([*git, "init", "--quiet", "origin"], check=True)
        _write(tmp_path / "origin")
        subprocess.run([*git, "-C", "origin", "add", "."], check=True)
        subprocess.run([*git, "-C", "origin", "commit", "--quiet", "-m", "All"], check=True)
        source = (tmp_path / "origin").as_uri()
    done = run(python, first_cell(NOTEBOOKS[0], source) + SHOW, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("9.9 ")
    if kind == "address":
        assert "gophercite-source" in done.stdout
    subprocess.run([python, *REMOVE], check=True)

"""The notebooks' first cell, in an environment without gophercite, as Colab's is."""

import os
import pathlib
import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterator, Mapping

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


@pytest.fixture(autouse=True)
def nothing_stays(python: pathlib.Path) -> Iterator[None]:
    yield
    for path in python.parents[1].glob("lib/python*/site-packages/gophercite*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("drive") / "gophercite"
    _write(folder)
    return folder


def _write(folder: pathlib.Path, files: Mapping[str, str] = FILES) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _commit(folder: pathlib.Path, files: Mapping[str, str]) -> None:
    _write(folder, files)
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder))
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "All"]):
        subprocess.run([*git, *command], check=True)


def run(
    python: pathlib.Path, code: str, folder: pathlib.Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [python, "-c", code],
        cwd=folder,
        env=kept | {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"} | variables,
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


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_failed_clone_leaves_no_folder(
    notebook: pathlib.Path, python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    done = run(python, first_cell(notebook, "file:///nowhere/gophercite"), tmp_path)
    assert "could not be cloned" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


SHOW = "\nimport gophercite\nprint(gophercite.__version__, gophercite.__file__)"


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
        _write(tmp_path / "gophercite-source", {"README.md": "of an address with a mistake\n"})
        _commit(tmp_path / "origin", FILES)
        source = (tmp_path / "origin").as_uri()
    done = run(python, first_cell(NOTEBOOKS[0], source) + SHOW, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("9.9 ")
    if kind == "address":
        assert "gophercite-source" in done.stdout
    if kind == "wheel":  # installed: files of packages can't be opened in a wheel
        assert ".whl" not in done.stdout


def test_the_source_is_found_after_a_restart_and_the_cell_then_does_nothing(
    python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A wheel's copy would lack the launch folder and the results beside it, that cells use."""
    source = tmp_path / "drive" / "gophercite"
    _write(source)
    code = first_cell(NOTEBOOKS[0], source)
    shown = f"9.9 {source / 'gophercite' / '__init__.py'}\n"
    assert run(python, code + SHOW, tmp_path).stdout == shown
    (source / "build.py").unlink()  # nothing can be installed from here on
    for again in (code + SHOW, code + "\n" + code + SHOW, SHOW):
        done = run(python, again, tmp_path)
        assert (done.stdout, done.stderr) == (shown, "")


def test_a_clone_in_the_notebooks_folder_is_not_taken_for_what_is_installed(
    python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """`git clone` makes a folder `gophercite`, which Python takes for a package without files."""
    _write(tmp_path / "gophercite")
    done = run(python, first_cell(NOTEBOOKS[0]), tmp_path)
    assert done.stderr == "gophercite is not installed: set SOURCE at the top of this cell\n"
    for _ in range(2):
        done = run(python, first_cell(NOTEBOOKS[0], "gophercite") + SHOW, tmp_path)
        assert done.stdout.startswith("9.9 "), done.stderr


def test_a_python_that_is_too_old_is_named(python: pathlib.Path, tmp_path: pathlib.Path) -> None:
    needs = PROJECT + 'requires-python = ">=9"\n'
    metadata = METADATA + "Requires-Python: >=9\n"
    build = BACKEND.replace(repr(METADATA), repr(metadata))
    source = tmp_path / "drive" / "gophercite"
    _write(source, {**FILES, "pyproject.toml": needs, "build.py": build})
    done = run(python, first_cell(NOTEBOOKS[0], source) + "\nprint('went on')", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "requires a different Python" in done.stderr
    assert done.stderr.endswith("could not be installed: see pip's message above\n")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_jax_for_gpus_is_asked_for_where_there_is_one(
    python: pathlib.Path, project: pathlib.Path, tmp_path: pathlib.Path, has_gpu: bool
) -> None:
    (tmp_path / "bin").mkdir()
    if has_gpu:
        (tmp_path / "bin" / "nvidia-smi").symlink_to(python)
    (asks,) = (path for path in NOTEBOOKS if path.stem == "ask_your_documents")
    dry = "import subprocess\nsubprocess.run = lambda c: subprocess.Popen(['/bin/echo', c[-1]])\n"
    done = run(python, dry + first_cell(asks, project), tmp_path, PATH=str(tmp_path / "bin"))
    extras = "[report,gpu]" if has_gpu else "[report]"
    assert (done.stdout, done.stderr) == (f"{project}{extras}\n", "")

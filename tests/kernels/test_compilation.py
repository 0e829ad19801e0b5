"""Compiling our C++: once, again when something changed, and what happens where it can't be."""

import logging
import os
import pathlib
import subprocess
import sys

import pytest

from gophercite.kernels import compilation

ROOT = pathlib.Path(__file__).parents[2]


def compiled(source):
    """As a process does that has not asked before."""
    return compilation.library.__wrapped__(source)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXXFLAGS", raising=False)
    file = tmp_path / "sources" / "answer.cc"
    file.parent.mkdir()
    file.write_text('extern "C" int answer() { return ANSWER; }\n')
    monkeypatch.setenv("CXXFLAGS", "-DANSWER=42")
    return file


def libraries(folder):
    return sorted(folder.glob("*.so"))


def test_a_library_is_compiled_once(source):
    assert compiled(source).answer() == 42
    (file,) = libraries(source.parent / "__pycache__")
    first = file.stat()
    assert compiled(source).answer() == 42
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert [x.name for x in file.parent.iterdir()] == [file.name]  # no scratch is left


@pytest.mark.parametrize("flags", [None, "-DANSWER=43", "-DANSWER=42 -funroll-loops"])
def test_a_change_is_compiled_anew(source, flags, monkeypatch):
    compiled(source)
    if flags is None:
        source.write_text('extern "C" int answer() { return 43; }\n')
    else:
        monkeypatch.setenv("CXXFLAGS", flags)
    assert compiled(source).answer() == (42 if "loops" in (flags or "") else 43)
    assert len(libraries(source.parent / "__pycache__")) == 2


def test_another_jaxlib_s_library_is_not_taken(source, monkeypatch):
    compiled(source)
    monkeypatch.setattr(compilation.jax.lib, "__version__", "0.0.1")
    compiled(source)
    assert len(libraries(source.parent / "__pycache__")) == 2


def test_where_nothing_can_be_written_beside_the_source_the_user_s_cache_has_it(source, tmp_path):
    (source.parent / "__pycache__").write_text("")  # root may write to any folder, but not here
    assert compiled(source).answer() == 42
    assert len(libraries(tmp_path / "cache" / "gophercite")) == 1


def test_a_file_that_anybody_may_write_is_not_loaded(source):
    compiled(source)
    (file,) = libraries(source.parent / "__pycache__")
    file.chmod(0o777)
    assert compiled(source).answer() == 42
    assert not any(file.stat().st_mode & 0o002 for file in libraries(file.parent))


@pytest.mark.parametrize("size", [0, 4096])  # the loader reads none of it, or dies past its end
def test_a_file_that_was_cut_off_is_compiled_again(source, size):
    compiled(source)
    (file,) = libraries(source.parent / "__pycache__")
    whole = file.read_bytes()
    assert len(whole) > size
    file.unlink()  # this process has loaded it
    file.write_bytes(whole[:size])
    assert compiled(source).answer() == 42
    assert file.read_bytes() == whole


@pytest.mark.parametrize("whose", ["anybody's", "another user's"])
def test_nothing_is_compiled_in_a_folder_that_others_can_write(source, whose, tmp_path, caplog):
    if whose == "another user's" and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    beside, cache = source.parent / "__pycache__", tmp_path / "cache" / "gophercite"

    def open_to_others(folder):
        folder.mkdir(exist_ok=True)
        if whose == "anybody's":
            folder.chmod(0o777)
        else:
            os.chown(folder, 12_345, -1)

    open_to_others(beside)
    assert compiled(source).answer() == 42
    assert (len(libraries(beside)), len(libraries(cache))) == (0, 1)
    open_to_others(cache)
    assert compiled(source) is None
    assert f"{beside}: other users can write there" in caplog.text
    assert f"{cache}: other users can write there" in caplog.text


def test_what_fails_is_said_once_and_the_library_is_none(source, tmp_path, monkeypatch, caplog):
    def said():
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert compiled(source) is None
        (record,) = caplog.records
        return record.getMessage()

    monkeypatch.setenv("CXXFLAGS", "")
    assert "ANSWER" in said()  # the compiler's own words
    monkeypatch.setenv("CXXFLAGS", '-DX="a')
    assert "No closing quotation" in said()
    monkeypatch.setenv("CXXFLAGS", "")
    monkeypatch.setenv("CXX", "false")
    assert "false -std=c++17" in said()
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    assert "no-compiler" in said()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C++ compiler was found" in said()


@pytest.mark.parametrize("home", ["a file", "none"])
def test_nowhere_to_write_is_said(source, tmp_path, home, monkeypatch, caplog):
    (source.parent / "__pycache__").write_text("")
    (tmp_path / "cache").write_text("")
    if home == "none":
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.chdir(tmp_path)
    assert compiled(source) is None
    assert "no folder for the compiled library" in caplog.text
    assert f"{source.parent / '__pycache__'}: " in caplog.text
    assert not (tmp_path / "relative").exists()


def test_a_model_does_without_the_kernel_on_a_machine_that_cannot_compile_it():
    code = """
import gc
gc.disable()  # what is imported stays
from gophercite.kernels.attention import is_available, shared_prompt_attention
from gophercite.models.kernel_attention import has_kernel
from tests.models.test_kernel_attention import CONFIG
assert not is_available() and not has_kernel(CONFIG)
try:
    shared_prompt_attention(*[None] * 9)
except RuntimeError as error:
    print(error)
"""
    environment = os.environ | {"CXX": "false", "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "is_available() first" in ended.stdout
    assert ended.stderr.count("runs without our kernel") == 1

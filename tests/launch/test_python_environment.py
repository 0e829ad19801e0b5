"""`launch/environment.sh`: what it leaves alone, what it sets, and what commands must set."""

import pathlib
import runpy
import shutil
import subprocess
import sys

import jax
import pytest

from gophercite import records
from gophercite.documents import Document
from gophercite.records import Question

ROOT = pathlib.Path(__file__).parents[2]


def test_a_linked_environment_is_not_cleared(tmp_path: pathlib.Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "launch").mkdir(parents=True)
    shutil.copy(ROOT / "launch" / "environment.sh", checkout / "launch")
    for name in ("requirements.lock", "pyproject.toml"):
        (checkout / name).touch()
    (other / ".venv" / "bin").mkdir(parents=True)
    (other / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (other / ".venv" / "installed").write_text(f"1 2\n3 4\n{other}\n")
    (checkout / ".venv").symlink_to(other / ".venv")
    run = subprocess.run(
        ["bash", "-c", "source launch/environment.sh"],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr == (
        f".venv is a link to {other / '.venv'}, which was made for another checkout. Remove the "
        "link; .venv is made at the next start\n"
    )
    assert (other / ".venv" / "installed").read_text().endswith(f"{other}\n")


@pytest.mark.parametrize("given", ["", "glibc.malloc.hugetlb=0"])
def test_huge_pages_are_asked_for_unless_the_user_says_otherwise(given: str) -> None:
    stamp = ROOT / ".venv" / "installed"
    if not stamp.exists() or not stamp.read_text().endswith(f"{ROOT}\n"):
        pytest.skip("this checkout has no environment of its own")
    run = subprocess.run(
        ["bash", "-c", 'source launch/environment.sh; echo "$GLIBC_TUNABLES"'],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | ({"GLIBC_TUNABLES": given} if given else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == f"{given or 'glibc.malloc.hugetlb=1'}\n"


def test_commands_find_the_programs_that_scripts_have_compiled() -> None:
    """A script such as `launch/smollm2.sh` asks a first question for users who activate .venv."""
    stamp = ROOT / ".venv" / "installed"
    if not stamp.exists() or not stamp.read_text().endswith(f"{ROOT}\n"):
        pytest.skip("this checkout has no environment of its own")
    said = [
        subprocess.run(
            ["bash", "-c", f'source {script}; echo "$JAX_COMPILATION_CACHE_DIR"'],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for script in ("launch/environment.sh", ".venv/bin/activate")
    ]
    assert said[0] == said[1]


@pytest.mark.parametrize("script", ["eval.py", "infer.py"])
def test_commands_keep_their_programs_without_the_script(
    script: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions = tmp_path / "questions.jsonl"
    records.write(questions, [Question("q", "When?", "test", (Document("o", "O", "In 1874."),))])
    (tmp_path / "empty").mkdir()
    arguments = [
        "--model",
        tmp_path / "empty",
        "--questions",
        questions,
        "--output",
        tmp_path / "out",
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = [jax.config.values[name] for name in names]
    jax.config.update(names[0], None)
    try:
        assert runpy.run_path(str(ROOT / "launch" / script))["main"](list(map(str, arguments))) == 1
        assert "empty: not a model folder" in capsys.readouterr().err
        assert jax.config.values[names[0]] == str(tmp_path / "gophercite" / "compiled")
    finally:
        for name, value in zip(names, before, strict=True):
            jax.config.update(name, value)

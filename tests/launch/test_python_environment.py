"""`launch/environment.sh` never clears an environment that isn't this checkout's."""

import pathlib
import shutil
import subprocess
import sys

import pytest

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

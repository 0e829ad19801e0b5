"""`launch/environment.sh` never clears an environment that isn't this checkout's."""

import pathlib
import shutil
import subprocess
import sys

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

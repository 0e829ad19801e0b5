"""Every command of README runs as it is written, and its Python too.

`benchmarks/first_hour.py` runs them in a fresh clone, the installation and the training included.
Here these are not run again: the environment is the one that runs the tests, and the bundled model
stands where the quickstart's run would be. What needs the downloaded model, most of a minute of
computing, runs with LONG_TESTS=1 if it is there: the quickstart's question goes the same way.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks.first_hour import commands_of
from gophercite.records.answers import read_answer
from tests.long_forms import IS_LONG

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
MODEL = ROOT / "data_pipelines" / "sample_world" / "model"
ENVIRONMENT = "bash launch/environment.sh"
LONG = (ENVIRONMENT, "launch/smollm2.sh", "launch/quickstart.sh")
DOWNLOADED = "models/smollm2-citing"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What git has of the examples and launch files, and what the two long commands would make."""
    folder = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "examples", "launch"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'export PATH="{pathlib.Path(sys.executable).parent}:$PATH"\n')
    shutil.copytree(MODEL, folder / "runs" / "quickstart")
    if (ROOT / DOWNLOADED).exists():
        (folder / "models").mkdir()
        (folder / DOWNLOADED).symlink_to(ROOT / DOWNLOADED)
    return folder


def test_the_long_commands_are_there() -> None:
    commands = commands_of(README)
    for command in LONG:
        assert commands.count(command) == 1
        script = ROOT / command.removeprefix("bash ")
        assert script.exists()
        assert command.startswith("bash ") or os.access(script, os.X_OK)
    assert commands.index(ENVIRONMENT) == 0
    assert "# makes" not in "".join(commands)


def test_every_command_runs_as_it_is_written(clone: pathlib.Path) -> None:
    commands = [command for command in commands_of(README) if command not in LONG]
    assert len(commands) >= 5
    of_downloaded = [command for command in commands if DOWNLOADED in command]
    assert len(of_downloaded) == 1
    if not (IS_LONG and (clone / DOWNLOADED).exists()):
        commands.remove(of_downloaded[0])
    assert commands[0] == "source .venv/bin/activate"
    marked = "\n".join(f"echo '=== {number}'\n{each}" for number, each in enumerate(commands))
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", marked],
        cwd=clone,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), (done.stdout, done.stderr)
    printed = re.split(r"^=== \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == len(commands)
    said = dict(zip(commands, printed, strict=True))
    (council,) = (text for name, text in said.items() if name.endswith("notes --extractive"))
    assert council.startswith("The town council is led by Ruth Calder")
    (shown,) = re.findall(r"^```\n(31 metres\b.*?)^  ╰", README, re.DOTALL | re.MULTILINE)
    for command in set(of_downloaded) & set(commands):
        assert said[command].startswith(shown)
    (checked,) = (text for name, text in said.items() if " verify " in name)
    assert checked.endswith("\n1 exact\n")
    assert read_answer(clone / "answer.json").citations


def test_its_python_runs_as_it_is_written(
    clone: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has imported what it needs."""
    (code,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(clone)
    exec(code, {})
    printed = capsys.readouterr().out
    assert re.search(r" Aldanor .* \d+ [0-9a-f]{64}\n\Z", printed), printed


def test_commands_are_found_in_their_blocks() -> None:
    first = "```bash\n# a comment\none --flag \\\n    two  # why\n\n```\n"
    page = f"{first}```\nthree\n```\n```bash\nfour '#5'\n```"
    assert commands_of(page) == ["one --flag two", "four '#5'"]

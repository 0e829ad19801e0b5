"""Commands that build on one another, and are run once."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import browse_miniature
import loop
import miniature
import pytest
from stages import RECORD, Stage, StageError, hold_folder, run_python, run_stages

LAUNCH = pathlib.Path(__file__).parents[2] / "launch"


class Shell:
    """Notes what it is told to run, and fails at what it is told to fail at."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.ran: list[str] = []
        self.said: list[str] = []

    def __call__(self, command: Sequence[str]) -> int:
        self.ran.append(command[0])
        return 75 if command[0] == self.failing else 0


def chain(root: pathlib.Path, *, steps: str = "600") -> list[Stage]:
    sft, rl = root / "sft", root / "rl"
    return [
        Stage("fine-tuning", sft, [["train", steps]]),
        Stage("learning", rl, [["learn"], ["ask"]], [sft]),
    ]


def run(stages: list[Stage], failing: str = "") -> tuple[int, Shell]:
    shell = Shell(failing)
    return run_stages(stages, shell, shell.said.append), shell


def test_what_is_done_is_passed_over_and_what_was_interrupted_is_run_again(
    tmp_path: pathlib.Path,
) -> None:
    status, shell = run(chain(tmp_path), failing="ask")
    assert (status, shell.ran) == (75, ["train", "learn", "ask"])
    assert (
        shell.said[-1]
        == "[2/2] learning: ended with status 75; run the same command again to go on from there"
    )
    status, shell = run(chain(tmp_path))
    assert (status, shell.ran) == (0, ["learn", "ask"])
    assert shell.said[0] == f"[1/2] fine-tuning: already done, in {tmp_path / 'sft'}"
    status, shell = run(chain(tmp_path))
    assert (status, shell.ran) == (0, [])
    record = json.loads((tmp_path / "rl" / RECORD).read_text())
    assert record["commands"] == ["learn", "ask"]
    assert record["ended"]
    assert record["seconds"] >= 0


def test_another_command_does_not_go_on_in_a_folder(tmp_path: pathlib.Path) -> None:
    run(chain(tmp_path))
    with pytest.raises(StageError, match=r"sft was made with other settings .*: remove it"):
        run(chain(tmp_path, steps="300"))


def test_what_was_made_of_an_earlier_stage_is_not_taken_for_the_new_ones(
    tmp_path: pathlib.Path,
) -> None:
    run(chain(tmp_path))
    (tmp_path / "sft" / RECORD).unlink()
    with pytest.raises(StageError, match="rl was made from other results of earlier stages"):
        run(chain(tmp_path))


def test_a_stage_waits_for_what_it_needs(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        StageError, match=r"learning: an earlier stage that it needs is not done: .*sft"
    ):
        run(chain(tmp_path)[1:])
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / RECORD).write_text("[]")
    with pytest.raises(StageError, match="is not the record of a stage"):
        run(chain(tmp_path))


def test_status_of_a_program(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_python(["-c", "print(1)"]) == 0
    assert run_python(["-c", "raise SystemExit(7)"]) == 7
    assert run_python(["-c", "import os; os.kill(os.getpid(), 9)"]) == 137
    assert capfd.readouterr().out == "1\n"


def test_a_program_is_asked_to_stop_and_may_finish(tmp_path: pathlib.Path) -> None:
    """The signal goes to the process that runs the stages, as from a scheduler."""
    inner = tmp_path / "inner.py"
    inner.write_text(
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n"
        "    pathlib.Path(sys.argv[1]).write_text('saved')\n"
        "    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "pathlib.Path(sys.argv[1]).write_text('running')\n"
        "time.sleep(60)\n"
    )
    state = tmp_path / "state"
    outer = f"import stages, sys; sys.exit(stages.run_python([{str(inner)!r}, {str(state)!r}]))"
    process = subprocess.Popen(
        [sys.executable, "-c", outer], env=os.environ | {"PYTHONPATH": str(LAUNCH)}
    )
    while not (state.exists() and state.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    assert state.read_text() == "saved"


def test_a_request_to_stop_reaches_a_program_that_has_only_just_begun() -> None:
    outer = (
        "import os, signal, stages, subprocess, sys\n"
        "begin = subprocess.Popen\n"
        "def begin_and_hear(*arguments, **named):\n"
        "    process = begin(*arguments, **named)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return process\n"
        "subprocess.Popen = begin_and_hear\n"
        "sys.exit(stages.run_python(['-c', 'import time; time.sleep(20)']))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(LAUNCH)}
    assert subprocess.run([sys.executable, "-c", outer], env=environment).returncode == 143


@pytest.mark.parametrize(
    "command",
    [
        [loop.main, "--gin_file=gin_configs/loop/sample_world.gin"],
        [miniature.main],
        [browse_miniature.main],
    ],
    ids=["loop", "miniature", "browse_miniature"],
)
def test_a_run_that_is_started_twice_is_refused(
    command: list, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes would remove and write the same files, and end the same stages."""
    main, *flags = command
    for folder in ("seed_0/world", "web", "world"):  # no first stage begins, even without the lock
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / RECORD).write_text("[]")
    with hold_folder(tmp_path, pytest.fail):
        assert main([str(tmp_path), *flags]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path} is in use: process {os.getpid()} on " in said
    assert " has been running in it since 20" in said
    assert said.count("\n") == 1
    assert main([str(tmp_path), *flags]) == 1
    assert "is not the record of a stage" in capsys.readouterr().err


def test_a_killed_run_holds_nothing_even_if_its_program_lives_on(tmp_path: pathlib.Path) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    outer = (
        "import stages, sys\n"
        "with stages.hold_folder(sys.argv[1], print):\n"
        f"    stages.run_python(['-c', {program!r}])\n"
    )
    command = [sys.executable, "-c", outer, str(tmp_path / "new" / "run")]
    environment = os.environ | {"PYTHONPATH": str(LAUNCH)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        inner = int(process.stdout.readline())
        try:
            with (
                pytest.raises(StageError, match=f"is in use: process {process.pid} on"),
                hold_folder(tmp_path / "new" / "run", pytest.fail),
            ):
                pass
            process.kill()
            process.wait()
            os.kill(inner, 0)  # it lives
            with hold_folder(tmp_path / "new" / "run", pytest.fail):
                pass
        finally:
            os.kill(inner, signal.SIGKILL)
    # What a stranger wrote into the file is no reason to fail, nor shown as it is.
    lock = tmp_path / "new" / "run" / "stages.lock"
    with hold_folder(lock.parent, pytest.fail):
        lock.write_bytes(b"\xff\x1b[31m" + b"x\n" * 9999)
        with pytest.raises(StageError) as refused, hold_folder(lock.parent, pytest.fail):
            pass
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 4000

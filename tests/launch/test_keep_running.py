"""The loop that starts a dead training again, with real children that end as they are told."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import keep_running
import pytest
from google_storage import BUCKET, google_storage

from gophercite.storage.checkpoint_steps import saved_steps

PATIENCE = 120  # seconds
# Takes the next of the endings that a file lists: an exit status, a signal's negative number, or
# "wait", and adds the checkpoint that it is told to.
CHILD = """
import json, os, pathlib, signal, sys, time
plan, folder = map(pathlib.Path, sys.argv[1:3])
endings = json.loads(plan.read_text())
number = len(list(plan.parent.glob("start_*")))
(plan.parent / f"start_{number}").write_text(str(os.getpid()))
step, ending = endings[number]
if step:
    (folder / "checkpoints" / str(step)).mkdir(parents=True, exist_ok=True)
if ending == "wait":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(75))
    (plan.parent / "waiting").touch()
    time.sleep(60)
if ending < 0:
    os.kill(os.getpid(), -ending)
sys.exit(ending)
"""


class Loop:
    """A loop around children that end as planned."""

    def __init__(self, folder: pathlib.Path, endings: list[tuple[int, int | str]], *flags: str):
        self.folder = folder
        plan = folder / "plan.json"
        plan.write_text(json.dumps(endings))
        run = folder / "run"
        child = [sys.executable, "-c", CHILD, str(plan), str(run), f"--gin.MODEL_DIR={run}"]
        command = [sys.executable, keep_running.__file__, "--wait=0", *flags, "--", *child]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def finish(self) -> tuple[int, list[str], int]:
        """Its exit status, what it said, and how often it started a child."""
        _, said = self.process.communicate(timeout=PATIENCE)
        starts = len(list(self.folder.glob("start_*")))
        return self.process.returncode, said.splitlines(), starts

    def until(self, name: str) -> None:
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            assert time.monotonic() < end, name
            assert self.process.poll() is None, self.process.stderr
            time.sleep(0.01)


@pytest.mark.parametrize("status", [0, 1, 2, 130, 127])
def test_what_a_restart_does_not_change_is_run_once_and_nothing_is_said(
    tmp_path: pathlib.Path, status: int
) -> None:
    assert Loop(tmp_path, [(0, status)]).finish() == (status, [], 1)


@pytest.mark.parametrize(("name", "status"), [("absent", 127), ("no_program", 126)])
def test_what_cannot_be_started_is_one_line(tmp_path: pathlib.Path, name: str, status: int) -> None:
    (tmp_path / "no_program").write_text("not a program")
    command = [sys.executable, keep_running.__file__, f"--model-dir={tmp_path}", "--"]
    command.append(str(tmp_path / name))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.split(":")[:2]) == (
        status, ["keep_running", f" {tmp_path / name}"]
    )  # fmt: skip


def test_it_restarts_as_long_as_checkpoints_are_added(tmp_path: pathlib.Path) -> None:
    """Five failures, but never three at one step; a stop of another's counts for none."""
    endings = [(0, 70), (10, -9), (0, 69), (20, -6), (0, 75), (0, 75), (0, 134), (0, 0)]
    status, said, starts = Loop(tmp_path, endings, "--tries=3").finish()
    assert (status, starts) == (0, len(endings))
    assert said == [
        f"keep_running: {line}; it will be started again in 0 s"
        for line in (
            "the training failed with status 70 at checkpoint 0 (1 of 3 at this step)",
            "the training was ended by SIGKILL at checkpoint 10 (1 of 3 at this step)",
            "the training failed with status 69 at checkpoint 10 (2 of 3 at this step)",
            "the training was ended by SIGABRT at checkpoint 20 (1 of 3 at this step)",
            "the training was asked to stop by something else, and saved at checkpoint 20",
            "the training was asked to stop by something else, and saved at checkpoint 20",
            "the training was ended by SIGABRT at checkpoint 20 (2 of 3 at this step)",
        )
    ]


def test_it_gives_up_when_one_step_fails_again_and_again(tmp_path: pathlib.Path) -> None:
    endings = [(0, 70), (10, -11), (0, 70), (0, -9), (0, 0)]
    status, said, starts = Loop(tmp_path, endings, "--tries=3").finish()
    assert (status, starts) == (128 + 9, 4)
    assert said[-1] == (
        "keep_running: the training was ended by SIGKILL 3 times in a row at checkpoint 10; it "
        "will not be started again"
    )


def test_sigterm_is_passed_on_and_is_no_failure(tmp_path: pathlib.Path) -> None:
    loop = Loop(tmp_path, [(0, "wait"), (0, 0)])
    loop.until("waiting")
    loop.process.terminate()
    assert loop.finish() == (75, [], 1)


def test_sigterm_between_two_starts_ends_it_at_once(tmp_path: pathlib.Path) -> None:
    loop = Loop(tmp_path, [(0, 70), (0, 0)], "--wait=60")
    assert loop.process.stderr is not None
    assert "started again in 60 s" in loop.process.stderr.readline()
    begun = time.monotonic()
    loop.process.terminate()
    status, _, starts = loop.finish()
    assert (status, starts) == (75, 1)
    assert time.monotonic() - begun < 30


def test_a_lock_that_the_loop_was_given_is_held_until_the_training_is_gone(
    tmp_path: pathlib.Path,
) -> None:
    """Also when the loop is killed: no second training starts beside the first."""
    lock = tmp_path / "lock"
    plan, run = tmp_path / "plan.json", tmp_path / "run"
    plan.write_text(json.dumps([(0, "wait")]))
    child = [sys.executable, "-c", CHILD, str(plan), str(run), f"--gin.MODEL_DIR={run}"]
    command = [sys.executable, keep_running.__file__, "--", *child]
    held = subprocess.Popen(
        ["bash", "-c", 'exec 9>"$0"; flock -n 9; exec "$@"', str(lock), *command],
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "waiting").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    held.kill()
    held.wait()
    try_lock = ["flock", "-n", str(lock), "true"]
    assert subprocess.run(try_lock, check=False).returncode == 1
    os.kill(int((tmp_path / "start_0").read_text()), signal.SIGTERM)
    assert subprocess.run(["flock", "-w", "60", str(lock), "true"], check=False).returncode == 0


def test_only_steps_with_their_commit_marker_count_in_a_bucket() -> None:
    with google_storage() as storage:
        storage.write("run/checkpoints/4/commit_success.txt", b"done")
        storage.write("run/checkpoints/4/state/data", b"x")
        storage.write("run/checkpoints/6/state/data", b"x")
        assert saved_steps(f"{BUCKET}/run") == [4]
        assert saved_steps(f"{BUCKET}/none") == []
        storage.write("run/checkpoints/6/commit_success.txt", b"done")
        assert saved_steps(f"{BUCKET}/run") == [4, 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the command to run is missing; it goes after --"),
        (["--", "true"], "give the folder of the checkpoints with --model-dir"),
        (["--tries=0", "--model-dir=x", "--", "true"], "--tries is 0: must be at least 1"),
        (["--wait=nan", "--model-dir=x", "--", "true"], "--wait is nan: must be at least 0"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        keep_running.main(arguments)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_the_folder_is_the_one_of_the_last_flag_without_gins_quotes() -> None:
    command = ["train.py", "--gin.MODEL_DIR=a", "--gin.MODEL_DIR='gs://b/c'"]
    assert keep_running.model_dir(command) == "gs://b/c"
    assert keep_running.model_dir(command[:2]) == "a"
    assert keep_running.model_dir(command[:1]) is None


def test_pauses_double_up_to_the_longest() -> None:
    assert [keep_running.pause_before(failures, 5) for failures in range(4)] == [5, 5, 10, 20]
    assert keep_running.pause_before(100_000, 5) == keep_running.LONGEST_WAIT
    assert keep_running.pause_before(100_000, 0) == 0


def test_ctrl_c_saves_and_ends_it(tmp_path: pathlib.Path) -> None:
    """The terminal sends it to both; the training saves, and its status alone says that."""
    loop = Loop(tmp_path, [(0, "wait"), (0, 0)])
    loop.until("waiting")
    os.killpg(loop.process.pid, signal.SIGINT)
    assert loop.finish() == (75, [], 1)

"""A run that stands still ends: real processes that are stopped, and an input that dries up."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gophercite.training.watchdog import EXIT_CODE, Watchdog
from tests.long_forms import LONG

SCRIPT = Path(__file__).with_name("stand_still.py")
PATIENCE = 300  # seconds, on the slowest of machines
ALLOWED = 4.0  # seconds of standstill; busy machines take breaths, too


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def started(cache: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    processes: list[subprocess.Popen[str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(processes: list["subprocess.Popen[str]"], *arguments: object) -> None:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))


def until_batch(folder: Path, number: int, processes: list["subprocess.Popen[str]"]) -> None:
    end = time.monotonic() + PATIENCE
    notes = [folder / f"batches_{process}" for process in range(len(processes))]
    while not all(note.exists() and int(note.read_text()) >= number for note in notes):
        assert time.monotonic() < end
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)


def start_two(folder: Path, processes: list["subprocess.Popen[str]"]) -> None:
    """Two that train together, past compiling, a save and an evaluation."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for process in (0, 1):
        start(processes, folder, ALLOWED, process, port)
    until_batch(folder, 30, processes)


def test_of_two_that_run_the_one_whose_input_dries_up_is_named(
    tmp_path: Path, started: list["subprocess.Popen[str]"]
) -> None:
    """Where JAX's heartbeat would see nothing."""
    start_two(tmp_path, started)
    (tmp_path / "stuck_1").touch()
    _, said = started[1].communicate(timeout=PATIENCE)
    assert started[1].returncode == EXIT_CODE, said
    assert "All 2 processes are running, but one is behind the others" in said
    assert "waiting for its input, its disk or its device: 1." in said
    started[0].communicate(timeout=PATIENCE)
    assert started[0].returncode not in (0, None)


@pytest.mark.parametrize("stopped", [1, pytest.param(0, marks=LONG)])
def test_a_process_that_is_stopped_ends_the_others_with_its_number(
    tmp_path: Path, started: list["subprocess.Popen[str]"], stopped: int
) -> None:
    start_two(tmp_path, started)
    started[stopped].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    _, said = started[1 - stopped].communicate(timeout=PATIENCE)
    assert started[1 - stopped].returncode == EXIT_CODE, said
    assert time.monotonic() - begun < 60  # JAX's own heartbeat takes 100 and more
    last = said.splitlines()[-1]
    assert last.startswith("the training is stuck: no progress on ")
    assert "Run the same command again to go on from the last checkpoint" in last
    if stopped == 1:
        assert "These of the 2 processes do not respond: 1." in last
    else:
        assert "Process 0, which coordinates the others, does not respond" in last


def test_an_input_that_dries_up_ends_a_run_and_being_stopped_oneself_does_not(
    tmp_path: Path, started: list["subprocess.Popen[str]"]
) -> None:
    """Ctrl-Z and a host that sleeps are no standstill: time that passed meanwhile counts little."""
    (tmp_path / "stuck_0").touch()
    start(started, tmp_path, 2.0)
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(5)  # the first batch may take longer: its set may have to be measured
    (tmp_path / "stuck_0").unlink()
    until_batch(tmp_path, 5, started)
    os.kill(started[0].pid, signal.SIGSTOP)
    before = int((tmp_path / "batches_0").read_text())
    time.sleep(3)
    os.kill(started[0].pid, signal.SIGCONT)
    until_batch(tmp_path, before + 30, started)
    (tmp_path / "stuck_0").touch()
    _, said = started[0].communicate(timeout=PATIENCE)
    assert started[0].returncode == EXIT_CODE
    assert "for 2 s. Its input, its disk or its device does not respond." in said


def test_signs_of_life_patience_and_suspension_put_it_off() -> None:
    acted = threading.Event()
    messages: list[str] = []

    def act(message: str) -> None:
        messages.append(message)
        acted.set()

    with Watchdog(0.5, act) as watchdog:
        for _ in range(10):
            watchdog.alive("step 1")
            assert not acted.wait(0.1)
        watchdog.alive("saving step 1", patience=4)
        assert not acted.wait(1.0)
        with watchdog.suspended("compiling"):
            assert not acted.wait(1.0)
        watchdog.alive("step 2")
        assert acted.wait(PATIENCE)
    assert len(messages) == 1
    assert "no progress on step 2 for 0.5 s" in messages[0]
    with Watchdog(0.2, messages.append):
        pass
    with Watchdog(None, messages.append) as never:
        never.alive("step 1")
        time.sleep(0.3)
    assert len(messages) == 1

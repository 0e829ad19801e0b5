"""A run that stands still ends: real processes that are stopped, and an input that dries up."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gophercite.training.watchdog import EXIT_CODE, Watchdog
from tests.long_forms import LONG

SCRIPT = Path(__file__).with_name("stand_still.py")
PATIENCE = 300  # seconds, on the slowest of machines
ALLOWED = 4.0  # seconds of standstill; busy machines take breaths, too


class Started:
    """A process that trains in a folder: a copy of one that has imported everything."""

    def __init__(self, importer: "subprocess.Popen[str]", folder: Path, *how: object) -> None:
        self.importer = importer
        number = how[1] if len(how) > 1 else 0
        self.log, self.batches = folder / f"{number}.log", folder / f"batches_{number}"
        self.status: int | None = None
        self.pid = self._ask(folder, *how)

    def _ask(self, *words: object) -> int:
        assert self.importer.stdin is not None
        assert self.importer.stdout is not None
        print(*words, file=self.importer.stdin, flush=True)
        return int(self.importer.stdout.readline())

    def wait(self) -> str:
        """Waits for its end, and returns what it said."""
        self.status = self._ask("wait", self.pid)
        return self.log.read_text()

    def has_ended(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture(scope="module")
def importer(tmp_path_factory: pytest.TempPathFactory) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, str(SCRIPT), str(PATIENCE)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        yield process
        process.kill()


@pytest.fixture
def start(importer: "subprocess.Popen[str]") -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def start_one(*arguments: object) -> Started:
        started.append(Started(importer, *arguments))
        return started[-1]

    yield start_one
    for each in started:
        if each.status is None:
            os.kill(each.pid, signal.SIGKILL)
            each.wait()


def until_batch(number: int, *processes: Started) -> None:
    end = time.monotonic() + PATIENCE
    notes = [process.batches for process in processes]
    while not all(note.exists() and int(note.read_text()) >= number for note in notes):
        assert time.monotonic() < end
        assert not any(process.has_ended() for process in processes)
        time.sleep(0.05)


def start_two(folder: Path, start: Callable[..., Started]) -> tuple[Started, Started]:
    """Two that train together, past compiling, a save and an evaluation."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    first, second = (start(folder, ALLOWED, process, port) for process in (0, 1))
    until_batch(10, first, second)
    return first, second


def test_of_two_that_run_the_one_whose_input_dries_up_is_named(
    tmp_path: Path, start: Callable[..., Started]
) -> None:
    """Where JAX's heartbeat would see nothing."""
    first, second = start_two(tmp_path, start)
    (tmp_path / "stuck_1").touch()
    said = second.wait()
    assert second.status == EXIT_CODE, said
    assert "All 2 processes are running, but one is behind the others" in said
    assert "waiting for its input, its disk or its device: 1." in said
    first.wait()
    assert first.status not in (0, -signal.SIGALRM)


@pytest.mark.parametrize("stopped", [1, pytest.param(0, marks=LONG)])
def test_a_process_that_is_stopped_ends_the_others_with_its_number(
    tmp_path: Path, start: Callable[..., Started], stopped: int
) -> None:
    two = start_two(tmp_path, start)
    os.kill(two[stopped].pid, signal.SIGSTOP)
    begun, other = time.monotonic(), two[1 - stopped]
    said = other.wait()
    assert other.status == EXIT_CODE, said
    assert time.monotonic() - begun < 60  # JAX's own heartbeat takes 100 and more
    last = said.splitlines()[-1]
    assert last.startswith("the training is stuck: no progress on ")
    assert "Run the same command again to go on from the last checkpoint" in last
    if stopped == 1:
        assert "These of the 2 processes do not respond: 1." in last
    else:
        assert "Process 0, which coordinates the others, does not respond" in last


def test_an_input_that_dries_up_ends_a_run_and_being_stopped_oneself_does_not(
    tmp_path: Path, start: Callable[..., Started]
) -> None:
    """Ctrl-Z and a host that sleeps are no standstill: time that passed meanwhile counts little."""
    (tmp_path / "stuck_0").touch()
    process = start(tmp_path, 2.0)
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(5)  # the first batch may take longer: its set may have to be measured
    (tmp_path / "stuck_0").unlink()
    until_batch(5, process)
    os.kill(process.pid, signal.SIGSTOP)
    before = int((tmp_path / "batches_0").read_text())
    time.sleep(3)
    os.kill(process.pid, signal.SIGCONT)
    until_batch(before + 30, process)
    (tmp_path / "stuck_0").touch()
    said = process.wait()
    assert process.status == EXIT_CODE
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

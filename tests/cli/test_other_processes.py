"""Processes that watch one another: with JAX's real service, in one process and in several."""

import os
import pathlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gophercite.cli.other_processes import OtherProcesses

SCRIPT = pathlib.Path(__file__).with_name("watched_processes.py")
BEAT, SILENCE = 0.1, 0.8
PATIENCE = 120


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port: int = free.getsockname()[1]
        return port


class Four:
    """Four that watch one another through a service on loopback, as if each were a process."""

    def __init__(self, silence: float) -> None:
        from jax._src.lib import _jax

        self.coordinator = address = f"localhost:{free_port()}"
        self._service = _jax.get_distributed_runtime_service(address, 4)
        self.clients = [_jax.get_distributed_runtime_client(address, index) for index in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda client: client.connect(), self.clients))
        self.said: list[queue.Queue[str]] = [queue.Queue() for _ in range(4)]
        self.watching = [
            OtherProcesses(client, address, index, 4, self.said[index].put, BEAT, silence)
            for index, client in enumerate(self.clients)
        ]
        for each in self.watching:
            each.watch()
        time.sleep(3 * BEAT)

    def vanish(self, index: int) -> None:
        """It gives no sign of life any more, and does not say that it leaves."""
        self.watching[index]._over.set()

    def close(self) -> None:
        for each in self.watching:
            each.leave()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda client: client.shutdown(), self.clients))
        self._service.shutdown()


@pytest.fixture
def four(request: pytest.FixtureRequest) -> Iterator[Four]:
    made = Four(getattr(request, "param", SILENCE))
    yield made
    made.close()


def test_who_is_gone_is_named_to_all_and_who_has_left_is_not(four: Four) -> None:
    four.watching[1].leave()
    time.sleep(2 * SILENCE)
    assert all(said.empty() for said in four.said), "one that has left is not missed"
    four.vanish(2)
    begun = time.monotonic()
    line = "process 2 of 4 is gone or does not respond. Its own output may say why. "
    for index in (0, 3):
        assert four.said[index].get(timeout=20).startswith(line)
    assert time.monotonic() - begun >= SILENCE - 2 * BEAT
    assert four.said[1].empty()


@pytest.mark.parametrize("four", [600.0], indirect=True, ids=["patient"])
def test_an_error_is_explained_by_who_does_not_respond(four: Four) -> None:
    assert four.watching[3].explanation() is None
    for index in (0, 2, 3):  # one never names itself
        four.vanish(index)
    said = four.watching[3].explanation()
    assert said is not None
    assert said.startswith("processes 0, 2 of 4 are gone or do not respond. Their own output")
    assert four.said[1].get(timeout=20) == said, "the others hear it, too"


class SlowNumbers:
    """A client whose numbers take their time on the way."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def key_value_set(self, key: str, value: str, overwrites: bool) -> None:
        if value.isdigit():
            time.sleep(4 * BEAT)
        self._client.key_value_set(key, value, overwrites)


def test_a_number_that_is_on_its_way_does_not_follow_the_last_word(four: Four) -> None:
    client = SlowNumbers(four.clients[1])
    slow = OtherProcesses(client, four.coordinator, 1, 4, four.said[1].put, 4 * BEAT, SILENCE)
    four.watching[1].leave()
    slow.watch()
    time.sleep(BEAT)
    slow.leave()
    time.sleep(2 * SILENCE)
    assert all(said.empty() for said in four.said)


def test_a_service_that_closes_idle_connections_is_asked_again_until_it_is_gone() -> None:
    said: queue.Queue[str] = queue.Queue()
    with socket.create_server(("localhost", 0)) as service:
        coordinator = f"localhost:{service.getsockname()[1]}"
        one = OtherProcesses(None, coordinator, 1, 2, said.put, BEAT, SILENCE)
        holding = threading.Thread(target=one._hold_connection, daemon=True)
        holding.start()
        for greeting in (b"settings", b"", b"settings"):
            with service.accept()[0] as connection:
                connection.sendall(greeting)
                time.sleep(BEAT)
        assert said.empty()
    assert said.get(timeout=20).startswith("process 0 of 2 is gone or does not respond.")
    holding.join(20)
    assert not holding.is_alive()


class Started:
    """Processes that have joined one another, and what became of them: see the script."""

    def __init__(self, folder: pathlib.Path, count: int) -> None:
        self._folder, self._count = folder, count

    def read(self, name: str) -> str:
        """Of a file that a process or the script writes."""
        last = time.monotonic() + PATIENCE
        while not (self._folder / name).exists() and time.monotonic() < last:
            time.sleep(0.05)
        return (self._folder / name).read_text()

    def send(self, index: int, number: signal.Signals) -> None:
        os.kill(int(self.read(f"{index}.id")), number)

    def ended(self, index: int) -> tuple[int, str]:
        return int(self.read(f"{index}.status")), self.read(f"{index}.said")

    def close(self) -> None:
        for index in range(self._count):
            if not (self._folder / f"{index}.status").exists():
                self.send(index, signal.SIGKILL)
            self.read(f"{index}.status")


@pytest.fixture(scope="module")
def importing() -> Iterator["subprocess.Popen[str]"]:
    """A process that has imported JAX, and makes copies of itself."""
    with subprocess.Popen([sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, text=True) as made:
        yield made


@pytest.fixture
def started(
    importing: "subprocess.Popen[str]", request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> Iterator[Started]:
    """Processes that do what the test's parameter says, once all have joined."""
    assert importing.stdin is not None
    print(free_port(), tmp_path, *request.param, file=importing.stdin, flush=True)
    found = Started(tmp_path, len(request.param))
    try:
        for index in range(len(request.param)):
            found.read(f"{index}.joined")
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("started", [["wait"] * 3], indirect=True, ids=["three"])
def test_the_others_of_a_process_that_is_killed_end_with_a_line(started: Started) -> None:
    started.send(1, signal.SIGKILL)
    for index in (0, 2):
        status, said = started.ended(index)
        assert status == 69, said
        assert "watched: process 1 of 3 is gone" in said
        assert "Traceback" not in said


@pytest.mark.parametrize("started", [["wait"] * 2], indirect=True, ids=["two"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_without_the_first_process_the_others_end_with_a_line(
    started: Started, number: signal.Signals
) -> None:
    started.send(0, number)
    status, said = started.ended(1)
    assert status == 69, said
    assert said.splitlines()[-1].startswith("watched: process 0 of 2 is gone or does not respond.")


@pytest.mark.parametrize("started", [["wait", "error"]], indirect=True, ids=["two"])
def test_an_error_of_the_program_is_shown_by_its_process(started: Started) -> None:
    status, said = started.ended(1)
    assert status == 70
    assert "KeyError: 'an error of the program'" in said
    assert "gone" not in said
    status, said = started.ended(0)
    assert status == 69, said
    assert "watched: process 1 of 2 is gone" in said


@pytest.mark.parametrize(
    ("started", "status"),
    [(["done", "later"], 0), (["refuse", "refuse-later"], 1)],
    indirect=["started"],
    ids=["done", "refused"],
)
def test_processes_that_end_by_themselves_say_nothing(started: Started, status: int) -> None:
    for index in range(2):
        found, said = started.ended(index)
        assert (found, "gone" in said) == (status, False), said

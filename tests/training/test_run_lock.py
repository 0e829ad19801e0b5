"""Two commands on one run's folder: the second is refused while the first lives."""

import contextlib
import datetime
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_learner as tiny
from bucket import Bucket, bucket
from etils import epath
from google.api_core.exceptions import RetryError
from google.auth.exceptions import RefreshError
from google.cloud import storage

from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.training.loop import train
from gophercite.training.owner_mark import MARK, OwnerMark
from gophercite.training.preemption import EXIT_CODE
from gophercite.training.run_lock import LOCK_FILE, Owner, RunInUseError, hold_run
from gophercite.training.settings import TrainSettings

HERE = Path(__file__).parent
PATIENCE = 300  # seconds, on the slowest of machines
EXPIRY = 1.0


def until(reached: Callable[[], bool], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def try_to_train(folder: Path) -> None:
    train(
        TrainSettings(model_dir=str(folder), total_steps=4, batch_size=tiny.ROWS),
        tiny.TinyLearner(),
        tiny.TinyInitialisation(frozen_layers=1),
        tiny.partitioner(),
        tiny.batches(),
        {},
        quiet=True,
    )


@contextlib.contextmanager
def running(*command: object, **options: object) -> Iterator[subprocess.Popen]:
    with subprocess.Popen([sys.executable, *map(str, command)], text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_second_run_is_refused_until_the_first_has_saved_and_is_gone(tmp_path):
    script = HERE / "run_tiny.py", tmp_path, 10_000, 0.2
    with running(*script, stderr=subprocess.PIPE) as first:
        until(lambda: saved_steps(tmp_path) != [], first)
        unfinished = tmp_path / "checkpoints" / "7.orbax-checkpoint-tmp"
        unfinished.mkdir()  # as of a save under way: a run that starts clears such folders
        with pytest.raises(RunInUseError) as refused:
            try_to_train(tmp_path)
        message = str(refused.value)
        assert str(tmp_path) in message
        assert f"process {first.pid} on {socket.gethostname()}" in message
        assert re.search(r"since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", message)
        assert unfinished.is_dir()

        first.terminate()  # still at work until its last checkpoint is written
        while first.poll() is None:
            with contextlib.suppress(RunInUseError), hold_run(tmp_path, print):
                assert first.wait(PATIENCE) == EXIT_CODE
        assert first.returncode == EXIT_CODE

    with hold_run(tmp_path, print):
        assert Owner.from_json((tmp_path / LOCK_FILE).read_text()).pid == os.getpid()
        with pytest.raises(RunInUseError, match=f"process {os.getpid()} "):
            try_to_train(tmp_path)


@pytest.fixture
def server(monkeypatch) -> Iterator[Bucket]:
    with bucket() as found:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", found.url)
        yield found


def mark(say: Callable[[str], None] = print, host: str = "second") -> OwnerMark:
    owner = Owner(7, host, "2026-01-02T03:04:05+00:00")
    return OwnerMark(epath.Path("gs://b/run"), owner, say, renewal=EXPIRY / 10, expiry=EXPIRY)


def test_in_a_bucket_a_mark_is_renewed_expires_and_is_missed_by_its_owner(server):
    name = f"run/{MARK}"
    script = HERE / "hold_folder.py", "gs://b/run", EXPIRY
    with running(*script, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
        said: list[str] = []
        with pytest.raises(RunInUseError, match=f"process {first.pid} on .* has just renewed"):
            mark(said.append)
        assert f"process {first.pid} on" in said[0]
        assert "delete this object" in said[0]

        # One that stands still has lost the folder, and notices when it goes on.
        first.send_signal(signal.SIGSTOP)
        second = mark()
        first.send_signal(signal.SIGCONT)
        assert first.wait(PATIENCE) == 3
        assert "gs://b/run was taken over" in first.stdout.read()
        second.confirm()
        assert Owner.from_json(server.objects[name]).host == "second"
        second.release()
        assert name not in server.objects

    # One that was killed leaves its mark, which nobody renews.
    with running(*script, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == "held\n"
    assert Owner.from_json(server.objects[name]).pid == first.pid
    mark().release()
    assert server.objects == {}


@pytest.mark.parametrize("error", [RefreshError("expired"), RetryError("gone", None), OSError()])
def test_a_mark_is_renewed_again_when_credentials_and_network_are_back(server, monkeypatch, error):
    held = mark()
    tried = threading.Event()

    def fail(*_, **__):
        tried.set()
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(storage.Blob, "upload_from_string", fail)
        assert tried.wait(PATIENCE)
    with pytest.raises(RunInUseError, match="has just renewed"):
        mark(host="third")
    held.confirm()
    held.release()
    assert server.objects == {}


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("content", [Owner(6, "dead", "2025").to_json(), "{"])
def test_another_command_that_was_faster_is_named(server, watched, content):
    """It has not renewed the mark that was found, but replaced it, as this command would have."""
    name, faster = f"run/{MARK}", Owner(8, "faster", "2026-01-02T03:04:06+00:00").to_json()

    def put(text: str) -> None:
        server.objects[name] = text.encode()
        server.generations[name] = server.generations.get(name, 1) + 1
        server.updated[name] = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"

    def replace(*_: object) -> None:
        if server.objects[name] != faster.encode():
            put(faster)

    server.objects[name] = content.encode()  # of long ago
    if watched:
        put(content)
    else:  # the first write finds the mark, the second would replace it
        turns = itertools.chain([lambda: None], itertools.repeat(replace))
        server.before_write = lambda: next(turns)()
    with pytest.raises(RunInUseError) as refused:
        mark(replace if watched else print)
    assert "gs://b/run is in use: process 8 on faster" in str(refused.value)
    assert "before this command could" in str(refused.value)
    assert "renewed" not in str(refused.value)


def test_a_mark_of_long_ago_is_not_waited_for(server):
    server.objects[f"run/{MARK}"] = b"anything"
    said: list[str] = []
    owner = Owner.me()
    OwnerMark(epath.Path("gs://b/run"), owner, said.append, renewal=60, expiry=600).release()
    assert said == []

"""Runs in processes of their own that are killed, told to stop, or are one of two."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
import tiny_learner as tiny

from gophercite.models.checkpoint_files import read_parameters, saved_steps
from gophercite.training.loop import TrainSettings, train
from gophercite.training.metrics import read_metrics
from gophercite.training.preemption import EXIT_CODE

SCRIPT = Path(__file__).with_name("run_tiny.py")
TOTAL = 40
PATIENCE = 600  # seconds, on the slowest of machines


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compilation_cache")


def start(cache: Path, *arguments: object) -> subprocess.Popen:
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "the run came to nothing"
        time.sleep(0.002)


def finish(process: subprocess.Popen, code: int) -> str:
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, errors
    return errors


def newest(folder: Path) -> int:
    return max(saved_steps(folder), default=0)


def lines(folder: Path) -> list[dict]:
    return [
        {name: value for name, value in line.items() if not name.startswith("time/")}
        for line in read_metrics(folder)
    ]


def test_kills_at_any_moment_and_a_polite_one_change_nothing(cache, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(cache, whole, TOTAL, 0.0), 0)
    draw = random.Random(os.urandom(8))
    pause = 0.02

    # Some steps after some checkpoint, wherever the process then is.
    process = start(cache, broken, TOTAL, pause)
    wait_for(process, lambda: newest(broken) >= draw.randrange(4, 10))
    time.sleep(draw.uniform(0, 0.1))
    process.kill()
    finish(process, -signal.SIGKILL)

    # In the middle of an asynchronous save: its temporary folder is there, its step is not.
    begun = newest(broken)
    process = start(cache, broken, TOTAL, pause)

    def saving() -> bool:
        names = [path.name for path in (broken / "checkpoints").iterdir()]
        return newest(broken) > begun and any("tmp" in name for name in names)

    wait_for(process, saving)
    process.kill()
    finish(process, -signal.SIGKILL)

    # Told to stop, it saves where it is and says so.
    begun = newest(broken)
    process = start(cache, broken, TOTAL, pause)
    wait_for(process, lambda: newest(broken) > begun)
    process.terminate()
    message = finish(process, EXIT_CODE)
    assert f"step {newest(broken)} is saved" in message
    assert newest(broken) < TOTAL

    saved = newest(broken)
    message = finish(start(cache, broken, TOTAL, 0.0), 0)
    assert f"going on from checkpoint {saved} of" in message
    assert tiny.bits(read_parameters(broken, TOTAL)) == tiny.bits(read_parameters(whole, TOTAL))
    assert lines(broken) == lines(whole)


def test_two_processes_of_four_devices_save_and_go_on_together(cache, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    pair = [start(cache, tmp_path, 4, 0.0, process, port) for process in (0, 1)]
    messages = [finish(process, 0) for process in pair]
    assert f"going on from checkpoint 2 of {tmp_path}" in messages[0]
    assert saved_steps(tmp_path) == [2, 4]

    # One process over the same eight devices takes over the checkpoint of the two.
    outcome = train(
        TrainSettings(model_dir=str(tmp_path), total_steps=4, batch_size=tiny.ROWS),
        tiny.TinyLearner(),
        tiny.TinyInitialisation(frozen_layers=1),
        tiny.partitioner(),
        tiny.batches(),
        {},
        stream=None,
    )
    assert int(outcome.state.step) == 4
    assert jax.process_count() == 1

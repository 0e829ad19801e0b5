"""A run of two processes of two devices each, and one process that takes it over."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import tiny_learner as tiny

from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.training.loop import train
from gophercite.training.settings import TrainSettings

SCRIPT = Path(__file__).with_name("run_tiny.py")
PATIENCE = 600  # seconds, on the slowest of machines


def test_two_processes_of_two_devices_save_and_go_on_together(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compilation_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, str(SCRIPT), str(tmp_path), "4", "0.0", str(port)]
    pair = subprocess.run(command, env=environment, timeout=PATIENCE, check=False)
    messages = [(tmp_path / f"{process}.log").read_text() for process in (0, 1)]
    assert pair.returncode == 0, messages
    assert "input waits: {0: 0.0, 1: 0.75}" in messages[0]
    assert "input waits: {}" in messages[1]
    assert f"resuming from checkpoint 2 of {tmp_path}" in messages[0]
    assert saved_steps(tmp_path) == [2, 4]
    # What one process may not read is refused by both.
    assert "refused: checkpoints/5: process 1 may not read checkpoint 5" in messages[0]
    assert "refused: closed" in messages[1]
    # What is damaged for one process is so for both.
    for message, found in zip(messages, ("is cut short or damaged for process 1", ""), strict=True):
        assert "went back to {'step': 2} checkpoint 4 is damaged, moved to " in message
        assert found in message

    # One process over eight devices takes over the checkpoint of the two over four.
    outcome = train(
        TrainSettings(model_dir=str(tmp_path), total_steps=4, batch_size=tiny.ROWS),
        tiny.TinyLearner(),
        tiny.TinyInitialisation(frozen_layers=1),
        tiny.partitioner(),
        tiny.batches(),
        {},
        quiet=True,
    )
    assert int(outcome.state.step) == 4
    assert jax.process_count() == 1

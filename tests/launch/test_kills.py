"""Runs of launch/train.py in processes of their own, killed and interrupted at random moments.

The long form, with reinforcement learning, is benchmarks/kills.py.
"""

import random
import signal
from pathlib import Path

import pytest

from benchmarks import kills
from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.training.preemption import EXIT_CODE
from tests.long_forms import LONG

SETTINGS = {
    **kills.TINY,
    **kills.SUPERVISED,
    "TRAIN_STEPS": "16",
    "TransformerConfig.num_layers": "1",
    "SupervisedLearner.microbatches": "1",
    "validation/Input.batch_size": "8",
    "validation/Input.limit": "40",  # most of a run's time would go into the sample world's 512
}


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> kills.Command:
    cache = tmp_path_factory.mktemp("kills") / "cache"
    return kills.Command("sft_sample_world.gin", SETTINGS, cache)


def test_kills_and_ctrl_c_at_random_moments_change_nothing(command, tmp_path):
    draw = random.Random(kills.seed_of_draws())
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    kills.finish(command, whole)
    moment = draw.choice(["compile", "evaluation", "save", "save", "steps"])
    kills.kill(command, broken, moment, draw)

    # Ctrl-C is a request to save: one line says so, and no more is said.
    at, process = kills.kill(command, broken, "steps", draw, signal.SIGINT)
    if at is not None:
        assert process.process.returncode == EXIT_CODE
        assert process.lines[-1].startswith(
            f"train: stopped on request: step {saved_steps(broken)[-1]}"
        )
        assert "Traceback" not in "".join(process.lines)
    kills.finish(command, broken)
    assert kills.bits(broken) == kills.bits(whole)
    assert kills.lines(broken) == kills.lines(whole)


def test_ctrl_c_before_there_is_anything_to_save_ends_with_one_line(command, tmp_path):
    draw = random.Random(kills.seed_of_draws())
    process = command.start(tmp_path / "early")
    try:
        process.process.wait(draw.uniform(0.5, 2))
    except kills.subprocess.TimeoutExpired:
        process.process.send_signal(signal.SIGINT)
    assert process.wait() == EXIT_CODE
    assert process.lines == ["train: stopped on request; nothing was running that could be saved\n"]


@LONG
def test_a_second_ctrl_c_ends_a_run_at_once_whatever_it_is_at(command, tmp_path):
    process = command.start(tmp_path / "twice", Path(tmp_path / "fresh"))
    assert process.wait_for(process.is_compiling)
    process.process.send_signal(signal.SIGINT)
    process.process.send_signal(signal.SIGINT)
    status = process.wait()
    assert status in (130, EXIT_CODE)  # two that come together may be one to the system
    assert "Traceback" not in "".join(process.lines)

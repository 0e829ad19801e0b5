"""Runs of launch/train.py in processes of their own, killed and interrupted at random moments.

The long form, with reinforcement learning, is benchmarks/kills.py.
"""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import train

from benchmarks import kills
from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.monitoring.step_log import StepLog
from gophercite.training.preemption import EXIT_CODE
from tests.long_forms import LONG

LAST = 16  # step
SAVE_EVERY = int(kills.TINY["train.save_every"])
SETTINGS = {
    **kills.TINY,
    **kills.SUPERVISED,
    "TRAIN_STEPS": str(LAST),
    "TransformerConfig.num_layers": "1",
    "SupervisedLearner.microbatches": "1",
    "BATCH_SIZE": "2",
    "validation/Input.batch_size": "2",
    "validation/Input.limit": "4",  # most of a run's time would go into the sample world's 512
}


# As in this process, whose bits are compared, and whose compiled programs are used again.
AS_HERE = {"JAX_NUM_CPU_DEVICES": "2", "XLA_FLAGS": os.environ["XLA_FLAGS"]}

pytestmark = pytest.mark.usefixtures("two_devices", "same_programs")


@pytest.fixture(scope="module")
def command(cache) -> kills.Command:
    return kills.Command("sft_sample_world.gin", SETTINGS, Path(cache.partition("=")[2]))


def press_ctrl_c_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Has Ctrl-C pressed at a step of a run in this process."""
    add = StepLog.add

    def add_and_press(log: StepLog, number: int, *given: Any) -> None:
        add(log, number, *given)
        if number == step:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StepLog, "add", add_and_press)


def test_kills_and_ctrl_c_at_random_moments_change_nothing(command, tmp_path, monkeypatch, capsys):
    """A process is ended at a random moment, and Ctrl-C comes to what goes on from there."""
    draw = random.Random(kills.seed_of_draws())
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert train.main(command.flags(whole)) == 0
    # Ctrl-C is a request to save: one line says so, and no more is said.
    stopped = "train: stopped on request: step "
    number, moments = draw.choice(
        [
            (signal.SIGKILL, ["compile", "evaluation", "save", "save", "steps"]),
            (signal.SIGINT, ["steps"]),
        ]
    )
    at, process = kills.kill(command, broken, draw.choice(moments), draw, number, AS_HERE)
    if at is not None and number == signal.SIGINT:
        assert process.process.returncode == EXIT_CODE
        assert process.lines[-1].startswith(f"{stopped}{saved_steps(broken)[-1]} ")
        assert "Traceback" not in "".join(process.lines)

    begin = max(saved_steps(broken), default=0)
    if begin >= LAST - 2:  # no step is left at which nothing is saved otherwise
        shutil.rmtree(broken)
        begin = 0
    step = draw.choice([each for each in range(begin + 1, LAST) if each % SAVE_EVERY])
    with monkeypatch.context() as patched:
        press_ctrl_c_at(patched, step)
        capsys.readouterr()
        assert train.main(command.flags(broken)) == EXIT_CODE
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"{stopped}{step} is saved in ")
    assert saved_steps(broken)[-1] == step
    assert train.main(command.flags(broken)) == 0
    same = kills.bits(broken) == kills.bits(whole)
    assert same  # pytest would look for minutes for what differs
    assert kills.lines(broken) == kills.lines(whole)


def test_ctrl_c_before_there_is_anything_to_save_ends_with_one_line(command, tmp_path):
    draw = random.Random(kills.seed_of_draws())
    process = command.start(tmp_path / "early")
    hears = Path(f"/proc/{process.process.pid}/task")  # by a second thread
    assert process.wait_for(lambda: len(list(hears.iterdir())) > 1)
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

"""Ctrl-C at random moments of real processes: one status, not a word, and files that are whole.

The long form is benchmarks/interrupts.py.
"""

import random
import subprocess
import sys

import pytest
from long_forms import IS_LONG

from benchmarks import interrupts, kills


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> dict[str, list[str]]:
    return interrupts.make_commands(tmp_path_factory.mktemp("interrupts"))


@pytest.mark.parametrize("name", ["ask", "infer", "eval", "index"])
def test_ctrl_c_ends_a_command_with_130_and_no_word(name, commands):
    draw = random.Random(f"{kills.seed_of_draws()}/{name}")
    for _ in range(3 if IS_LONG else 1):
        ending = interrupts.interrupt(commands[name], draw.uniform(0, 6))
        assert ending.at_once, ending


@pytest.mark.parametrize(("handler", "ignored"), [("SIG_IGN", True), ("SIG_DFL", False)])
def test_a_command_that_is_done_is_told_from_one_at_work(handler, ignored):
    code = f"import signal; signal.signal(2, signal.{handler}); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        assert interrupts.ignores_interrupts(process.pid) is ignored
        process.communicate("\n")
    assert interrupts.ignores_interrupts(process.pid)

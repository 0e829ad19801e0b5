"""Sides of a comparison as processes of their own, which take turns at the same work.

A benchmark gives each side a function that makes it ready and returns what does one turn. Sides run
in turns so that all see the same machine, and a figure is the median of the turns' ratios.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

# One turn: from its number to what it reports beside time and memory.
Turn = Callable[[int], dict[str, float]]


def announce(note: str) -> None:
    """Says, in a side's process, that it is ready, and which versions of what it is."""
    print(json.dumps({"note": note}), flush=True)


def serve(turn: Turn) -> None:
    """Answers each line of input, in a side's process, with a turn's seconds and peak memory."""
    for line in sys.stdin:
        begun = time.perf_counter()
        found = turn(int(line))
        seconds = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"seconds": seconds, "peak_gib": peak, **found}), flush=True)


class Side:
    """One side's process: this script run by some Python with `--work NAME --settings JSON`."""

    def __init__(self, python: str, script: str, name: str, settings: dict[str, Any]):
        command = [python, script, "--work", name, "--settings", json.dumps(settings)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name = " ".join([name, *(f"{k}={v}" for k, v in settings.items())])
        self.turns: list[dict[str, float]] = []
        self.note = self._answer()["note"]

    def turn(self, number: int) -> dict[str, float]:
        """One turn, waited for."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends the process, and so frees the device that it holds."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # peers print things of their own
                return json.loads(line)
        sys.exit("a side ended early; its message is above")


def add_worker_flags(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """The flags by which a script is called as one of its sides."""
    parser.add_argument("--work", choices=list(names), help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, default={}, help=argparse.SUPPRESS)


def take_turns(sides: list[Side], rounds: int, warm_up: int = 2) -> None:
    """Lets the sides take turns; their `turns` hold what came after the warm-up."""
    for number in range(warm_up + rounds):
        for side in sides:
            found = side.turn(number)
            if number >= warm_up:
                side.turns.append(found)


def median_ratio(side: Side, reference: Side, name: str = "seconds") -> float:
    """The median over the turns of a figure of one side divided by the other's."""
    pairs = zip(side.turns, reference.turns, strict=True)
    return statistics.median(ours[name] / theirs[name] for ours, theirs in pairs)

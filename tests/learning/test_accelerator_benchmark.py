"""The benchmark for accelerators, at toy size: what its sides report, and what is made of it."""

import math

import pytest

from benchmarks import accelerator
from benchmarks.same_model import SIZES, our_config


class Side:
    """A side that has had its turns."""

    def __init__(self, name, turns):
        self.name, self.turns, self.note = name, turns, "a note"


def test_training_is_measured_and_learns():
    rows, length = 2, 32
    turn = accelerator.train("toy", rows, length, microbatches=2)
    losses = [turn(0)["loss"] for _ in range(8)]
    assert losses[0] == pytest.approx(math.log(SIZES["toy"].vocabulary), abs=0.5)
    assert losses[-1] < losses[0]


def test_sampling_is_measured_free_and_in_a_quote():
    turn = accelerator.sample("toy", rows=3, tokens=48)
    turn(0)  # compiles
    found = turn(1)
    # Free samples are as long as the longest quote, and never end before.
    assert found["tokens"] % 3 == 0
    assert 30 < found["tokens"] / 3 <= 48
    assert found["seconds"] > 0
    assert 0.2 < found["of_constraint"] < 5


def test_what_is_made_of_the_turns():
    ours = [{"seconds": s, "peak_gib": 1.0, "loss": 2.0} for s in (2.0, 4.0, 1.0)]
    peers = [{"seconds": s, "peak_gib": 3.0, "loss": 2.1} for s in (4.0, 4.0, 4.0)]
    flops = our_config(SIZES["toy"]).training_flops(16, 64)
    first, second = accelerator.training_figures(
        [Side("train", ours), Side("train_torch", peers)], flops, 16 * 64, peak=1e9
    )
    assert (first["seconds_a_step"], first["tokens_a_second"]) == (2, 512)
    assert first["mfu"] == pytest.approx(flops / 2e9)
    assert second["tflops"] == pytest.approx(flops / 4e12)
    assert second["time_of_ours"] == 2  # the median of 2, 1 and 4

    ours = [{"tokens": 100, "seconds": s, "of_constraint": c, "peak_gib": 1.0}
            for s, c in ((1.0, 1.5), (2.0, 1.1), (4.0, 1.2))]  # fmt: skip
    peers = [{"tokens": 200, "seconds": 8.0, "peak_gib": 1.0}] * 3
    first, second = accelerator.sampling_figures([Side("sample", ours), Side("hf", peers)], 16)
    assert (first["tokens_a_second"], first["with_constraint"]) == (50, 1.2)
    assert second["rate_of_ours"] == 0.5  # the median of 0.25, 0.5 and 1
    assert "with_constraint" not in second
    for figure in (first, second):
        (line,) = accelerator.lines_of(figure)
        assert line.count("|") == 5

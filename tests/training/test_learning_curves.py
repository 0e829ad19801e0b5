"""Learning curves: what the run's metrics say, point by point."""

import json
import pathlib

import pytest

from gophercite.evaluation import figures
from gophercite.training.learning_curves import learning_curves


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    lines = [
        {"step": 0, "split": "validation", "eval/validation/loss": 4.0},
        {"step": 1, "split": "train", "loss/total": 3.0, "grad": None},
        {"step": 10, "split": "train", "loss/total": 2.0, "grad": 0.5},
        {"step": 10, "split": "validation", "eval/validation/loss": 2.5},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_a_panel_for_each_and_its_metrics_by_step(run: pathlib.Path) -> None:
    panels = {"loss": ["loss/total", "eval/validation/loss"], "gradient": "grad"}
    figure = learning_curves(run, panels)
    loss, gradient = figure.axes
    assert (loss.get_ylabel(), gradient.get_ylabel()) == ("loss", "gradient")
    found = [
        [(line.get_label().strip("\u200b"), line.get_xydata().tolist()) for line in axes.lines]
        for axes in (loss, gradient)
    ]
    assert found == [
        [
            ("loss/total", [[1.0, 3.0], [10.0, 2.0]]),
            ("eval/validation/loss", [[0.0, 4.0], [10.0, 2.5]]),
        ],
        [("grad", [[10.0, 0.5]])],
    ]
    training, validation = loss.lines
    assert training.get_marker() == "None"
    assert validation.get_marker() != "None"
    assert figures.png(figure).startswith(b"\x89PNG")


def test_an_unknown_metric_is_refused_with_those_that_are_known(run: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"has 'loss'; it has eval/validation/loss, grad, loss"):
        learning_curves(run, {"loss": "loss"})

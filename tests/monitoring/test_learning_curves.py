"""Learning curves: what the run's metrics say, point by point."""

import json
import pathlib
import subprocess
import sys

import pytest
from etils import epath

from gophercite.monitoring.learning_curves import learning_curves, report_curves
from gophercite.reports import figures
from gophercite.training.run_folder import draw_curves, report


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
    with pytest.raises(
        ValueError, match=r"no metric 'loss'; there are eval/validation/loss, grad, loss"
    ):
        learning_curves(run, {"loss": "loss"})


def test_a_report_shows_what_the_run_measured_more_than_once(run: pathlib.Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for step in (1, 10):
            rewards = {"objective/scores": step / 10, "objective/kl": step / 5, "time/step": 1.0}
            file.write(json.dumps({"step": step, "split": "train", **rewards}) + "\n")
        kl = {"step": 10, "split": "validation", "eval/validation/kl": 0.1}
        file.write(json.dumps(kl) + "\n")
    figure = report_curves(run)
    shown = {
        axes.get_ylabel(): [line.get_label().strip("\u200b") for line in axes.lines]
        for axes in figure.axes
    }
    assert shown == {
        "loss": ["loss/total", "eval/validation/loss"],
        "reward": ["objective/scores"],
        "divergence from the teacher, nats": ["objective/kl"],
    }
    markdown = draw_curves(epath.Path(run))
    assert markdown == "![metrics by step](curves.png)"
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert markdown in report(epath.Path(run), ["ended"], None, markdown)


def test_a_report_without_matplotlib_says_so(run: pathlib.Path) -> None:
    """In a process of its own, in which there is none to import."""
    code = (
        "import gc, sys; gc.disable(); sys.modules['matplotlib'] = None\n"
        "from etils import epath; from gophercite.training.run_folder import draw_curves\n"
        f"print(draw_curves(epath.Path({str(run)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install gophercite[report]" in done.stdout
    assert not (run / "curves.png").exists()

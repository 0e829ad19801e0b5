"""Figures of a run's metrics by step.

Needs matplotlib (`pip install gophercite[report]`), which only this module imports.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.figure import Figure

from gophercite.monitoring.metrics import TRAIN, read_metrics
from gophercite.reports.figures import legend_label, line_style, without_frame

_MOST_IN_A_ROW = 3
# The panels of a report: label of the y-axis, and the metrics to show if the run has them.
_PANELS = {
    "loss": r"loss/total|eval/[^/]+/loss",
    "accuracy": r"accuracy/\w+|eval/[^/]+/(\w+_)?accuracy(/\w+)?",
    "reward": r"objective/scores|eval/[^/]+/reward",
    "divergence from the teacher, nats": r"objective/kl|eval/[^/]+/kl",
    "explained variance of rewards": r"critic/vf_explained_var",
    "answers with a fault": r"faults/any|eval/[^/]+/faults",
    "verbatim answers": r"eval/[^/]+/verbatim",
}


def report_curves(folder: epath.PathLike) -> Figure | None:
    """The curves in a run's report: losses and other metrics of quality.

    Args:
      folder: the run's folder.

    Returns:
      A panel for each kind of metric that has values at two steps or more; None if there is none.
    """
    steps: dict[str, set[int]] = {}
    for line in read_metrics(folder):
        for name, value in line.items():
            if value is not None:
                steps.setdefault(name, set()).add(line["step"])
    names = [name for name, at in steps.items() if len(at) > 1]
    names.sort(key=lambda name: name.startswith("eval/"))  # training metrics first
    panels = {
        shown: [name for name in names if re.fullmatch(pattern, name)]
        for shown, pattern in _PANELS.items()
    }
    panels = {shown: names for shown, names in panels.items() if names}
    return learning_curves(folder, panels) if panels else None


def learning_curves(folder: epath.PathLike, panels: Mapping[str, str | Sequence[str]]) -> Figure:
    """Draws metrics of a run by step, in panels side by side, at most three in a row.

        learning_curves("runs/sft", {"loss": ["loss/total", "eval/validation/loss"]})

    Training metrics are drawn as lines; evaluation metrics also have a marker at each evaluation.

    Args:
      folder: the run's folder.
      panels: names of metrics by the label of their panel's y-axis.

    Raises:
      ValueError: the run has no such metric; the message lists those that it has.
    """
    lines = read_metrics(folder)
    columns = min(len(panels), _MOST_IN_A_ROW)
    rows = math.ceil(len(panels) / _MOST_IN_A_ROW)
    figure = Figure(figsize=(4.5 * columns, 3.2 * rows), layout="constrained")
    for place, (shown, names) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for number, name in enumerate([names] if isinstance(names, str) else names):
            steps, values, split = _series(lines, name, folder)
            style = line_style(number, marker=split != TRAIN)
            axes.plot(steps, values, label=legend_label(name), **style)
        axes.set_xlabel("step")
        axes.set_ylabel(shown)
        without_frame(axes)
        axes.legend(fontsize="small", frameon=False)
    return figure


def _series(
    lines: Sequence[Mapping[str, Any]], name: str, folder: epath.PathLike
) -> tuple[list[int], list[float], str]:
    """Steps and values of a metric, and its split."""
    found = [line for line in lines if line.get(name) is not None]
    if not found:
        known = sorted({key for line in lines for key in line} - {"step", "split"})
        has = f"; there are {', '.join(known)}" if known else ""
        raise ValueError(f"{folder}: metrics.jsonl has no metric {name!r}{has}")
    steps, values = [line["step"] for line in found], [line[name] for line in found]
    return steps, values, str(found[0]["split"])

"""How a run went: its metrics by step, as figures.

Needs matplotlib (`pip install gophercite[report]`), which is imported with this module alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from matplotlib.figure import Figure

from gophercite.evaluation.figures import legend_label, line_style, without_frame
from gophercite.training.metrics import TRAIN, read_metrics


def learning_curves(folder: epath.PathLike, panels: Mapping[str, str | Sequence[str]]) -> Figure:
    """Draws metrics of a run by step, in panels side by side.

        learning_curves("runs/sft", {"loss": ["loss/total", "eval/validation/loss"]})

    What training logs is a line; what evaluations say has a marker at each of them.

    Args:
      folder: the run's.
      panels: names of metrics by what their panel's y-axis shows.

    Raises:
      ValueError: no line of the run has such a metric; the message names those that it has.
    """
    lines = read_metrics(folder)
    figure = Figure(figsize=(4.5 * len(panels), 3.2), layout="constrained")
    for place, (shown, names) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
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
    """Steps and values of a metric, and the split that has it."""
    found = [line for line in lines if line.get(name) is not None]
    if not found:
        known = sorted({key for line in lines for key in line} - {"step", "split"})
        has = f"; it has {', '.join(known)}" if known else ""
        raise ValueError(f"{folder}: no line of metrics.jsonl has {name!r}{has}")
    steps, values = [line["step"] for line in found], [line[name] for line in found]
    return steps, values, str(found[0]["split"])

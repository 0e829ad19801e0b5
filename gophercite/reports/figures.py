"""The paper's figures from results: coverage, best of N, model scale, ROC.

Needs matplotlib (`pip install gophercite[report]`), which only this module and its users import.
Colours are those of Okabe and Ito (2008), which people with any colour vision can tell apart; lines
also differ in dash and marker, so that they can be told apart in greyscale print.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from gophercite.evaluation.abstention import CoverageCurve
from gophercite.evaluation.intervals import Estimate
from gophercite.evaluation.roc import RocCurve

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def coverage_figure(
    curves: Mapping[str, CoverageCurve], quality: str = "good answers, of those given"
) -> Figure:
    """Quality by coverage (figures 4 and 11), with each curve's confidence band.

    Args:
      curves: by the score that answers are ranked by.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    for number, (name, curve) in enumerate(curves.items()):
        style = line_style(number, marker=False)
        # As its area: what it takes to answer at least so many, by whole groups of equal scores.
        places = np.append(0.0, curve.coverage)
        shares, low, high = (
            np.append(each[0], each) for each in (curve.quality, curve.low, curve.high)
        )
        axes.step(places, shares, where="pre", label=legend_label(name), **style)
        axes.fill_between(places, low, high, step="pre", alpha=0.15, color=style["color"])
    axes.set_xlabel("questions answered")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0, 1)
    return _finished(figure, axes, quality)


def best_of_figure(
    systems: Mapping[str, Mapping[int, Estimate]], quality: str = "supported and plausible"
) -> Figure:
    """Quality by the number of samples that the best is chosen from (figures 5 and 6).

    Args:
      systems: share of good answers by N, for each system.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    _shares(axes, systems)
    axes.set_xscale("log", base=2)
    sizes = sorted({size for shares in systems.values() for size in shares})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("samples to choose from")
    return _finished(figure, axes, quality)


def scale_figure(
    systems: Mapping[str, Mapping[int, Estimate]], quality: str = "supported and plausible"
) -> Figure:
    """Quality by the number of a model's parameters (figure 7).

    Args:
      systems: share of good answers by number of parameters, for each way to answer.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    _shares(axes, systems)
    axes.set_xscale("log")
    sizes = sorted({size for shares in systems.values() for size in shares})
    axes.set_xticks(sizes, [parameters_in_words(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("parameters")
    return _finished(figure, axes, quality)


def rounds_figure(
    systems: Mapping[str, Mapping[int, Estimate]], quality: str = "supported and plausible"
) -> Figure:
    """Quality by the loop's rounds (GopherCite, section 2.4).

    Args:
      systems: share of good answers by round, for each way to answer.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    _shares(axes, systems)
    _by_round(axes, sorted({number for shares in systems.values() for number in shares}))
    return _finished(figure, axes, quality)


def growth_figure(amounts: Mapping[str, Sequence[float]]) -> Figure:
    """How data grows round by round (figure 3).

    Args:
      amounts: amount of each kind of data after each round.
    """
    figure, axes = _figure()
    for number, (name, counts) in enumerate(amounts.items()):
        axes.plot(range(len(counts)), counts, label=legend_label(name), **line_style(number))
    _by_round(axes, range(max(map(len, amounts.values()))))
    axes.set_ylabel("number so far")
    axes.set_ylim(0)
    without_frame(axes)
    axes.legend(fontsize="small", frameon=False)
    return figure


def roc_figure(curves: Mapping[str, RocCurve]) -> Figure:
    """ROC curves of scores as judges of good answers, with their areas.

    Args:
      curves: by the score that answers are ranked by.
    """
    figure, axes = _figure()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle=":", label="chance (area 0.50)")
    for number, (name, curve) in enumerate(curves.items()):
        label = f"{legend_label(name)} (area {curve.area:.2f})"
        style = line_style(number, marker=False)
        axes.plot(curve.false_positives, curve.true_positives, label=label, **style)
    axes.set_xlabel("bad answers let through")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0, 1)
    return _finished(figure, axes, "good answers let through")


def png(figure: Figure) -> bytes:
    """Returns a figure as PNG; the same figure gives the same bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=144, metadata={"Software": None})
    return file.getvalue()


def parameters_in_words(count: int) -> str:
    """Returns a number of parameters in the usual short form: 44M, 1.4B."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 0.9995 * size:  # below it rounds to 999 of the unit below
            value = count / size
            return f"{value:.1f}".removesuffix(".0") + unit if value < 10 else f"{value:.0f}{unit}"
    return str(count)


def legend_label(name: str) -> str:
    """Returns a name that is shown literally: matplotlib reads $ as formulas and skips _ names."""
    return "\u200b" + name.replace("$", r"\$")


def line_style(number: int, *, marker: bool = True) -> dict[str, Any]:
    """Returns colour, dash and marker of a figure's lines, by their number from 0."""
    style = {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
    }
    return style | {"marker": _MARKERS[number % len(_MARKERS)]} if marker else style


def without_frame(axes: Axes) -> None:
    """Removes the frame's upper and right lines, and draws a grid behind the data."""
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    return figure, figure.add_subplot()


def _shares(axes: Axes, systems: Mapping[str, Mapping[int, Estimate]]) -> None:
    for number, (name, shares) in enumerate(systems.items()):
        places = sorted(shares)
        style = line_style(number)
        axes.plot(
            places, [shares[place].mean for place in places], label=legend_label(name), **style
        )
        low, high = ([getattr(shares[p], end) for p in places] for end in ("low", "high"))
        axes.fill_between(places, low, high, alpha=0.15, color=style["color"])


def _by_round(axes: Axes, rounds: Sequence[int]) -> None:
    axes.set_xticks(rounds, [str(number) for number in rounds])
    axes.set_xlabel("round")


def _finished(figure: Figure, axes: Axes, quality: str) -> Figure:
    axes.set_ylabel(legend_label(quality))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.01)
    without_frame(axes)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small", frameon=False)
    return figure

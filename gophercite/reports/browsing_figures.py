"""WebGPT's figures: shares as bars, preference by n, scaling, and worth by compute.

Needs matplotlib (`pip install gophercite[report]`), which only this module imports.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from gophercite.evaluation.browsed_results import frontier
from gophercite.reports.figures import (
    legend_label,
    line_style,
    parameters_in_words,
    without_frame,
)


class Range(Protocol):
    """A mean with its interval."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def low(self) -> float:
        """Its lower end."""

    @property
    def high(self) -> float:
        """Its upper end."""


def bars_figure(
    series: Mapping[str, Mapping[str, Range]], quality: str, *, chance: float | None = None
) -> Figure:
    """Shares as bars with their intervals (figures 2 to 4, and 11).

    Args:
      series: one colour per series; each gives its share in each group of bars.
      quality: label of the y-axis.
      chance: where to draw a horizontal line, such as 0.5 for no preference.
    """
    figure, axes = _figure()
    groups = list(dict.fromkeys(group for shares in series.values() for group in shares))
    width = 0.8 / max(1, len(series))
    for number, (name, shares) in enumerate(series.items()):
        places = [groups.index(group) + width * (number + 0.5) - 0.4 for group in shares]
        means = [share.mean for share in shares.values()]
        below = [max(0.0, share.mean - share.low) for share in shares.values()]
        above = [max(0.0, share.high - share.mean) for share in shares.values()]
        axes.bar(
            places,
            means,
            width * 0.9,
            yerr=[below, above],
            capsize=3,
            color=line_style(number)["color"],
            label=legend_label(name),
        )
    if chance is not None:
        axes.axhline(chance, color="0.4", linewidth=1, linestyle=":")
    axes.set_xticks(range(len(groups)), [legend_label(group) for group in groups])
    return _in_percent(figure, axes, quality)


def stacked_figure(shares: Mapping[str, Mapping[str, float]], quality: str) -> Figure:
    """Parts of a total as stacked bars (figure 12).

    Args:
      shares: share of each part, by bar; all bars have the same parts.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    parts = list(dict.fromkeys(part for parts_of_bar in shares.values() for part in parts_of_bar))
    floor = np.zeros(len(shares))
    for number, part in enumerate(parts):
        heights = np.array([parts_of_bar.get(part, 0.0) for parts_of_bar in shares.values()])
        axes.bar(
            range(len(shares)),
            heights,
            0.7,
            bottom=floor,
            color=line_style(number)["color"],
            label=legend_label(part),
        )
        floor += heights
    axes.set_xticks(range(len(shares)), [legend_label(bar) for bar in shares])
    return _in_percent(figure, axes, quality)


def preference_by_n_figure(
    lines: Mapping[str, Mapping[int, Range]], people: Mapping[int, Range], quality: str
) -> Figure:
    """How often the best of n is preferred, by n (figure 5).

    Args:
      lines: shares by n, for each prediction.
      people: people's preferences, by n.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    _lines(axes, lines)
    if people:
        sizes = sorted(people)
        means = [people[n].mean for n in sizes]
        reach = [
            [people[n].mean - people[n].low for n in sizes],
            [people[n].high - people[n].mean for n in sizes],
        ]
        axes.errorbar(sizes, means, yerr=reach, fmt="k*", markersize=9, capsize=3, label="people")
    axes.axhline(0.5, color="0.4", linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    ticks = sorted({*people, *(n for shares in lines.values() for n in shares)})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xlabel("answers to choose from")
    return _in_percent(figure, axes, quality)


def scaling_figure(
    sizes: Mapping[int, Mapping[float, Range]], amount: str, quality: str, *, percent: bool
) -> Figure:
    """Worth by the share of a data set, with a line for each model size (figures 6 and 7).

    Args:
      sizes: worth by share of the data, for each number of parameters.
      amount: label of the x-axis.
      quality: label of the y-axis.
      percent: whether the values are shares.
    """
    figure, axes = _figure()
    named = {
        f"{parameters_in_words(count)} parameters": worths
        for count, worths in sorted(sizes.items())
    }
    _lines(axes, named)
    axes.set_xscale("log", base=2)
    ticks = sorted({share for worths in sizes.values() for share in worths})
    axes.set_xticks(ticks, [f"{share:g}" for share in ticks])
    axes.minorticks_off()
    axes.set_xlabel(amount)
    axes.set_ylabel(legend_label(quality))
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return _legend(figure, axes)


def compute_figure(
    systems: Mapping[str, Sequence[tuple[int, float, Range]]], quality: str
) -> Figure:
    """Worth by floating point operations, and the frontier of the points worth their cost (fig. 8).

    Args:
      systems: for each system its points: the n of best of n, its operations and its worth.
      quality: label of the y-axis.
    """
    figure, axes = _figure()
    for number, (name, points) in enumerate(systems.items()):
        costs, worths = [cost for _, cost, _ in points], [worth.mean for _, _, worth in points]
        style = line_style(number)
        axes.plot(costs, worths, label=legend_label(name), **style)
        axes.fill_between(
            costs,
            [worth.low for _, _, worth in points],
            [worth.high for _, _, worth in points],
            alpha=0.12,
            color=style["color"],
        )
        for n, cost, worth in points:
            axes.annotate(
                str(n), (cost, worth.mean), xytext=(3, 4), textcoords="offset points", fontsize=7
            )
    best = frontier(
        [
            (cost, worth.mean)
            for points_of_system in systems.values()
            for _, cost, worth in points_of_system
        ]
    )
    axes.plot(*zip(*best, strict=True), color="0.5", linewidth=3, alpha=0.5, zorder=0,
              label="worth its cost")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("floating point operations per answer")
    axes.set_ylabel(legend_label(quality))
    return _legend(figure, axes)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    return figure, figure.add_subplot()


def _lines(axes: Axes, lines: Mapping[str, Mapping[Any, Range]]) -> None:
    for number, (name, worths) in enumerate(lines.items()):
        style, points = line_style(number), sorted(worths.items())
        places = [place for place, _ in points]
        axes.plot(places, [worth.mean for _, worth in points], label=legend_label(name), **style)
        low, high = [worth.low for _, worth in points], [worth.high for _, worth in points]
        axes.fill_between(places, low, high, alpha=0.15, color=style["color"])


def _in_percent(figure: Figure, axes: Axes, quality: str) -> Figure:
    axes.set_ylabel(legend_label(quality))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.01)
    return _legend(figure, axes)


def _legend(figure: Figure, axes: Axes) -> Figure:
    without_frame(axes)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small", frameon=False)
    return figure

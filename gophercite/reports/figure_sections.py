"""The figures that can be drawn from results of one or several systems, as a report section."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gophercite.evaluation.curves import SCORES, Line, best_of, coverage_curves, good_by, roc_curves
from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.reports.report_files import Image, Section

T = TypeVar("T")

FIGURES = ("coverage", "roc", "best_of", "scale")  # names of all images that a section may have

_IN_WORDS = {"supported": "supported and plausible", "claim_correct": "claim correct"}


@dataclasses.dataclass(frozen=True)
class SavedSystem:
    """A system's result lines.

    Attributes:
      name: the system's name.
      answers: one line per question.
      samples: lines of all samples.
      parameters: number of its model's parameters, if known.
    """

    name: str
    answers: Sequence[Line]
    samples: Sequence[Line]
    parameters: int | None = None


def figures_section(systems: Mapping[str, SavedSystem]) -> Section:
    """Draws every figure that the systems' lines have the numbers for.

    Coverage curves and ROC of each score (figures 4 and 11), the best of N (figures 5 and 6), and
    quality by model size (figure 7) if the systems' models all have different sizes.

    Args:
      systems: by the names that legends show; a single system may have an empty name.
    """
    good = good_by(line for system in systems.values() for line in system.answers)
    if good is None:
        return Section()
    if importlib.util.find_spec("matplotlib") is None:
        return Section("Figures", ["Figures need matplotlib: pip install gophercite[report]"])
    from gophercite.reports import figures  # here: without matplotlib reports have no figures

    quality = _IN_WORDS[good]
    images: dict[str, Image] = {}

    def add(name: str, figure: figures.Figure, caption: str) -> None:
        images[name] = Image(figures.png(figure), caption)

    coverage = _all(systems, lambda system: coverage_curves(system.answers, good))
    if coverage:
        caption = f"Declining to answer: of the answers given, those {quality}, by coverage"
        add("coverage", figures.coverage_figure(coverage, quality), caption)
    roc = _all(systems, lambda system: roc_curves(system.answers, good))
    if roc:
        add("roc", figures.roc_figure(roc), f"Scores as classifiers of {quality} answers (ROC)")
    best = _all(systems, lambda system: _best_of_each_score(system, good))
    if best:
        caption = f"The best of N samples: share {quality}, by N"
        add("best_of", figures.best_of_figure(best, quality), caption)
    scale = _by_size(systems, good)
    if len(scale) > 1:
        caption = f"Model scale: share {quality}, by parameters"
        add("scale", figures.scale_figure({"answer that counts": scale}, quality), caption)
    return Section("Figures", images=images) if images else Section()


def _all(
    systems: Mapping[str, SavedSystem], draw: Callable[[SavedSystem], Mapping[str, T]]
) -> dict[str, T]:
    """The curves of all systems, named after the system and the curve."""
    return {
        ", ".join(filter(None, (name, curve_name))): curve
        for name, system in systems.items()
        for curve_name, curve in draw(system).items()
    }


def _best_of_each_score(system: SavedSystem, good: str) -> dict[str, Mapping[int, Estimate]]:
    found = {
        f"by {name}": best_of(system.samples, score, good)
        for score, name in SCORES.items()
        if score != "consensus"  # with all samples: it would differ among fewer
    }
    return {name: shares for name, shares in found.items() if len(shares) > 1}


def _by_size(systems: Mapping[str, SavedSystem], good: str) -> dict[int, Estimate]:
    """The systems' quality by their size; empty if two systems have the same."""
    found: dict[int, Estimate] = {}
    for system in systems.values():
        labels = [float(line[good]) for line in system.answers if line.get(good) is not None]
        if system.parameters is not None and labels:
            if system.parameters in found:
                return {}
            found[system.parameters] = estimate(labels)
    return found

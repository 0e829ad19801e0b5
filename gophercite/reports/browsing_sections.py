"""The sections of a report on browsing policies: tables, and WebGPT's figures 2 and 4 to 8."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gophercite.evaluation.browsed_results import (
    CHOSEN_BY,
    JUDGES,
    TRUTH,
    VALIDATION,
    BrowsedPolicy,
    Interval,
    effect_of_doubling,
    preferred,
    resampled,
)
from gophercite.evaluation.intervals import Estimate
from gophercite.reports.browsed_preferences import preferences_table
from gophercite.reports.report_files import Image, Section
from gophercite.reports.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple[Callable[[], "Figure"], str]

_SHARES = ("supported", "right")
_NO_FIGURES = "Figures need matplotlib: pip install gophercite[report]"


class Scaled(NamedTuple):
    """One run of a scaling experiment.

    Attributes:
      share: share of the data set that the model was trained on, above 0.
      parameters: number of the model's parameters.
      worth: its result.
    """

    share: float
    parameters: int
    worth: Interval


def episodes_section(policies: Sequence[BrowsedPolicy]) -> Section:
    """The quality of one episode per question, and how the policy browses."""
    rows = []
    for policy in policies:
        cells = [
            _cell(resampled(policy.scores[name].mean(axis=1)), name)
            if name in policy.scores
            else "–"
            for name in ("supported", "right", CHOSEN_BY, VALIDATION)
        ]
        summary = policy.summary
        episode_count = f"{len(policy.questions)} × {policy.episodes}"
        actions, invalid = f"{summary['actions']:.1f}", f"{100 * summary['invalid']:.1f}"
        rows.append([policy.name, episode_count, *cells, actions, invalid])
    headings = ["policy", "questions × episodes", "supported %", "right %", "reward"]
    headings += ["validation reward", "actions", "invalid %"]
    text = ["Means over questions, with 90 % intervals from resampling the questions."]
    return Section("One episode per question", text, [Table(headings, rows)])


def best_of_section(policies: Sequence[BrowsedPolicy]) -> Section:
    """The quality of the best of n episodes, chosen by the reward model (appendix I)."""
    rows = []
    for policy in policies:
        if CHOSEN_BY not in policy.scores:
            continue
        for n in policy.sizes:
            cells = [
                _cell(resampled(policy.best_of(name, [n])[:, 0]), name)
                if name in policy.scores
                else "–"
                for name in (TRUTH, CHOSEN_BY, VALIDATION)
            ]
            rows.append([policy.name, str(n), *cells])
    if not rows:
        return Section()
    table = Table(["policy", "n", "supported %", "reward", "validation reward"], rows)
    text = ["The reward model chooses; estimated over all subsets of a question's episodes."]
    return Section("Best of n episodes", text, [table])


def training_methods_section(
    policies: Sequence[BrowsedPolicy], people: Mapping[int, Estimate] | None = None
) -> Section:
    """Preference of each policy over the first, and of the best of n over one (figures 4 and 5).

    Args:
      policies: the first is the baseline, such as WebGPT's behaviour-cloned one.
      people: how often people prefer the first policy's best of n over its single answer, by n.
    """
    baseline, *others = policies
    most = min(max(policy.sizes) for policy in policies)
    bars: dict[str, dict[str, Interval]] = {}
    for policy in others:
        for judge, name in JUDGES.items():
            found = {
                f"best of {n}": share
                for n in dict.fromkeys((1, most))
                if (share := preferred(policy, n, baseline, n, judge)) is not None
            }
            if found:
                bars[f"{policy.name} over {baseline.name}, {name}"] = found
    lines: dict[str, dict[int, Interval]] = {}
    for policy in policies:
        for judge, name in JUDGES.items():
            by_n = {
                n: share
                for n in policy.sizes
                if (share := preferred(policy, n, policy, 1, judge)) is not None
            }
            if len(by_n) > 1:
                lines[f"{policy.name}, {name}"] = by_n
    rows = [
        [name, answers, s.percent] for name, shares in bars.items() for answers, s in shares.items()
    ]
    rows += [
        [f"{name}, over its single answer", f"best of {n}", s.percent]
        for name, shares in lines.items()
        for n, s in shares.items()
        if n > 1
    ]
    rows += [
        [f"{baseline.name}, people, over its single answer", f"best of {n}", str(share)]
        for n, share in (people or {}).items()
    ]
    if not rows:
        return Section()
    images: dict[str, Drawn] = {}
    if bars:
        images["methods"] = (
            drawing("bars_figure", bars, f"preferred over {baseline.name}", chance=0.5),
            f"Preference over {baseline.name}, of single answers and of the best of {most} "
            "(figure 4)",
        )
    if lines or people:
        images["best_of_n"] = (
            drawing(
                "preference_by_n_figure",
                lines,
                people or {},
                "best of n preferred over a single answer",
            ),
            "Preference of the best of n episodes over one (figure 5)",
        )
    text = [
        "By a reward model: the sigmoid of the difference of mean scores. By the truth: the "
        "share of questions in which only this answer is supported, plus half of the ties. 90 % "
        "intervals over questions."
    ]
    table = Table(["preferred", "answers", "%"], rows)
    return illustrated("Comparison of training methods", text, [table], images)


def cloning_scaling_section(runs: Sequence[Scaled]) -> Section:
    """Scores of cloned policies by demonstrations and parameters (figure 6)."""
    return _scaling(
        runs,
        "Behaviour cloning by number of demonstrations and parameters",
        "proportion of demonstrations",
        "validation reward model's score",
        "demonstrations_scaling",
        6,
        percent=False,
    )


def reward_scaling_section(runs: Sequence[Scaled]) -> Section:
    """Accuracy of reward models by comparisons and parameters (figure 7)."""
    return _scaling(
        runs,
        "Reward models by number of comparisons and parameters",
        "proportion of comparisons",
        "accuracy",
        "comparisons_scaling",
        7,
        percent=True,
    )


def compute_section(policies: Sequence[BrowsedPolicy]) -> Section:
    """The validation score by the cost of an answer, for all n (figure 8).

    Policies without rewards, or whose summaries do not give the operations, are left out.
    """
    systems = {}
    for policy in policies:
        cost = policy.summary.get("operations")
        if not cost or VALIDATION not in policy.scores or CHOSEN_BY not in policy.scores:
            continue
        judged = policy.best_of(VALIDATION, policy.sizes)
        systems[policy.name] = [
            (n, n * float(cost), resampled(judged[:, place]))
            for place, n in enumerate(policy.sizes)
        ]
    if not systems:
        return Section()
    rows = [
        [name, str(n), f"{cost:.2e}", str(worth)]
        for name, points in systems.items()
        for n, cost, worth in points
    ]
    table = Table(["policy", "n", "operations", "validation reward"], rows)
    drawn: dict[str, Drawn] = {
        "compute": (
            drawing("compute_figure", systems, "validation reward model's score"),
            "Score of the best of n by operations; each point is labelled with its n (figure 8)",
        )
    }
    text = [
        "Operations: two per parameter for each token that the policy and the reward model read "
        "or write."
    ]
    return illustrated("Best of n by computation", text, [table], drawn)


def people_section(
    demonstrations: Mapping[str, Mapping[str, Estimate]],
    references: Mapping[str, Mapping[str, Estimate]],
) -> Section:
    """How often people prefer the answers, by criterion (section 4.1, figure 2).

    Args:
      demonstrations: `browsed_preferences.preferences` over demonstrations, by policy.
      references: the same over the data set's answers without citations, by policy.
    """
    tables: list[Table] = []
    images: dict[str, Drawn] = {}
    for name, systems, other in (
        ("over_demonstrations", demonstrations, "demonstrations"),
        ("over_references", references, "the data set's answers"),
    ):
        if not systems:
            continue
        named = {f"{system} over {other}": dict(shares) for system, shares in systems.items()}
        tables.append(preferences_table(named))
        images[name] = _preference_bars(systems, f"over {other}")
    if not tables:
        return Section()
    text = ["A tie counts half. 90 % intervals (Wilson's), wider than the paper's standard errors."]
    return illustrated("What people prefer", text, tables, images)


def _preference_bars(systems: Mapping[str, Mapping[str, Estimate]], over: str) -> Drawn:
    draw = drawing("bars_figure", systems, f"preferred {over}", chance=0.5)
    return draw, f"Preference {over} (figure 2)"


def _scaling(
    runs: Sequence[Scaled],
    heading: str,
    amount: str,
    quality: str,
    name: str,
    figure: int,
    *,
    percent: bool,
) -> Section:
    if not runs:
        return Section()
    sizes: dict[int, dict[float, Interval]] = {}
    for run in runs:
        sizes.setdefault(run.parameters, {})[run.share] = run.worth
    rows = [
        [f"{run.share:g}", f"{run.parameters:,}", run.worth.percent if percent else str(run.worth)]
        for run in sorted(runs, key=lambda run: (run.parameters, run.share))
    ]
    slopes = effect_of_doubling([((run.share, run.parameters), run.worth.mean) for run in runs])
    text = [
        f"Doubling the {what} changes it by {_points(slope, percent)} (least squares)."
        for what, slope in zip(("data", "parameters"), slopes, strict=True)
        if slope is not None
    ]
    drawn: dict[str, Drawn] = {
        name: (
            drawing("scaling_figure", sizes, amount, quality, percent=percent),
            f"{quality[0].upper()}{quality[1:]} by {amount} (figure {figure})",
        )
    }
    unit = f"{quality} %" if percent else quality
    return illustrated(heading, text, [Table([amount, "parameters", unit], rows)], drawn)


def _points(slope: float, percent: bool) -> str:
    # Adding 0 turns negative zero into zero.
    points, score = round(100 * slope, 1) + 0.0, round(slope, 2) + 0.0
    return f"{points:+.1f} points of a hundred" if percent else f"{score:+.2f}"


def illustrated(
    heading: str, text: Sequence[str], tables: Sequence[Table], drawn: Mapping[str, Drawn]
) -> Section:
    """Returns a section with its figures, or without them if matplotlib is not installed.

    Args:
      heading, text, tables: content of the section.
      drawn: for each figure's name, a function that draws it, and its caption.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return Section(heading, [*text, _NO_FIGURES] if drawn else text, tables)
    from gophercite.reports.figures import png

    images = {name: Image(png(draw()), caption) for name, (draw, caption) in drawn.items()}
    return Section(heading, text, tables, images)


def drawing(name: str, *data: object, **options: object) -> "Callable[[], Figure]":
    """Returns a function that draws a figure when called: matplotlib may not be installed.

    Args:
      name: name of a function in `browsing_figures`.
      data, options: its arguments.
    """

    def draw() -> "Figure":
        from gophercite.reports import browsing_figures

        figure: Figure = getattr(browsing_figures, name)(*data, **options)
        return figure

    return draw


def _cell(worth: Interval, name: str) -> str:
    return worth.percent if name in _SHARES else str(worth)

"""Curves from result lines, and the figures that show them."""

import io
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.cbook import STEP_LOOKUP_MAP
from PIL import Image

from gophercite.evaluation import curves
from gophercite.evaluation.abstention import coverage_curve
from gophercite.evaluation.intervals import estimate
from gophercite.reports import figures
from gophercite.reports.browsing_figures import preference_by_n_figure
from gophercite.reports.figure_sections import SavedSystem, figures_section


def line(question: int, log_prob: float, supported: bool | None, **more: object) -> curves.Line:
    return {
        "question_id": str(question), "log_prob": log_prob, "supported": supported,
        "claim_correct": True, **more,
    }  # fmt: skip


# Two questions with four samples: the likeliest is good, and one other; a third has one only.
SAMPLES = [line(q, -n, n in (0, 3), reward=float(n)) for q in range(2) for n in range(4)]
ODD = line(2, -1.0, False, reward=0.0)
ANSWERS = [line(n, -n, n < 3, reward=-n) for n in range(5)]


def test_the_best_of_n_by_each_score() -> None:
    found = curves.best_of([*SAMPLES, ODD], "log_prob", "supported")
    assert {size: share.mean for size, share in found.items()} == pytest.approx(
        {1: 0.5, 2: 0.5, 4: 1.0}  # of pairs, three of six have the likeliest of all
    )
    assert found[4].count == 2
    assert curves.best_of([line(0, 0.0, None)], "log_prob", "supported") == {}


def test_a_sample_whose_quote_lacks_its_claim_is_the_best_only_alone() -> None:
    marked = [
        {**each, "quote_lacks_claim": True} if each["log_prob"] == 0 else each for each in SAMPLES
    ]
    found = curves.best_of(marked, "log_prob", "supported")
    # The likeliest is marked, and the next one is wrong; the other good one is the least likely.
    assert {size: share.mean for size, share in found.items()} == pytest.approx(
        {1: 0.5, 2: 1 / 6, 4: 0.0}
    )


def test_questions_with_more_samples_count_with_all_of_them() -> None:
    """Lines come with the likeliest first: the first four would be the best four."""
    many = [line(2, -n, n < 4) for n in range(8)]
    found = curves.best_of([*SAMPLES, *many], "log_prob", "supported")
    assert found[1].mean == pytest.approx(0.5)
    chances = 1 - 1 / math.comb(8, 4)  # that one of the better half is among four
    assert found[4].mean == pytest.approx((1 + 1 + chances) / 3)
    assert found[4].count == 3


def test_curves_are_of_scores_that_all_answers_have() -> None:
    assert curves.good_by(ANSWERS) == "supported"
    assert curves.good_by([line(0, 0.0, None)]) == "claim_correct"
    assert curves.good_by([{"question_id": "q"}]) is None
    coverage = curves.coverage_curves(ANSWERS, "supported")
    assert list(coverage) == ["reward", "log-probability"]
    assert coverage["reward"].quality[-1] == 0.6
    roc = curves.roc_curves([*ANSWERS, line(5, -9.0, False)], "supported")
    assert {name: curve.area for name, curve in roc.items()} == {"log-probability": 1.0}
    assert curves.roc_curves(ANSWERS[:3], "supported") == {}


def shown(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_figures_show_all_that_they_are_given() -> None:
    system = SavedSystem("SFT", ANSWERS, SAMPLES, 44_000_000)
    larger = SavedSystem("$x_1$ & <b>", ANSWERS[:4], SAMPLES, 1_400_000_000)
    section = figures_section({"SFT": system, "$x_1$ & <b>": larger})
    assert list(section.images) == ["coverage", "roc", "best_of", "scale"]
    again = figures_section({"SFT": system, "$x_1$ & <b>": larger})
    assert section == again  # the same bytes
    for image in section.images.values():
        pixels = shown(image.png)
        assert pixels.shape == (576, 864, 3)
        # Both systems' lines are there, in their colours.
        for colour in ((0, 0x72, 0xB2), (0xD5, 0x5E, 0))[: 1 if "scale" in image.caption else 2]:
            assert (np.abs(pixels.astype(int) - colour).sum(-1) < 12).any(), image.caption
    tuned = figures_section({"SFT": system, "RL": system, "larger": larger})
    assert "scale" not in tuned.images, "of two with one size, only one would be drawn"
    one = figures_section({"": system})
    assert list(one.images) == ["coverage", "roc", "best_of"]


def test_the_coverage_figure_has_the_area_of_its_curve() -> None:
    """Three good answers, then three bad ones: beyond the first half, all six must be given."""
    tied = coverage_curve(np.array([1.0] * 3 + [0.0] * 3), np.array([True] * 3 + [False] * 3))
    alike = coverage_curve(np.zeros(4), np.array([True, False, False, False]))
    alone = coverage_curve(np.array([3.0, 2, 2, 1]), np.array([True, False, True, True]))
    for curve, area in ((tied, 0.75), (alike, 0.25), (alone, (1 + 2 * 2 / 3 + 3 / 4) / 4)):
        (axes,) = figures.coverage_figure({"reward": curve}).axes
        (line,) = axes.lines
        places, shares = STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data())
        assert (places[0], places[-1]) == (0, 1)
        assert curve.area == pytest.approx(np.trapezoid(shares, places)) == pytest.approx(area)
        band = axes.collections[0].get_paths()[0].vertices
        for place, low, high in zip([0, *curve.coverage], curve.low, curve.high, strict=False):
            from_here = band[np.isclose(band[:, 0], place), 1]
            assert np.isclose(from_here, low).any()
            assert np.isclose(from_here, high).any()
        assert band[:, 0].min() == 0


def test_without_judgements_there_are_no_figures() -> None:
    unknown = [{"question_id": "q", "log_prob": -1.0}]
    assert not figures_section({"": SavedSystem("SFT", unknown, unknown)}).images


def test_names_are_no_formulas() -> None:
    figure = figures.best_of_figure({"_a $b$": {1: estimate([1.0]), 2: estimate([0.0])}})
    (text,) = figure.axes[0].get_legend().get_texts()
    assert re.sub("\u200b", "", text.get_text()) == r"_a \$b\$"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "2"]
    unanimous = {4: estimate([1.0] * 7)}
    assert figures.png(preference_by_n_figure({}, unanimous, "preferred over a$x_$"))


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_an_interval_holds_its_mean(count: int, good: int) -> None:
    """Where all agree, rounding put its end a little inside, and bars had negative lengths."""
    for share in (min(good, count) / count, 0.0, 1.0):
        found = estimate([share] * count)
        assert 0 <= found.low <= found.mean <= found.high <= 1


@pytest.mark.parametrize(
    ("count", "said"),
    [(44_000_000, "44M"), (1_400_000_000, "1.4B"), (280_000_000_000, "280B"), (1_115_264, "1.1M"),
     (7_000_000_000, "7B"), (999, "999"), (999_999, "1M"), (999_600_000, "1B")],
)  # fmt: skip
def test_numbers_of_parameters(count: int, said: str) -> None:
    assert figures.parameters_in_words(count) == said

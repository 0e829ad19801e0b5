"""A model before and after reinforcement learning: what is said of small made-up samples."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from gophercite.evaluation.curves import Line
from gophercite.evaluation.differences import mean_difference
from gophercite.evaluation.policies import Policy, PolicyStudy, SampleError
from gophercite.evaluation.policy_report import (
    gains_table,
    quality_table,
    sections,
    seeds_table,
    summary,
    variety_table,
)


def samples(good: str, *, rising: bool = True) -> list[Line]:
    """Samples of questions, "+-++ --+-": a word each, + where one is good; rewards rise or fall."""
    return [
        {
            "question_id": f"q{question}",
            "text": f"{sign}{place // 2}",
            "reward": float(place if rising else -place),
            "supported": sign == "+",
            "faults": [] if sign == "+" else ["malformed"],
        }
        for question, word in enumerate(good.split())
        for place, sign in enumerate(word)
    ]


BEFORE = Policy("SFT", samples("+--+ --+- ----"), samples("- + +"))
FIRST = Policy("RL, seed 0", samples("++++ ++-- ----"), samples("+ + +"), kl=0.5)
SECOND = Policy("RL, seed 1", samples("+++- ++++ +---"), samples("+ + -"), kl=1.5)


def rows(table) -> dict[str, list[str]]:
    return {first: rest for first, *rest in table.rows}


def test_the_best_of_n_agrees_with_all_choices_of_n() -> None:
    study = PolicyStudy(BEFORE, [FIRST, SECOND])
    assert (study.samples, study.sizes) == (4, [1, 2, 4])
    for policies in ([BEFORE], [FIRST, SECOND]):
        for size, share in study.quality(policies).items():
            worth = []
            for policy in policies:
                drawn = study.drawn(policy)
                for reward, good in zip(drawn.reward, drawn.good, strict=True):
                    choices = itertools.combinations(range(4), size)
                    worth.append(np.mean([good[max(each, key=reward.item)] for each in choices]))
            assert share.mean == pytest.approx(np.mean(worth))
            assert share.count == 3


def test_gains_have_intervals_over_questions_and_over_seeds() -> None:
    study = PolicyStudy(BEFORE, [FIRST, SECOND])
    first = study.gain(1)  # by question 7/8 - 2/4, 6/8 - 1/4, 1/8 - 0
    assert first.mean == pytest.approx(1 / 3)
    interval = stats.ttest_1samp([3 / 8, 1 / 2, 1 / 8], 0).confidence_interval(0.9)
    assert (first.low, first.high) == pytest.approx((interval.low, interval.high))
    seeds = study.gain_over_seeds(1)  # 6/12 - 3/12 and 8/12 - 3/12
    assert (seeds.mean, seeds.count) == (pytest.approx(1 / 3), 2)
    reach = 6.3138 * (1 / 12)  # t of one degree of freedom times the standard error
    assert (seeds.low, seeds.high) == pytest.approx((1 / 3 - reach, 1 / 3 + reach), abs=1e-4)
    assert str(seeds) == "+33.3 (-19.3 to +85.9)"
    assert rows(gains_table(study))["1"] == [str(first), str(seeds)]


def test_one_difference_says_nothing_of_others() -> None:
    alone = mean_difference([0.25])
    assert (alone.low, alone.high, str(alone)) == (-math.inf, math.inf, "+25.0")
    assert alone.count == 1
    assert mean_difference([0.5, 0.5, 0.5]).low == 0.5
    with pytest.raises(ValueError, match="at least one"):
        mean_difference([])


def test_table_1_has_first_answers_and_the_best_of_all_with_the_divergence() -> None:
    table = rows(quality_table(PolicyStudy(BEFORE, [FIRST])))
    assert list(table) == [
        "SFT, first answer", "SFT, top@4", "RL, seed 0, first answer", "RL, seed 0, top@4",
    ]  # fmt: skip
    assert table["SFT, first answer"][0].startswith("25.0 ± 41.1 (")
    assert table["SFT, top@4"][1] == "–"
    assert table["RL, seed 0, first answer"] == ["50.0 ± 47.5 (15.6–84.4)", "0.5"]
    both = rows(quality_table(PolicyStudy(BEFORE, [FIRST, SECOND])))
    assert both["RL, first answer"][1] == "1"  # the seeds' mean


def test_answers_are_declined_by_the_reward_of_the_best() -> None:
    falling = Policy("SFT", samples("+--- -+++", rising=False))
    best = [line | {"reward": line["reward"] + 10 * (line["question_id"] == "q0")}
            for line in falling.samples]  # fmt: skip
    curve = PolicyStudy(Policy("SFT", best), [FIRST]).coverage(Policy("SFT", best))
    assert curve.coverage.tolist() == [0.5, 1.0]
    assert curve.quality.tolist() == [1.0, 0.5]


def test_diversity_and_faults() -> None:
    table = rows(variety_table(PolicyStudy(BEFORE, [FIRST, SECOND])))
    distinct, constrained, free, kinds = table["SFT"]
    assert distinct == "3.00"  # +0 -0 -1 +1, -0 -0 +1 -1, -0 -0 -1 -1
    assert constrained.startswith("75.0 (")
    assert (free[:5], kinds) == ("33.3 ", "malformed 33.3")
    assert table["RL"][2].startswith("16.7 (")
    without = Policy("SFT", BEFORE.samples)
    assert rows(variety_table(PolicyStudy(without, [FIRST])))["SFT"][2:] == ["–", "–"]


def test_questions_count_that_all_policies_have_answered_in_full() -> None:
    short = Policy("RL", [*samples("++++ ++++")[:7], *samples("- - ++++")[2:]])
    study = PolicyStudy(BEFORE, [short])
    assert study.questions == ["q0", "q2"]
    assert study.gain(4).count == 2


def test_the_report_has_its_figures_and_numbers() -> None:
    study = PolicyStudy(BEFORE, [FIRST, SECOND])
    parts = sections(study)
    assert [part.heading for part in parts] == [
        "Answers (table 1)", "What reinforcement learning gained", "Each seed", "Figures",
        "Diversity and faults",
    ]  # fmt: skip
    images = {name: image for part in parts for name, image in part.images.items()}
    assert list(images) == ["best_of", "coverage"]
    assert all(image.png.startswith(b"\x89PNG") for image in images.values())
    assert rows(seeds_table(study))["RL, seed 1"][-1] == "1.5"
    numbers = json.loads(json.dumps(summary(study), allow_nan=False))
    assert numbers["policies"]["RL, seed 0"]["quality"]["1"]["mean"] == 0.5
    assert numbers["gain"]["1"]["over_seeds"]["mean"] == pytest.approx(1 / 3)
    one = PolicyStudy(Policy("SFT", samples("+-")), [Policy("RL", samples("++"))])
    assert len(sections(one)) == 4
    assert json.dumps(summary(one), allow_nan=False)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([], "no policy after"),
        ([FIRST, FIRST], "2 policies have the name 'RL, seed 0'"),
        ([Policy("RL", [{**BEFORE.samples[0], "reward": None}])], "RL: a sample has no 'reward'"),
        ([Policy("RL", samples("+"))], "no question has as many samples"),
        ([Policy("RL", [])], "no question has as many samples"),
    ],
    ids=["none", "twice", "unscored", "fewer", "empty"],
)
def test_what_cannot_be_compared_is_refused(after: list[Policy], said: str) -> None:
    with pytest.raises(SampleError, match=said):
        PolicyStudy(BEFORE, after)

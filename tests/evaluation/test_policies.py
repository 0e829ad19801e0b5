"""A model before and after reinforcement learning: what is said of small made-up samples."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from gophercite.evaluation.curves import Line
from gophercite.evaluation.differences import mean_difference
from gophercite.evaluation.policies import Chain, Policy, PolicyStudy, SampleError
from gophercite.reports.policy_report import (
    chains_table,
    gains_table,
    quality_table,
    sections,
    summary,
    variety_table,
)


def samples(good: str, *, rising: bool = True) -> list[Line]:
    """Samples of questions, "+-++ --+-": a word each, + where one is good; rewards rise or fall.

    The second sample of each is the likeliest.
    """
    return [
        {
            "question_id": f"q{question}",
            "text": f"{sign}{place // 2}",
            "reward": float(place if rising else -place),
            "log_prob": -abs(place - 1.0),
            "supported": sign == "+",
            "faults": [] if sign == "+" else ["malformed"],
        }
        for question, word in enumerate(good.split())
        for place, sign in enumerate(word)
    ]


BEFORE = Policy("SFT", samples("+--+ --+- ----"), samples("- + +"))
FIRST = Policy("RL, seed 0", samples("++++ ++-- ----"), samples("+ + +"), kl=0.5)
OTHER = Policy("SFT, seed 1", samples("---- --+- ----"), samples("- - -"))
SECOND = Policy("RL, seed 1", samples("+++- ++++ +---"), samples("+ + -"), kl=1.5)
ONE, BOTH = [Chain(BEFORE, FIRST)], [Chain(BEFORE, FIRST), Chain(OTHER, SECOND)]


def rows(table) -> dict[str, list[str]]:
    return {first: rest for first, *rest in table.rows}


def test_samples_whose_quotes_lack_their_claims_are_chosen_last() -> None:
    """The last of four has the highest reward, the second the highest likelihood."""

    def best(marked: int) -> tuple[float, float, float]:
        lines = [
            {**line, "quote_lacks_claim": True} if place % 4 == marked else line
            for place, line in enumerate(samples("+-+- -++- -+-+"))
        ]
        before = Policy("SFT", lines, samples("- + +"))
        study = PolicyStudy([Chain(before, FIRST)])
        curve = study.coverage(before)
        return (
            study.quality([before])[4].mean,
            study.likeliest([before]).mean,
            float(curve.quality[-1]),
        )

    # The fourth is good once in three, the third twice; the second twice, then the first or third.
    assert best(0) == pytest.approx((1 / 3, 2 / 3, 1 / 3))
    assert best(3) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    first_or_third = (1 + 1 / 2 + 0) / 3
    assert best(1) == pytest.approx((1 / 3, first_or_third, 1 / 3))


def test_where_all_quotes_lack_their_claims_the_reward_still_chooses() -> None:
    before = Policy("SFT", [line | {"quote_lacks_claim": True} for line in samples("+--- ---+")])
    study = PolicyStudy([Chain(before, FIRST)])
    curve = study.coverage(before)
    assert curve.threshold.tolist() == [3.0], "the last sample of each has the highest reward"
    assert curve.quality[-1] == study.quality([before])[4].mean == 0.5


def test_the_best_of_n_agrees_with_all_choices_of_n() -> None:
    study = PolicyStudy(BOTH)
    assert (study.samples, study.sizes) == (4, [1, 2, 4])
    for policies in ([BEFORE], [FIRST, SECOND]):
        for size, share in study.quality(policies).items():
            worth = []
            for policy in policies:
                for _, reward, good, *_ in study.drawn(policy, study.questions):
                    choices = itertools.combinations(range(4), size)
                    worth.append(np.mean([good[max(each, key=reward.item)] for each in choices]))
            assert share.mean == pytest.approx(np.mean(worth))
            assert share.count == 3


def test_gains_have_intervals_over_questions_and_over_chains() -> None:
    study = PolicyStudy(BOTH)
    # By question: (4 + 3)/8 - (2 + 0)/8, (2 + 4)/8 - (1 + 1)/8, (0 + 1)/8 - 0.
    first = study.gain(1)
    assert first.mean == pytest.approx((5 / 8 + 4 / 8 + 1 / 8) / 3)
    interval = stats.ttest_1samp([5 / 8, 4 / 8, 1 / 8], 0).confidence_interval(0.9)
    assert (first.low, first.high) == pytest.approx((interval.low, interval.high))
    # Each chain's policy against its own supervised model: 6/12 - 3/12 and 8/12 - 1/12.
    chains = study.gain_over_chains(1)
    assert (chains.mean, chains.count) == (pytest.approx((3 / 12 + 7 / 12) / 2), 2)
    reach = 6.3138 * (2 / 12)  # t of one degree of freedom times the standard error
    assert (chains.low, chains.high) == pytest.approx(
        (chains.mean - reach, chains.mean + reach), abs=1e-4
    )
    assert rows(gains_table(study))["1"] == [str(first), str(chains)]


def test_the_likeliest_is_chosen_by_the_model_itself() -> None:
    """The second of each question's samples, whatever its reward."""
    study = PolicyStudy(BOTH)
    assert study.likeliest([BEFORE]).mean == 0
    assert study.likeliest([FIRST]).mean == pytest.approx(2 / 3)
    assert study.likeliest([FIRST, SECOND]).mean == pytest.approx(2 / 3)
    assert study.quality([FIRST])[4].mean == pytest.approx(1 / 3)  # by reward, the last


def test_one_difference_says_nothing_of_others() -> None:
    alone = mean_difference([0.25])
    assert (alone.low, alone.high, str(alone)) == (-math.inf, math.inf, "+25.0")
    assert alone.count == 1
    assert mean_difference([0.5, 0.5, 0.5]).low == 0.5
    with pytest.raises(ValueError, match="at least one"):
        mean_difference([])


def test_table_1_has_first_answers_and_the_best_of_all_with_the_divergence() -> None:
    table = rows(quality_table(PolicyStudy(ONE)))
    assert list(table) == [
        "SFT, first answer", "SFT, top@4", "SFT, likeliest of 4",
        "RL, seed 0, first answer", "RL, seed 0, top@4", "RL, seed 0, likeliest of 4",
    ]  # fmt: skip
    assert table["SFT, likeliest of 4"][0].startswith("0.0 ")
    assert table["SFT, first answer"][0].startswith("25.0 ± 41.1 (")
    assert table["SFT, top@4"][1] == "–"
    assert table["RL, seed 0, first answer"] == ["50.0 ± 47.5 (15.6–84.4)", "0.5"]
    both = rows(quality_table(PolicyStudy(BOTH)))
    assert both["RL, first answer"][1] == "1"  # the chains' mean
    assert both["SFT, first answer"][0].startswith("16.7 ")


def test_answers_are_declined_by_the_reward_of_the_best() -> None:
    falling = Policy("SFT", samples("+--- -+++", rising=False))
    best = [line | {"reward": line["reward"] + 10 * (line["question_id"] == "q0")}
            for line in falling.samples]  # fmt: skip
    curve = PolicyStudy([Chain(Policy("SFT", best), FIRST)]).coverage(Policy("SFT", best))
    assert curve.coverage.tolist() == [0.5, 1.0]
    assert curve.quality.tolist() == [1.0, 0.5]


def test_diversity_and_faults() -> None:
    table = rows(variety_table(PolicyStudy(ONE)))
    distinct, constrained, free, kinds = table["SFT"]
    assert distinct == "3.00"  # +0 -0 -1 +1, -0 -0 +1 -1, -0 -0 -1 -1
    assert constrained.startswith("75.0 (")
    assert (free[:5], kinds) == ("33.3 ", "malformed 33.3")
    both = rows(variety_table(PolicyStudy(BOTH)))
    assert both["SFT"][0] == "2.67"
    assert both["RL"][2].startswith("16.7 (")
    without = Policy("SFT", BEFORE.samples)
    assert rows(variety_table(PolicyStudy([Chain(without, FIRST)])))["SFT"][2:] == ["–", "–"]


def test_one_question_with_more_samples_does_not_stand_for_all() -> None:
    """As with `--pages each`: so many samples a question as it has pages."""
    before = Policy("SFT", [*samples("-+-- +- -+ -"), {**samples("-")[0], "question_id": "other"}])
    after = Policy("RL", samples("++-+ ++ -+ +"), samples("+"))
    study = PolicyStudy([Chain(before, after)])
    assert (study.samples, study.sizes) == (2, [1, 2])
    assert study.questions == ["q0", "q1", "q2", "q3"]
    assert study.complete == ["q0", "q1", "q2"]
    # First answers: of all questions, by all of their samples.
    assert study.quality([before])[1].mean == pytest.approx((1 / 4 + 1 / 2 + 1 / 2 + 0) / 4)
    assert (study.gain(1).count, study.gain(2).count) == (4, 3)
    # The best of two: of four, the second beats only the first.
    assert study.quality([before])[2].mean == pytest.approx((1 / 6 + 0 + 1) / 3)
    assert study.quality([after])[2].mean == pytest.approx((4 / 6 + 1 + 1) / 3)
    assert study.coverage(before).coverage[-1] == 1.0
    # Of +0 +0 -1 +1, one of six pairs is twice the same.
    assert study.distinct([after]) == pytest.approx((11 / 6 + 1 + 2) / 3)
    said = (
        "4 questions, 2 samples each. Only in first answers, with fewer samples: 1 question. "
        "Left out, without samples of some model: 1 question. A first"
    )
    assert sections(study)[0].text[0].startswith(said)
    numbers = summary(study)
    assert (numbers["questions"], numbers["complete_questions"]) == (4, 3)
    assert numbers["unshared_questions"] == 1


def test_of_two_numbers_of_samples_that_are_as_common_the_smaller_counts() -> None:
    """So that more questions have enough."""
    policies = Policy("SFT", samples("-+-- +- -+ -++-")), Policy("RL", samples("++-+ ++ -+ ++++"))
    study = PolicyStudy([Chain(*policies)])
    assert (study.samples, len(study.complete)) == (2, 4)


def test_questions_count_that_all_policies_have_answered_in_full() -> None:
    short = Policy("RL", [*samples("++++ ++++")[:7], *samples("- - ++++")[2:]])
    study = PolicyStudy([Chain(BEFORE, short)])
    assert study.samples == 4
    assert study.complete == ["q0", "q2"]
    assert study.gain(4).count == 2
    single = PolicyStudy([Chain(BEFORE, Policy("RL", samples("+ - +")))])
    assert (single.samples, single.complete) == (1, ["q0", "q1", "q2"])


def test_the_report_has_its_figures_and_numbers() -> None:
    study = PolicyStudy(BOTH)
    parts = sections(study)
    assert [part.heading for part in parts] == [
        "Answers (table 1)", "What reinforcement learning gained", "Each chain", "Figures",
        "Diversity and faults",
    ]  # fmt: skip
    images = {name: image for part in parts for name, image in part.images.items()}
    assert list(images) == ["best_of", "coverage"]
    assert all(image.png.startswith(b"\x89PNG") for image in images.values())
    assert rows(chains_table(study))["RL, seed 1"][-1] == "1.5"
    numbers = json.loads(json.dumps(summary(study), allow_nan=False))
    assert numbers["policies"]["RL, seed 0"]["quality"]["1"]["mean"] == 0.5
    assert numbers["policies"]["RL, seed 0"]["likeliest"]["mean"] == pytest.approx(2 / 3)
    assert numbers["gain"]["1"]["over_chains"]["mean"] == pytest.approx(5 / 12)
    one = PolicyStudy([Chain(Policy("SFT", samples("+-")), Policy("RL", samples("++")))])
    assert len(sections(one)) == 4
    assert json.dumps(summary(one), allow_nan=False)


@pytest.mark.parametrize(
    ("chains", "said"),
    [
        ([], "give at least one pair of models"),
        ([*ONE, *ONE], "2 policies have the name 'SFT'"),
        ([Chain(BEFORE, Policy("RL", [{**BEFORE.samples[0], "reward": None}]))],
         "RL: a sample has no 'reward'"),
        ([Chain(Policy("SFT", [{**BEFORE.samples[0], "log_prob": None}]), FIRST)],
         "SFT: a sample has no 'log_prob'"),
        ([Chain(BEFORE, Policy("RL", [{**FIRST.samples[0], "faults": None}]))],
         "RL: a sample has no 'faults'"),
        ([Chain(dataclasses.replace(BEFORE, free=[{"question_id": "q0"}]), FIRST)],
         "SFT: a sample has no 'faults'"),
        ([Chain(BEFORE, Policy("RL", []))], "no question has samples of every model"),
    ],
    ids=["none", "twice", "unscored", "unlikely", "faults", "free faults", "empty"],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(chains: list[Chain], said: str) -> None:
    with pytest.raises(SampleError, match=said):
        PolicyStudy(chains)

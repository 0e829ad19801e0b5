"""Metrics beside their reference implementations, on random inputs.

`squad_official.jsonl` has 300 random pairs of our own and what the official evaluation script of
SQuAD 2.0 (`compute_exact`, `compute_f1`; the copy in Hugging Face's transformers 4) says of
them: the script is no package that could be run here.
"""

import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from rouge_score import rouge_scorer
from sklearn import metrics as sklearn

from gophercite.evaluation.roc import roc_curve
from gophercite.text.answer_matching import exact_match, f1
from gophercite.text.rouge import rouge_l

SQUAD = pathlib.Path(__file__).with_name("squad_official.jsonl")
ROUGE = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
# Words as rouge-score knows them, of ASCII letters and digits; ours are of any letters and digits.
WORDS = ("The", "mill", "burned,", "in", "1874!", "a", "the", "18-74", "B")
texts = st.lists(st.sampled_from(WORDS)).map(" ".join)


def test_exact_match_and_f1_are_those_of_squad() -> None:
    cases = [json.loads(line) for line in SQUAD.read_text(encoding="utf-8").splitlines()]
    assert len(cases) == 300
    for case in cases:
        prediction, answers = case["prediction"], case["answers"]
        assert exact_match(prediction, answers) == bool(case["exact"]), case
        assert f1(prediction, answers) == pytest.approx(case["f1"], abs=1e-9), case


@given(texts, texts | st.text("abAB 19,.-'\n"))
def test_rouge_l_is_that_of_rouge_score(one: str, other: str) -> None:
    expected = ROUGE.score(one, other)["rougeL"].fmeasure
    assert rouge_l(one, other) == pytest.approx(expected)
    assert rouge_l(other, one) == pytest.approx(expected)


@given(st.data(), st.integers(2, 30))
def test_the_roc_curve_is_that_of_scikit_learn(data: st.DataObject, count: int) -> None:
    scores = data.draw(npst.arrays(float, count, elements=st.sampled_from([-2.0, 0.0, 0.1, 3.5])))
    good = data.draw(npst.arrays(bool, count).filter(lambda labels: 0 < labels.sum() < count))
    curve = roc_curve(scores, good)
    false, true, threshold = sklearn.roc_curve(good, scores, drop_intermediate=False)
    np.testing.assert_allclose(curve.false_positives, false)
    np.testing.assert_allclose(curve.true_positives, true)
    np.testing.assert_array_equal(curve.threshold, threshold)
    assert curve.area == pytest.approx(sklearn.roc_auc_score(good, scores))


@pytest.mark.parametrize(
    ("scores", "good", "said"),
    [
        ([1.0, 2.0], [True, True], "both good and bad answers"),
        ([1.0, 2.0], [False, False], "both good and bad answers"),
        ([], [], "both good and bad answers"),
        ([[1.0, 2.0]], [[True, False]], "shape"),
        ([1.0], [True, False], "shape"),
        ([1.0, float("nan")], [True, False], "is NaN"),
    ],
)
def test_what_has_no_curve_is_refused(scores: list, good: list, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        roc_curve(np.array(scores), np.array(good, bool))

"""SQuAD's scores against a second implementation."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.text import answer_matching


def reference_tokens(text: str) -> list[str]:
    """SQuAD's normalisation once more, by characters and words and not by patterns."""
    kept = [c for c in text.lower() if c not in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"]
    words = re.findall(r"\w+|[^\w]", "".join(kept))
    return "".join(" " if word in ("a", "an", "the") else word for word in words).split()


def reference_f1(prediction: str, answer: str) -> float:
    left, right = reference_tokens(prediction), reference_tokens(answer)
    if not left or not right:
        return float(left == right)
    unmatched, overlap = list(right), 0
    for word in left:
        if word in unmatched:
            unmatched.remove(word)
            overlap += 1
    if overlap == 0:
        return 0.0
    precision, recall = overlap / len(left), overlap / len(right)
    return 2 * precision * recall / (precision + recall)


answers = st.lists(
    st.sampled_from(["the ", "A ", "an", "theatre ", "1874", ", ", "Ada ", "-", "É", " ", "é "])
    | st.text(max_size=3),
    max_size=6,
).map("".join)


@given(answers, st.lists(answers, max_size=3))
def test_scores_agree_with_the_reference(prediction: str, accepted: list[str]) -> None:
    expected = [reference_tokens(answer) == reference_tokens(prediction) for answer in accepted]
    assert answer_matching.exact_match(prediction, accepted) == any(expected)
    best = max((reference_f1(prediction, answer) for answer in accepted), default=0.0)
    assert answer_matching.f1(prediction, accepted) == pytest.approx(best)


def test_known_scores() -> None:
    assert answer_matching.normalize_answer("The  Eiffel-Tower, a tower!") == "eiffeltower tower"
    assert answer_matching.exact_match("the Rhine.", ["Rhine"])
    assert not answer_matching.exact_match("Rhine river", ["Rhine"])
    assert answer_matching.f1("Rhine river", ["Danube", "Rhine"]) == pytest.approx(2 / 3)
    assert answer_matching.f1("Rhine", []) == 0.0


def test_an_answer_is_contained_as_whole_words() -> None:
    assert answer_matching.contains_answer("It was built in 1874, they say.", ["in the 1874"])
    assert not answer_matching.contains_answer("in 18745", ["1874"])
    assert not answer_matching.contains_answer("anything", ["", "the"])

"""How much answers agree, against a recomputation word by word."""

import collections
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.decoding.consensus import agreement, consensus, weights_by_rank
from gophercite.evidence import Evidence

WORDS = st.lists(st.sampled_from(["tower", "1874", "Vell", "The", "of"]), min_size=1, max_size=4)
ANSWERS = st.lists(
    st.lists(st.builds(lambda c, q: Evidence(" ".join(c), "P", " ".join(q)), WORDS, WORDS),
             min_size=1, max_size=2),
    min_size=1, max_size=5,
)  # fmt: skip


def said(claim: str, quote: str) -> list[Evidence]:
    return [Evidence(claim, "Page", quote)]


def f1(one: str, other: str) -> float:
    """SQuAD's, for words without punctuation."""
    left, right = (
        collections.Counter(word for word in text.lower().split() if word != "the")
        for text in (one, other)
    )
    if not left or not right:
        return float(left == right)
    return 2 * sum((left & right).values()) / (sum(left.values()) + sum(right.values()))


@given(ANSWERS, st.data())
def test_it_is_the_mean_f1_of_claims_and_of_quotes(
    answers: list[list[Evidence]], data: st.DataObject
) -> None:
    count = len(answers)
    weights = data.draw(st.none() | st.lists(st.floats(0.1, 9), min_size=count, max_size=count))
    claims = [" ".join(dict.fromkeys(each.claim for each in answer)) for answer in answers]
    quotes = [" ".join(each.quote for each in answer) for answer in answers]
    found = agreement(answers, weights)
    each = weights or [1.0] * count
    for one, value in enumerate(found):
        expected = [
            each[other] * (f1(claims[one], claims[other]) + f1(quotes[one], quotes[other])) / 2
            for other in range(count)
        ]
        assert value == pytest.approx(sum(expected) / sum(each))
        assert 0 < value <= 1 + 1e-9
    means = data.draw(st.lists(st.floats(-9, 0), min_size=count, max_size=count))
    assert consensus(answers, means, weights) == pytest.approx(
        [value * math.e**mean for value, mean in zip(found, means, strict=True)]
    )
    again = agreement(answers[::-1], weights and weights[::-1])[::-1]
    assert again == pytest.approx(found), "whatever the order"


def test_what_most_say_wins_whatever_the_words_around_it() -> None:
    answers = [
        said("Vell", "It burned in 1902."),
        said("Anna Vell", "Built by Anna Vell in 1874."),
        said("the architect Anna Vell", "Built by Anna Vell in 1874."),
        said("1902", "It burned in 1902."),
    ]
    found = agreement(answers)
    assert max(range(4), key=found.__getitem__) == 1
    assert found[3] == min(found)


def test_a_page_weighs_as_its_rank_however_many_samples_it_has() -> None:
    pages = [0, 1, 2, 0, 1, 0]
    weights = weights_by_rank(pages)
    for page in range(3):
        of_page = [weight for weight, own in zip(weights, pages, strict=True) if own == page]
        assert sum(of_page) == pytest.approx(1 / (page + 1))
        assert len(set(of_page)) == 1
    # Two lower pages that agree among themselves don't outvote the first one.
    first, second, third = (said(name, f"{name} built it.") for name in ("Vell", "Orr", "Ida"))
    found = agreement([first, second, third, first, second, first], weights)
    assert max(range(6), key=found.__getitem__) in (0, 3, 5)
    assert weights_by_rank([]) == []


def test_what_has_no_claim_agrees_with_nothing_not_even_its_like() -> None:
    found = agreement([[], [], said("Vell", "Vell built it.")])
    assert found == [0, 0, pytest.approx(1 / 3)]
    assert agreement([[], []]) == [0, 0]
    assert agreement([]) == []
    assert not math.isnan(agreement([said("!", "?")])[0])

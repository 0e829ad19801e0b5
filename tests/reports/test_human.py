"""What raters said, by system."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.documents import Document
from gophercite.records import Comparison, RatedAnswer
from gophercite.reports.human import (
    Verdict,
    human_table,
    majority,
    preference,
    rated_for_all,
    verdict,
)

PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874.")
RATED = RatedAnswer("q", "When?", (PAGE,), "1874", "Ormsby", "built in 1874", "o", model="SFT")
COMPARED = Comparison("c", "When?", "test", ("one", "two"), None)


@given(st.lists(st.booleans()))
def test_the_majority_decides_and_ties_are_the_lower_label(votes: list[bool]) -> None:
    found = majority(votes)
    if not votes:
        assert found is None
    else:
        assert found == (2 * sum(votes) > len(votes))


def rated(*ratings: dict[str, object], **changes: object) -> RatedAnswer:
    named = tuple({"rater": str(n), **rating} for n, rating in enumerate(ratings))
    return dataclasses.replace(RATED, ratings=named, **changes)  # type: ignore[arg-type]


def test_a_verdict_is_the_answers_own_or_its_raters() -> None:
    ratings = [{"plausible": True, "supported": True, "truthful": False}, {"supported": False},
               {"plausible": True, "supported": "yes", "informative": True}]  # fmt: skip
    found = verdict(rated(*ratings))
    assert found == Verdict(plausible=True, supported=False, truthful=False, informative=True)
    assert found.supported_and_plausible is False
    assert found.truthful_and_informative is False
    assert verdict(rated(*ratings, supported=True)).supported_and_plausible is True
    assert verdict(RATED).supported_and_plausible is None
    assert verdict(rated({"supported": False})).supported_and_plausible is False, "as exports"
    assert verdict(rated({"supported": True})).supported_and_plausible is None


def test_only_questions_rated_for_every_system_count() -> None:
    answers = [
        rated(plausible=True, supported=True),
        rated(plausible=True, supported=False, question_id="p"),
        rated(plausible=False, supported=False, question_id="only SFT"),
        rated(plausible=True, supported=True, model="RL"),
        rated(plausible=True, supported=True, model="RL", question_id="p"),
        rated(model="RL", question_id="only SFT"),  # not rated yet
    ]
    systems = rated_for_all(answers)
    assert {name: len(verdicts) for name, verdicts in systems.items()} == {"SFT": 2, "RL": 2}
    table = human_table(systems)
    assert table.headings == ["system", "questions", "S&P %", "supported %", "plausible %"]
    assert table.rows[0][:3] == ["SFT", "2", "50.0 ± 58.2 (12.1–87.9)"]
    assert table.rows[1][2].startswith("100.0 ± 0.0 (")
    assert rated_for_all([]) == {}
    # A system that nobody has rated yet takes no question from the others.
    more = rated_for_all([*answers, rated(model="new")])
    assert more == {**systems, "new": []}


def test_ratings_of_other_questions_with_the_same_ids_are_refused() -> None:
    one = rated(question_id="q", question="When?", model="SFT")
    other = rated(question_id="q", question="Where?", model="RL")
    with pytest.raises(ValueError, match=r"question 'q' is 'When\?' and 'Where\?': .* the same"):
        rated_for_all([one, other])


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ([0, 1, 1, 0.5], 0.625),
        ([None, 1], 1.0),
        ([[1, 1, 0], [0, 0.5]], 0.5),  # by the ratings; of equals the lower
        ([[0.5, 0.5, 1]], 0.5),
        ([None, ["unsure"]], None),
        ([None, [[1]], [{}, 1]], 1.0),
    ],
)
def test_ties_count_half_a_preference(said: list, share: float | None) -> None:
    comparisons = []
    for one in said:
        if isinstance(one, list):
            ratings = tuple({"rater": "r", "preferred": each} for each in one)
            comparisons.append(dataclasses.replace(COMPARED, ratings=ratings))
        else:
            comparisons.append(dataclasses.replace(COMPARED, preferred=one))
    found = preference(comparisons)
    assert (None if found is None else found.mean) == share

"""Comparisons of browsed answers: who is better, by what is true."""

import dataclasses
import itertools

import pytest

from data_pipelines.browsing_comparisons import comparisons, long_answer, worth
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import Episode
from gophercite.browser.state import State
from gophercite.documents import Document
from gophercite.records import Question, Span
from tests.browser.sites import HILL, LIGHTHOUSE, site

PAGE = site().open(HILL).document
ANSWER = PAGE.text.index("The lighthouse was built in 1874 by Anna Vell.")
QUESTION = Question(
    "q",
    "Who built it?",
    "test",
    (Document(HILL, "The lighthouse", PAGE.text, HILL),),
    ("Anna Vell",),
    (Span(HILL, ANSWER, ANSWER + len("The lighthouse was built in 1874 by Anna Vell.")),),
)
BROWSED = ["Search lighthouse", "Clicked on link 0", f"Quote: {LIGHTHOUSE.splitlines()[0]}"]
SAID = {"Anna Vell [1].": 2, "Anna Vell.": 1, "Nobody [1].": 0, "It burned [1].": 0}


def end(answer: str) -> State:
    return replay(site(), reset(QUESTION.question), [*BROWSED, "End: Answer", answer])


def episode(answer: str, number: int) -> Episode:
    last = end(answer)
    return Episode(str(number), "q", "w", "m", reset(QUESTION.question), (), last)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return [episode(answer, number) for number, answer in enumerate(SAID)]


def test_what_is_proved_is_better_than_what_is_right_and_that_than_the_rest(
    episodes: list[Episode],
) -> None:
    assert {each.end.answer: worth(QUESTION, each.end) for each in episodes} == SAID
    made = list(comparisons(QUESTION, episodes, 99, "s"))
    assert len(made) == 6
    for each in made:
        first, second = (SAID[response.answer] for response in each.responses)  # type: ignore[union-attr]
        wanted = 0.5 if first == second else float(second > first)
        assert each.preferred == wanted
        assert each.supported_and_plausible == (first == 2, second == 2)
        points = ("tie", "better", "much better")[abs(first - second)]
        assert each.ratings == ({"rater": "truth", "points": points},)
    assert sum(each.preferred == 0.5 for each in made) == 1
    assert {each.preferred for each in made} == {0.0, 0.5, 1.0}, "either side may be better"
    assert len({each.id for each in made}) == 6


def test_answers_come_with_their_references_once_each_and_few_are_ties(
    episodes: list[Episode],
) -> None:
    again = [dataclasses.replace(each, id=f"{each.id}b") for each in episodes]
    silent = dataclasses.replace(episodes[0], end=dataclasses.replace(episodes[0].end, answer=None))
    made = list(comparisons(QUESTION, [*episodes, *again, silent], 2, "s"))
    assert [each.preferred != 0.5 for each in made] == [True, True, False]
    for one in itertools.chain.from_iterable(each.responses for each in made):
        assert one == long_answer(end(one.answer))  # type: ignore[union-attr]
        assert one.references[0].extract == LIGHTHOUSE.splitlines()[0]  # type: ignore[union-attr]

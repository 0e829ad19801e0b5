"""Of many questions each has the answer that it has alone, and its own errors."""

import functools
import pathlib
import threading
from collections.abc import Iterator

import pytest

from gophercite.answering.answerer import Answerer, AnsweringSettings
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages
from gophercite.answers import Answer
from gophercite.contexts import SearchResult
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.folder import load_model
from gophercite.retrieval.engine import SearchError

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
PAGES = [
    Document(str(n), f"Mill {n}", f"The mill number {n} burned in 18{n:02}. It had 14 wheels.")
    for n in range(6)
]


@functools.cache
def answerer() -> Answerer:
    settings = AnsweringSettings(
        samples=2, prompt_tokens=120, sampling=SamplingSettings(max_tokens=48)
    )
    return Answerer(load_model(MODEL), settings)


def found(number: int) -> FoundPages:
    return FoundPages((SearchResult(PAGES[number]),))


def asked(number: int) -> Asked:
    return Asked(f"When did mill {number} burn?", lambda: found(number), seed=number)


@functools.cache
def alone(number: int) -> Answer:
    question = asked(number).question
    return answerer().answer(question, found(number), seed=number, keep_samples=True)


@pytest.mark.parametrize("ahead", [0, 1, 2, 9])
def test_each_answer_is_that_of_the_question_alone(ahead: int) -> None:
    questions = map(asked, range(len(PAGES)))
    answers = answer_each(answerer(), questions, keep_samples=True, ahead=ahead)
    assert list(answers) == [alone(number) for number in range(len(PAGES))]


@pytest.mark.parametrize("ahead", [0, 2])
def test_what_is_wrong_with_a_question_is_its_answer_s_reason(ahead: int) -> None:
    def refused() -> FoundPages:
        raise ValueError("the page has a snippet and no text")

    questions = [
        asked(0),
        Asked("Where?", refused),
        Asked("-site:a.example", lambda: found(1)),
        Asked("Who?", lambda: FoundPages(())),
        asked(1),
    ]
    first, *wrong, last = answer_each(answerer(), questions, keep_samples=True, ahead=ahead)
    assert (first, last) == (alone(0), alone(1))
    assert [answer.question for answer in wrong] == ["Where?", "-site:a.example", "Who?"]
    reasons = [str(answer.reason) for answer in wrong]
    assert reasons[0] == "the page has a snippet and no text"
    assert reasons[1].startswith("there is no question")
    assert reasons[2].startswith("no page was found")


@pytest.mark.parametrize("ahead", [0, 2])
def test_what_no_question_can_help_ends_the_answers_at_its_turn(ahead: int) -> None:
    def broken() -> FoundPages:
        raise SearchError("the index is damaged")

    questions = [asked(0), asked(1), Asked("Who?", broken), asked(2)]
    answers = answer_each(answerer(), questions, keep_samples=True, ahead=ahead)
    assert [next(answers), next(answers)] == [alone(0), alone(1)]
    with pytest.raises(SearchError, match="damaged"):
        next(answers)
    assert list(answers) == []


def test_the_next_questions_are_made_ready_by_one_thread_and_no_more_than_asked_for() -> None:
    taken: list[int] = []
    threads: dict[int, str] = {}

    def watched(number: int) -> Asked:
        def find() -> FoundPages:
            threads[number] = threading.current_thread().name
            return found(number)

        return asked(number)._replace(find=find)

    def questions() -> Iterator[Asked]:
        for number in range(len(PAGES)):
            taken.append(number)
            yield watched(number)

    before = threading.active_count()
    answers = answer_each(answerer(), questions(), ahead=2)
    for number in range(3):
        next(answers)
        assert taken == list(range(number + 3))
    answers.close()
    assert taken == list(range(5))
    assert set(threads.values()) == {"prepare_0"}
    assert threading.active_count() == before


def test_less_than_nothing_cannot_be_done_ahead() -> None:
    with pytest.raises(ValueError, match="ahead = -1"):
        next(answer_each(answerer(), [asked(0)], ahead=-1))

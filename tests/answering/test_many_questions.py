"""Of many questions each has the answer that it has alone, and its own errors."""

import dataclasses
import functools
import pathlib
import threading
from collections.abc import Iterator, Sequence

import pytest

from gophercite.answering.answerer import Answerer, Batch
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records.answers import Answer
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.engine import SearchError
from gophercite.vocabularies import load_vocabulary
from tests.drawn_parameters import drawn_parameters
from tests.long_forms import LONG

VOCABULARY = (
    pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model" / "vocabulary"
)
PAGES = [
    Document(str(n), f"Mill {n}", f"The mill number {n} burned in 18{n:02}. It had 14 wheels.")
    for n in range(6)
]


@functools.cache
def model() -> Model:
    vocabulary = load_vocabulary(VOCABULARY)
    transformer = Transformer(
        TransformerConfig(
            vocab_size=vocabulary.size, d_model=16, num_layers=1, num_heads=2, head_dim=8,
            position="rope", dtype="float32", scan_layers=False,
        )
    )  # fmt: skip
    return Model(transformer, drawn_parameters(transformer), vocabulary, {})


@functools.cache
def answerer() -> Answerer:
    settings = AnsweringSettings(
        samples=2, prompt_tokens=120, sampling=SamplingSettings(max_tokens=48)
    )
    return Answerer(model(), settings)


def found(number: int) -> FoundPages:
    return FoundPages((SearchResult(PAGES[number]),))


def asked(number: int) -> Asked:
    return Asked(f"When did mill {number} burn?", lambda: found(number), seed=number)


@functools.cache
def alone(number: int) -> Answer:
    question = asked(number).question
    return answerer().answer(question, found(number), seed=number, keep_samples=True)


@pytest.mark.parametrize("ahead", [0, pytest.param(1, marks=LONG), 2, pytest.param(9, marks=LONG)])
def test_each_answer_is_that_of_the_question_alone(ahead: int) -> None:
    questions = map(asked, range(len(PAGES)))
    answers = answer_each(answerer(), questions, keep_samples=True, ahead=ahead)
    assert list(answers) == [alone(number) for number in range(len(PAGES))]


def several(number: int) -> Asked:
    """With a page, with two, or with none."""
    results = found(number).results + (found(1).results if number % 3 == 2 else ())
    pages = FoundPages(() if number == 4 else results)
    return asked(number)._replace(find=lambda: pages)


@functools.cache
def several_alone() -> list[Answer]:
    questions = map(several, range(len(PAGES)))
    return list(answer_each(answerer(), questions, keep_samples=True, ahead=0))


@pytest.mark.parametrize(
    ("batch_size", "ahead"),
    [pytest.param(2, 0, marks=LONG), (4, 2), pytest.param(6, 1, marks=LONG), (9, 0)],
)
def test_answers_do_not_depend_on_the_questions_beside_them(batch_size: int, ahead: int) -> None:
    assert len({len(each.samples) for each in several_alone()}) == 2
    questions = map(several, range(len(PAGES)))
    together = answer_each(
        answerer(), questions, keep_samples=True, batch_size=batch_size, ahead=ahead
    )
    for answer, alone in zip(together, several_alone(), strict=True):
        assert_same(answer, alone)


# One at a time, not even the samples of one question are drawn together.
@pytest.mark.parametrize("at_a_time", [1, pytest.param(2, marks=LONG), pytest.param(5, marks=LONG)])
def test_prompts_that_wait_for_others_change_no_answer(at_a_time: int) -> None:
    settings = dataclasses.replace(answerer().settings, max_num_seqs=at_a_time)
    few = Answerer(model(), settings)
    questions = map(asked, range(len(PAGES)))
    answers = answer_each(few, questions, keep_samples=True, batch_size=len(PAGES))
    for number, answer in enumerate(answers):
        assert_same(answer, alone(number))


def assert_same(answer: Answer, other: Answer) -> None:
    """The same up to rounding."""
    numbers = {"score", "likelihood", "constrained_likelihood", "consensus", "samples"}
    for name, value in vars(answer).items():
        if name not in numbers:
            assert value == getattr(other, name), name
    for one, another in zip((answer, *answer.samples), (other, *other.samples), strict=True):
        assert (one.text, one.citations) == (another.text, another.citations)
        assert one.score == pytest.approx(another.score, abs=1e-3)
        assert one.likelihood == pytest.approx(another.likelihood, abs=1e-3)
        assert one.consensus == pytest.approx(another.consensus, abs=1e-3)


class Noting(Answerer):
    """Notes which questions it was asked at once, and gives all the same answer."""

    def __init__(self) -> None:
        settings = dataclasses.replace(answerer().settings, prompt_tokens=600)
        super().__init__(model(), settings)
        self.batches: list[list[str]] = []

    def answer_batch(
        self, batch: Batch, seeds: Sequence[int], *, keep_samples: bool = False
    ) -> list[Answer]:
        self.batches.append([each.question for each in batch.questions])
        return [alone(0)] * len(seeds)


def test_short_prompts_are_not_padded_to_long_ones() -> None:
    def of_page(name: str, sentences: int) -> Asked:
        page = Document(name, "Mill", "The mill burned. " * sentences)
        return Asked(name, lambda: FoundPages((SearchResult(page),)))

    noting = Noting()
    questions = [of_page("a", 1), of_page("b", 90), of_page("c", 2), of_page("d", 95)]
    list(answer_each(noting, questions, batch_size=4))
    assert noting.batches == [["a", "c"], ["b", "d"]]


class Refusing(Answerer):
    """Can't ask about the second mill, though it could be made ready."""

    def answer_batch(
        self, batch: Batch, seeds: Sequence[int], *, keep_samples: bool = False
    ) -> list[Answer]:
        if any("mill 2" in each.question for each in batch.questions):
            raise ValueError("it is always the second mill")
        return super().answer_batch(batch, seeds, keep_samples=keep_samples)


def test_a_question_that_fails_does_not_take_those_beside_it_along() -> None:
    refusing = Refusing(model(), answerer().settings)
    answers = list(answer_each(refusing, map(asked, range(4)), keep_samples=True, batch_size=4))
    reasons = [answer.reason for answer in answers]
    assert reasons == [None, None, "it is always the second mill", None]
    for number in (0, 1, 3):
        assert_same(answers[number], alone(number))


@pytest.mark.parametrize(("batch_size", "ahead"), [(1, 0), (1, 2), (6, 2)])
def test_what_is_wrong_with_a_question_is_its_answer_s_reason(batch_size: int, ahead: int) -> None:
    def refused() -> FoundPages:
        raise ValueError("the page has a snippet and no text")

    questions = [
        asked(0),
        Asked("Where?", refused),
        Asked("-site:a.example", lambda: found(1)),
        asked(1),
        Asked("Who?", lambda: FoundPages(())),
        asked(2),
    ]
    first, refused_one, blank, second, unfound, last = answer_each(
        answerer(), questions, keep_samples=True, batch_size=batch_size, ahead=ahead
    )
    for number, answer in enumerate((first, second, last)):
        assert_same(answer, alone(number))
    wrong = refused_one, blank, unfound
    assert [answer.question for answer in wrong] == ["Where?", "-site:a.example", "Who?"]
    reasons = [str(answer.reason) for answer in wrong]
    assert reasons[0] == "the page has a snippet and no text"
    assert reasons[1].startswith("there is no question")
    assert reasons[2].startswith("no page was found")


@pytest.mark.parametrize(("batch_size", "ahead"), [(1, 0), (1, 2), (3, 0), (4, 2)])
def test_what_no_question_can_help_ends_the_answers_at_its_turn(
    batch_size: int, ahead: int
) -> None:
    def broken() -> FoundPages:
        raise SearchError("the index is damaged")

    questions = [asked(0), asked(1), Asked("Who?", broken), asked(2)]
    answers = answer_each(
        answerer(), questions, keep_samples=True, batch_size=batch_size, ahead=ahead
    )
    for number in (0, 1):
        assert_same(next(answers), alone(number))
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
    with pytest.raises(ValueError, match="batch_size = 0"):
        next(answer_each(answerer(), [asked(0)], batch_size=0))

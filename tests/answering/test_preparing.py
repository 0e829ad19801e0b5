"""Which pages share a prompt, by what was asked for, what the model knows, and what fits."""

import copy
import dataclasses
import pathlib

import pytest

from gophercite.answering.answerer import Answerer
from gophercite.answering.pages import FoundPages
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.model_folders.folder import Model, load_model
from gophercite.retrieval.contexts import SearchResult

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
QUESTION = "When did the mill burn?"
MILL = Document("m", "Mill", "The mill burned in 1874. It had 14 wheels.")
RIVER = Document("r", "River", "The river is 310 kilometres long. It has pike.")
LONG = Document("l", "Town", "The town burned in 1921. " + "In winter the roads are closed. " * 60)
SETTINGS = AnsweringSettings(prompt_tokens=160, sampling=SamplingSettings(max_tokens=48))


@pytest.fixture(scope="module")
def taught() -> Model:
    """A model whose folder says that it was trained with several pages in a prompt."""
    model = load_model(MODEL)
    vocabulary = copy.copy(model.vocabulary)
    vocabulary.several_pages = True
    return dataclasses.replace(model, vocabulary=vocabulary)


def shown(model: Model, *pages: Document, **settings: object) -> list[list[str]]:
    """The ids of the pages in each prompt."""
    answerer = Answerer(model, dataclasses.replace(SETTINGS, **settings))  # type: ignore[arg-type]
    prepared = answerer.prepare(QUESTION, FoundPages(tuple(map(SearchResult, pages))))
    return [[window.document.id for window in each.windows] for each in prepared.contexts]


def test_short_pages_share_a_prompt_if_the_model_knows_such_prompts(taught: Model) -> None:
    assert shown(taught, MILL, RIVER) == [["m", "r"]]
    assert shown(load_model(MODEL), MILL, RIVER) == [["m"], ["r"]]


def test_what_is_asked_for_comes_first(taught: Model) -> None:
    assert shown(taught, MILL, RIVER, joint=False) == [["m"], ["r"]]
    assert shown(load_model(MODEL), MILL, LONG, joint=True) == [["m", "l"]]


def test_pages_of_which_too_little_fits_have_their_own_prompts(taught: Model) -> None:
    assert shown(taught, MILL, LONG) == [["m"], ["l"]]
    assert shown(taught, MILL, LONG, prompt_tokens=500) == [["m", "l"]]


def test_of_a_long_page_five_hundred_characters_are_enough(taught: Model) -> None:
    longer = dataclasses.replace(LONG, text=LONG.text * 20)
    assert shown(taught, MILL, longer, prompt_tokens=500) == [["m", "l"]]
    short = dataclasses.replace(LONG, text=LONG.text[:900])
    for page in (short, longer):
        assert shown(taught, MILL, page) == [["m"], ["l"]]
    assert shown(taught, MILL, longer, prompt_tokens=250) == [["m"], ["l"]]
    assert shown(taught, MILL, longer, prompt_tokens=300) == [["m", "l"]]


def test_examples_before_the_question_show_single_pages(taught: Model) -> None:
    assert shown(taught, MILL, RIVER, few_shot=1, prompt_tokens=600) == [["m"], ["r"]]


def test_pages_that_can_t_be_shown_are_named_as_before(taught: Model) -> None:
    empty = Document("e", "Empty", " ")
    for pages in ((empty,), (empty, MILL), (MILL, empty, RIVER)):
        found = FoundPages(tuple(map(SearchResult, pages)))
        each, together = (
            Answerer(model, SETTINGS).prepare(QUESTION, found)
            for model in (load_model(MODEL), taught)
        )
        assert together.left_out == each.left_out
        assert together.reason == each.reason
        assert [left.document for left in together.left_out] == ["e"]

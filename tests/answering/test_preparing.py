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


def found(*pages: Document, snippet: str | None = None, inside: bool = True) -> FoundPages:
    results = tuple(SearchResult(page, snippet) for page in pages)
    return FoundPages(results, search_inside=inside)


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


# --- Passages of long pages ---

BURNT = "The mill burned in 1921."
REBUILT = "When it was rebuilt, the mill had 14 wheels."
WINTER = "In winter the roads are closed. "
TWICE = Document("t", "Town", f"{WINTER * 60}{BURNT} {WINTER * 120}{REBUILT} {WINTER * 60}")
ELSEWHERE = Document("e", "Farm", f"{WINTER * 120}A mill stood there. {WINTER * 120}")


def texts(model: Model, pages: FoundPages, **settings: object) -> list[list[str]]:
    """The texts in each prompt."""
    answerer = Answerer(model, dataclasses.replace(SETTINGS, **settings))  # type: ignore[arg-type]
    prepared = answerer.prepare(QUESTION, pages)
    return [[window.text for window in each.windows] for each in prepared.contexts]


def test_of_long_pages_the_best_passages_are_shown(taught: Model) -> None:
    ((one, two),) = texts(taught, found(TWICE), prompt_tokens=400)
    assert BURNT in one
    assert REBUILT in two
    (first, *others) = texts(load_model(MODEL), found(TWICE, ELSEWHERE))
    assert BURNT in first[0]
    for sentence in (REBUILT, "A mill stood there."):
        assert any(sentence in text for (text,) in others)


def test_each_window_of_a_passage_begins_with_a_sentence_and_is_nearly_filled(
    taught: Model,
) -> None:
    for model, tokens in ((taught, 400), (load_model(MODEL), 160)):
        for each in texts(model, found(TWICE), prompt_tokens=tokens):
            assert all(text.startswith(("In winter", "The mill", "When")) for text in each)
            assert sum(map(len, each)) > 1.7 * tokens


def test_a_window_of_a_passage_begins_with_its_paragraph(taught: Model) -> None:
    around = [f"Next. {WINTER * 10}"] * 20
    text = "\n".join([*around, f"The mill burned. {WINTER * 10}", *around])
    for joint in (True, False):
        prompts = texts(taught, found(dataclasses.replace(TWICE, text=text)), joint=joint)
        for (window,) in prompts:
            assert window.startswith(("Next. ", "The mill burned. "))
            assert "The mill burned." in window


def test_words_that_stand_far_apart_count_together(taught: Model) -> None:
    text = f"{WINTER * 60}A mill. {WINTER * 60}The mill. {WINTER * 8}It burned. {WINTER * 60}"
    page = dataclasses.replace(TWICE, text=text)
    (first, *_) = texts(taught, found(page), prompt_tokens=250, joint=False)
    assert "The mill." in first[0]
    assert "It burned." in first[0]


def test_a_passage_of_many_tokens_is_shown_from_its_start(taught: Model) -> None:
    numbers = "mill 7 4 9 6 5 3 " * 60
    page = dataclasses.replace(TWICE, text=f"{WINTER * 100}{numbers}{WINTER * 100}")
    ((first, *_),) = texts(taught, found(page), prompt_tokens=900)
    assert "mill 7 4 9" in first


def test_pages_of_a_search_engine_are_shown_around_its_snippets(taught: Model) -> None:
    for model in (taught, load_model(MODEL)):
        around = texts(model, found(TWICE, snippet=REBUILT, inside=False), prompt_tokens=400)
        ((only,),) = around
        assert REBUILT in only
        assert BURNT not in only


def test_without_a_word_of_the_question_a_page_is_shown_as_before(taught: Model) -> None:
    winter = Document("w", "Mill", WINTER * 240)
    for model in (taught, load_model(MODEL)):
        before = texts(model, found(winter, inside=False))
        assert texts(model, found(winter)) == before


def test_a_page_that_shows_a_third_is_shown_as_before(taught: Model) -> None:
    page = dataclasses.replace(TWICE, text=TWICE.text[: len(TWICE.text) // 2])
    for joint in (False, True):
        for tokens in (300, 400):
            inside, around = (
                texts(taught, found(page, inside=each), prompt_tokens=tokens, joint=joint)
                for each in (True, False)
            )
            assert (inside == around) == (tokens == 400)


def test_few_passages_of_five_hundred_characters_are_better_than_many(taught: Model) -> None:
    pages = [dataclasses.replace(TWICE, id=str(number)) for number in range(4)]
    for tokens, number in ((250, 1), (300, 2), (900, 5)):
        (prompt,) = texts(taught, found(*pages), prompt_tokens=tokens, joint=True)
        assert len(prompt) == number


def test_found_pages_whose_passages_are_not_shown_are_named(taught: Model) -> None:
    answerer = Answerer(taught, dataclasses.replace(SETTINGS, prompt_tokens=400))
    quiet = Document("q", "Quiet", WINTER * 200)
    prepared = answerer.prepare(QUESTION, found(TWICE, quiet))
    assert [(left.document, left.reason) for left in prepared.left_out] == [
        ("q", "passages of other pages fit the question better")
    ]
    assert {window.document.id for each in prepared.contexts for window in each.windows} == {"t"}


def test_a_title_that_leaves_no_room_for_several_passages_is_shown_once(taught: Model) -> None:
    long_title = found(dataclasses.replace(TWICE, title="mill " * 120, text=TWICE.text * 3))
    sampling = SamplingSettings(max_tokens=400)
    for joint in (True, None):
        around = texts(taught, long_title, prompt_tokens=900, joint=joint, sampling=sampling)
        assert [len(prompt) for prompt in around] == [1]
        assert len(around[0][0]) > 1000
    assert len(texts(taught, long_title, prompt_tokens=900, joint=False, sampling=sampling)) == 5

"""Few-shot prompts of answers: examples before each page, quotes only from the page itself."""

import dataclasses
import functools
import json
import pathlib

import pytest

from gophercite import cli, prompts
from gophercite.answering.answerer import Answerer
from gophercite.answering.pages import FoundPages
from gophercite.answering.settings import AnsweringSettings
from gophercite.documents import Document
from gophercite.few_shot.examples import SHORT, SHORT_PREAMBLE
from gophercite.model_folders.folder import Model, load_model
from gophercite.retrieval.contexts import SearchResult

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines" / "sample_world" / "model"
SETTINGS = AnsweringSettings(samples=2, prompt_tokens=1200, few_shot=2)
PAGES = (
    Document("o", "Ormsby", "Ormsby is a fishing town on the river Ilse."),
    Document("b", "Bees", "Bees dance to show where they have been."),
)
QUESTION = "Where is Ormsby?"


@functools.cache
def model() -> Model:
    return load_model(MODEL)


def prompts_of(**changes: object) -> list[str]:
    """The prompts that a question is asked with."""
    answerer = Answerer(model(), dataclasses.replace(SETTINGS, **changes))
    found = FoundPages(tuple(SearchResult(page) for page in PAGES))
    prepared = answerer.prepare(QUESTION, found)
    assert all(window.document in PAGES for each in prepared.contexts for window in each.windows)
    assert {left.document for left in prepared.left_out} | {
        window.document.id for each in prepared.contexts for window in each.windows
    } == {"o", "b"}
    return [model().vocabulary.decode(context.tokens) for context in prepared.contexts]


def test_each_page_has_examples_of_its_own() -> None:
    texts = prompts_of()
    assert len(texts) == 2
    for text, page in zip(texts, PAGES, strict=True):
        assert text.startswith(SHORT_PREAMBLE)
        assert text.endswith(prompts.prompt(QUESTION, [page]))
        assert sum(example.answer in text for example in SHORT) == 2
    assert prompts_of() == texts  # the draw is the question's


def test_all_pages_behind_the_same_examples() -> None:
    (text,) = prompts_of(joint=True)
    assert text.endswith(prompts.prompt(QUESTION, PAGES))


def test_without_examples_the_prompt_is_the_plain_one() -> None:
    assert prompts_of(few_shot=0) == [prompts.prompt(QUESTION, [page]) for page in PAGES]


def test_examples_that_leave_no_room_are_named() -> None:
    for joint in (False, True):
        assert prompts_of(prompt_tokens=60, joint=joint) == []


def test_more_examples_than_there_are() -> None:
    with pytest.raises(ValueError, match="must be from 0 to 5"):
        AnsweringSettings(few_shot=6)


def test_command(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = tmp_path / "Ormsby.txt"
    page.write_text(PAGES[0].text)
    asked = ["ask", QUESTION, "--documents", str(page), "--model", str(MODEL), "--any-text"]
    few = ["--few-shot", "1", "--samples", "2", "--max-tokens", "32", "--json"]
    assert cli.main([*asked, *few]) == 0
    answer = json.loads(capsys.readouterr().out)
    (citation,) = answer["answer"]
    assert citation["title"] == "Ormsby"
    assert citation["quote"] in PAGES[0].text
    with pytest.raises(SystemExit):
        cli.main([*asked, "--few-shot", "6"])
    assert "--few-shot: invalid choice: 6" in capsys.readouterr().err

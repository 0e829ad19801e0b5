"""The prompts that questions are asked with: whole where they fit, cut where they don't."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import trained

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.evaluation.question_prompts import (
    PromptReport,
    PromptSettings,
    encode_question,
    question_prompts,
)
from gophercite.few_shot.prompting import FewShotSettings, Style
from gophercite.records import FoundDocument, Hit, Question
from gophercite.retrieval.contexts import Reason

VOCABULARY = trained()
SHORT = Document("o", "Ormsby", "Built in 1874.")
LONG_TEXT = "The town is old. " * 60 + "Its lamp was lit with whale oil. " + "It rained. " * 60
LONG = FoundDocument("i", "Ilse", LONG_TEXT, snippet="lamp was lit with <b>whale oil</b> …")
MOVED = FoundDocument("m", "Moved", LONG_TEXT, snippet="Sign in to read on, or come back later")


def asked(*pages: Document | Hit) -> Question:
    return Question("q", "When?", "test", pages)


def made(questions, **changes):  # type: ignore[no-untyped-def]
    report = PromptReport()
    settings = PromptSettings(**changes)
    return question_prompts(questions, VOCABULARY, settings, report), report


def test_pages_that_fit_are_shown_whole_and_together() -> None:
    question = asked(SHORT, LONG)
    for limit in (None, 5000):
        (prompt,), report = made([question], prompt_tokens=limit)
        assert list(prompt.tokens) == encode_question(VOCABULARY, question)
        assert prompt.document is None
        assert (report.prompts, report.cut, report.declined) == (1, 0, {})


def test_longer_pages_are_cut_around_their_snippets() -> None:
    (prompt,), report = made([asked(SHORT, LONG)], prompt_tokens=200)
    assert len(prompt.tokens) <= 200
    short, long = prompt.sources
    assert short.text == SHORT.text
    assert "whale oil" in long.text
    assert long.text in LONG_TEXT
    assert report.cut == 1
    assert str(report) == "1 prompt, 1 of them with shortened pages"


def test_each_page_can_have_a_prompt_of_its_own() -> None:
    found, report = made([asked(SHORT), asked(SHORT, MOVED, LONG)], prompt_tokens=200, pages="each")
    assert [(prompt.index, prompt.number, prompt.document) for prompt in found] == [
        (0, 0, "o"), (1, 0, "o"), (1, 2, "i"),
    ]  # fmt: skip
    assert report.pages_left_out == {Reason.SNIPPET_NOT_FOUND.value: 1}
    assert report.declined == {}
    bare = prompts.encode_prompt(VOCABULARY, "When?", [SHORT])
    assert list(found[0].tokens) == bare


def test_questions_that_cannot_be_asked_are_declined_with_the_reason() -> None:
    questions = [asked(MOVED), asked(SHORT), asked()]
    _, report = made(questions, prompt_tokens=200, pages="each")
    assert report.declined == {0: Reason.SNIPPET_NOT_FOUND.value, 2: Reason.NO_PAGE.value}
    assert "1 question declined: the snippet is not in the page" in str(report)
    for limit in (None, 200):
        found, report = made([asked(), asked(SHORT)], prompt_tokens=limit, pages="together")
        assert [prompt.index for prompt in found] == [1]
        assert report.declined == {0: Reason.NO_PAGE.value}
    long_question = Question("q", "When? " * 200, "test", (SHORT,))
    _, report = made([long_question], prompt_tokens=200)
    assert report.declined == {0: Reason.NO_ROOM.value}


def test_examples_come_before_and_leave_less_room() -> None:
    few_shot = FewShotSettings(Style.SHORT, examples=1)
    one, report = made([asked(LONG)], prompt_tokens=600, few_shot=few_shot)
    again, _ = made([asked(LONG)], prompt_tokens=600, few_shot=few_shot)
    assert one == again
    (prompt,) = one
    assert len(prompt.tokens) <= 600
    text = VOCABULARY.decode(list(prompt.tokens))
    assert text.count("Question:") == 2
    assert "whale oil" in text
    assert report.cut == 1
    seeds = {made([asked(LONG)], prompt_tokens=600, few_shot=few_shot, seed=n)[0][0].tokens
             for n in range(20)}  # fmt: skip
    assert len(seeds) > 1


@settings(deadline=None, max_examples=25)
@given(
    limit=st.integers(40, 400),
    pages=st.sampled_from(["together", "each"]),
    texts=st.lists(st.integers(1, 200), min_size=1, max_size=4),
)
def test_no_prompt_is_longer_than_the_limit(limit: int, pages: str, texts: list[int]) -> None:
    documents = [
        Document(str(n), f"Page {n}", "It rained. " * size) for n, size in enumerate(texts)
    ]
    found, report = made([asked(*documents)], prompt_tokens=limit, pages=pages)
    assert bool(found) != bool(report.declined)
    for prompt in found:
        assert len(prompt.tokens) <= limit
        assert list(prompt.tokens) == prompts.encode_prompt(VOCABULARY, "When?", prompt.sources)
        for source in prompt.sources:
            assert isinstance(source, Window)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_tokens": 0}, "prompt_tokens is 0"),
        ({"pages": "all"}, "pages is 'all'"),
        ({"few_shot": FewShotSettings()}, "few_shot needs prompt_tokens"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromptSettings(**changes)


def test_a_page_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="question 'q': document 'h' has a snippet but no text"):
        made([asked(SHORT, Hit("h", "a snippet"))])

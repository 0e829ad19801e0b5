"""Answers as records: what is refused, and that JSON keeps everything."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.documents import Document, normalise_text
from gophercite.evidence import OMISSION, Evidence
from gophercite.records.answers import (
    Answer,
    Citation,
    LeftOut,
    Sample,
    answer_from_json,
    answer_to_json,
    cite,
    read_answer,
)
from gophercite.storage.json_fields import RecordError

PAGE = Document("o", "Ormsby", "A town. Its lighthouse was built in 1874.", "https://o.example/")
TRIPLE = Evidence("In 1874.", "Ormsby", "built in 1874")
CITATION = cite(TRIPLE, PAGE, PAGE.text.index(TRIPLE.quote))
ANSWER = Answer("When?", "tiny", citations=(CITATION,), text=" %<…", score=-1.5, likelihood=-1.5)

JOINED = dataclasses.replace(TRIPLE, quote="A town. [...] built in 1874")
RUNS = cite(JOINED, PAGE, 0, 27)

texts = st.text(min_size=1).map(normalise_text).filter(str.strip)
optional = st.none() | texts
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def citations(draw: st.DrawFn) -> Citation:
    quote = draw(texts)
    text = draw(st.text()) + quote
    starts = draw(st.just(()) | st.just((0,)) | st.just((0, len(text) // 2, len(text) - 1)))
    page = Document("d", draw(st.text()), text, draw(optional), draw(optional), page_starts=starts)
    quote = page.text[-len(quote) :]
    runs = 1 if OMISSION in quote else draw(st.integers(1, 3))
    triple = Evidence(draw(texts), page.title, OMISSION.join([quote] * runs))
    return cite(triple, page, *[len(page.text) - len(quote)] * runs)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    found = tuple(draw(st.lists(citations(), max_size=2)))
    drawn = st.builds(
        Sample, st.just(found), st.text(st.characters(exclude_categories=["Cs"])), numbers,
        numbers, numbers, st.integers(1), st.none() | numbers, st.none() | numbers,
        st.none() | numbers, st.booleans(),
    )  # fmt: skip
    return Answer(
        question=draw(texts),
        model=draw(texts),
        is_baseline=draw(st.booleans()),
        citations=found,
        reason=None if found else draw(texts),
        text=draw(st.text()),
        score=draw(st.none() | numbers),
        scored_by=draw(optional),
        likelihood=draw(st.none() | numbers),
        consensus=draw(st.none() | numbers),
        reward_model=draw(optional),
        supported_and_plausible=draw(st.none() | numbers),
        threshold=draw(st.none() | numbers),
        left_out=tuple(draw(st.lists(st.builds(LeftOut, texts, texts), max_size=2))),
        samples=tuple(draw(st.lists(drawn, max_size=2))),
    )


@settings(max_examples=50)
@given(answers())
def test_json_keeps_everything(answer: Answer) -> None:
    value = json.loads(json.dumps(answer_to_json(answer)))
    assert answer_from_json(value) == answer
    assert value["declined"] == (not value["answer"])


def test_the_fields_of_an_answer() -> None:
    value = answer_to_json(ANSWER)
    assert value["answer"] == [
        {
            "claim": "In 1874.",
            "title": "Ormsby",
            "quote": "built in 1874",
            "document": "o",
            "url": "https://o.example/",
            "retrieved_at": None,
            "sha256": PAGE.sha256,
            "start": 27,
            "end": 40,
            "spans": [{"start": 27, "end": 40}],
            "pages": [],
            "status": "exact",
        }
    ]
    assert PAGE.text[27:40] == "built in 1874"
    assert (value["declined"], value["score"], value["baseline"]) == (False, -1.5, False)
    assert "samples" not in value


def test_a_quote_that_is_not_there_is_not_cited() -> None:
    with pytest.raises(ValueError, match="the quote is not at 26:39 of document 'o'"):
        cite(TRIPLE, PAGE, 26)


def test_a_quote_that_leaves_words_out_has_the_places_of_its_runs() -> None:
    (value,) = answer_to_json(dataclasses.replace(ANSWER, citations=(RUNS,)))["answer"]
    assert value["quote"] == "A town. [...] built in 1874"
    assert (value["start"], value["end"]) == (None, None)
    assert value["spans"] == [{"start": 0, "end": 7}, {"start": 27, "end": 40}]
    assert RUNS.runs == ("A town.", "built in 1874")
    with pytest.raises(ValueError, match="the quote is not at 1:8 of document 'o'"):
        cite(JOINED, PAGE, 1, 27)
    with pytest.raises(ValueError, match="2 runs, but 3 places"):
        cite(JOINED, PAGE, 0, 7, 27)


def test_a_page_s_own_brackets_are_text_in_one_run() -> None:
    page = dataclasses.replace(PAGE, text=f"It said: {JOINED.quote}")
    citation = cite(JOINED, page, 9)
    assert citation.runs == (JOINED.quote,)
    answer = dataclasses.replace(ANSWER, citations=(citation,))
    assert answer_from_json(answer_to_json(answer)) == answer


def test_answers_from_before_there_were_pages_are_read() -> None:
    page = dataclasses.replace(PAGE, page_starts=(0, 30))
    answer = dataclasses.replace(ANSWER, citations=(cite(TRIPLE, page, 27),))
    value = answer_to_json(answer)
    assert value["answer"][0]["pages"] == [1, 2]
    del value["answer"][0]["pages"]
    assert answer_from_json(value) == ANSWER
    value["answer"][0]["pages"] = ["1"]
    with pytest.raises(RecordError, match="a whole number"):
        answer_from_json(value)


def test_answers_from_before_there_were_spans_are_read() -> None:
    value = answer_to_json(ANSWER)
    del value["answer"][0]["spans"]
    assert answer_from_json(value) == ANSWER


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        (
            {"spans": [{"start": 0, "end": 7}] * 3},
            "spans",
            "has 3 places, but the quote has 2 runs",
        ),
        ({"spans": [{"start": 0, "end": 7}, {"start": 27}]}, "spans[1].end", "is missing"),
        (
            {"spans": [{"start": 0, "end": 7}, {"start": 27, "end": 41}]},
            "spans[1].end",
            "can't be the place",
        ),
        ({"spans": [{"start": 0, "end": 27}], "start": 1, "end": 28}, "spans", "must be the place"),
        ({"spans": [], "start": 0, "end": 26}, "end", "can't be the place of a quote with 27"),
        ({"spans": None}, "start", "is missing"),
        ({"end": 40}, "end", "must be null"),
        (
            {"quote": "A [...]  ", "spans": [{"start": 0, "end": 1}, {"start": 9, "end": 10}]},
            "quote",
            "has no words before or after an omission",
        ),
    ],
    ids=["too many", "half", "elsewhere", "two places", "no span", "none", "an end", "blank"],
)
def test_places_that_are_none_of_the_runs_are_refused(
    change: dict[str, Any], field: str, problem: str
) -> None:
    value = answer_to_json(dataclasses.replace(ANSWER, citations=(RUNS,)))
    value["answer"][0] |= change
    with pytest.raises(RecordError, match=problem) as raised:
        answer_from_json(value)
    assert raised.value.field == f"answer[0].{field}"


@pytest.mark.parametrize("change", [{"citations": ()}, {"reason": "too hard"}])
def test_an_answer_is_given_or_declined(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="either citations or a reason"):
        dataclasses.replace(ANSWER, **change)


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"answer": None}, "answer", "is missing"),
        ({"answer": [7]}, "answer[0]", "expected an object, got the number 7"),
        ({"declined": True}, "declined", "must be true if there is no answer"),
        ({"score": "high"}, "score", "expected a number or null, got the string"),
        ({"score": True}, "score", "expected a number or null, got true"),
        ({"score": 10**400}, "score", "is too large for a number"),
        ({"model": None}, "model", "is missing"),
        ({"answer": [], "declined": True}, "reason", "is missing"),
        ({"samples": [{"answer": [], "text": ""}]}, "samples[0].score", "is missing"),
    ],
)
def test_bad_fields_are_named(change: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(RecordError, match=problem) as raised:
        answer_from_json(answer_to_json(ANSWER) | change)
    assert raised.value.field == field


@pytest.mark.parametrize("place", [(28, 40), (-1, 12), (40, 27)])
def test_a_place_that_is_none_of_the_quote_is_refused(place: tuple[int, int]) -> None:
    value = answer_to_json(ANSWER)
    value["answer"][0] |= {"start": place[0], "end": place[1], "spans": None}
    with pytest.raises(
        RecordError, match="can't be the place of a quote with 13 characters"
    ) as raised:
        answer_from_json(value)
    assert raised.value.field == "answer[0].end"


def test_reading_names_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer_to_json(ANSWER)))
    assert read_answer(path) == ANSWER
    path.write_text("{}")
    with pytest.raises(RecordError, match=f"{path}: field 'answer': is missing"):
        read_answer(path)

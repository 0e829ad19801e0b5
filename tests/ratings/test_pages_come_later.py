"""Files of pages and questions: bad lines fail the command, and missing pages can be added."""

import json
import pathlib
from typing import Any

import pytest

from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.items import Item, items_of, page_of
from gophercite.ratings.study import Study
from gophercite.records.answers import Answer, answer_to_json, cite
from tests.ratings.test_rate_command import OTHER, PAGE, TRIPLE, comparison, rate, write

Says = pytest.CaptureFixture[str]


def items(study: str, name: str = "nq") -> list[Item]:
    store = Study(study).store
    with store.reading() as connection:
        found = items_of(connection, experiment_named(connection, name), Role.ITEM)
        for each in found:
            for claim in (c for answer in each.item.answers for c in answer.claims if c.page):
                document = page_of(connection, claim.page or "")
                assert document is not None
                assert document.text[claim.start : claim.end] == claim.quote
    store.close()
    return [each.item for each in found]


def test_bad_lines_of_pages_and_questions_fail(tmp_path: pathlib.Path, capsys: Says) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    pages = write(tmp_path / "pages.jsonl", PAGE, {"id": "x"})
    questions = write(tmp_path / "questions.jsonl", {"id": "q"}, question())
    flags = ["--documents", pages, "--questions", questions, "--experiment", "nq"]
    study = str(tmp_path / "study")
    assert rate("new", study, file, *flags, "--json") == 1
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error.rpartition("/")[2].split(": ")[0] for error in errors] == [
        "pages.jsonl:2",
        "questions.jsonl:1",
    ]
    (item,) = items(study)
    assert all(answer.claims[0].page for answer in item.answers), "the good lines are used"
    assert rate("view", str(tmp_path / "html"), file, "--documents", pages, "--json") == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert "pages.jsonl:2" in error


def question() -> dict[str, Any]:
    return {"id": "q", "question": "When?", "source": "mine", "documents": [], "answers": ["x"]}


@pytest.mark.parametrize("flag", ["--documents", "--questions"])
@pytest.mark.parametrize("lines", [[comparison("c0")], []])
def test_a_file_of_which_nothing_is_usable_is_refused(
    tmp_path: pathlib.Path, capsys: Says, flag: str, lines: list[Any]
) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"))
    other = write(tmp_path / "other.jsonl", *lines)
    assert rate("new", str(tmp_path / "study"), file, flag, other) == 1
    said = capsys.readouterr().err
    assert f"{flag} {other}: no line of it is usable" in said
    assert (f"{other}:1: " in said) == bool(lines)
    assert not (tmp_path / "study").exists()


def test_missing_pages_are_filled_in(tmp_path: pathlib.Path, capsys: Says) -> None:
    file = write(tmp_path / "c.jsonl", comparison("c0"), comparison("c1"))
    study, pages = str(tmp_path / "study"), write(tmp_path / "pages.jsonl", PAGE)
    assert rate("new", study, file, "--experiment", "nq", "--set", "seed=3") == 0
    before = items(study)
    assert not any(answer.claims[0].page for item in before for answer in item.answers)
    assert rate("add", study, "nq", file, "--documents", pages) == 0
    assert "0 items added to 'nq'; 2 were already there" in capsys.readouterr().out
    after = items(study)
    assert all(answer.claims[0].page for item in after for answer in item.answers)
    for one, other in zip(before, after, strict=True):
        assert [a.template for a in one.answers] == [a.template for a in other.answers]
    changed = write(tmp_path / "changed.jsonl", {**PAGE, "text": "More. A town. Built in 1874."})
    assert rate("add", study, "nq", file, "--documents", changed) == 0
    assert items(study) == after, "pages that are there stay"


def test_missing_pages_of_printed_answers_are_filled_in(tmp_path: pathlib.Path) -> None:
    """Those pairs have made-up names; their lists of documents get the pages, too."""
    page = Document(**PAGE)
    printed = write(
        tmp_path / "a.jsonl",
        *(
            answer_to_json(Answer("When?", "m", citations=(cite(Evidence(*each), page, start),)))
            for each, start in ((TRIPLE.values(), 8), (OTHER.values(), 0))
        ),
    )
    study, pages = str(tmp_path / "study"), write(tmp_path / "pages.jsonl", PAGE)
    assert rate("new", study, printed, "--experiment", "nq") == 0
    assert rate("add", study, "nq", printed, "--documents", pages) == 0
    (item,) = items(study)
    assert all(answer.claims[0].page for answer in item.answers)
    for answer in item.answers:
        assert answer.documents == ({"id": "o", "sha256": answer.claims[0].page},)

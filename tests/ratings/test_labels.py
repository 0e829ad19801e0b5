"""Right answers of gold, screenings and checks: those that the form asks for, and no others."""

import json
import pathlib
from typing import Any

import pytest

from gophercite import cli
from gophercite.ratings import assignment, quality
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, counted_votes, gold_shares, is_right
from gophercite.ratings.experiments import Settings, add_rater, create_experiment
from gophercite.ratings.forms import FORMS
from gophercite.ratings.items import add_items, items_of
from gophercite.ratings.loading import MATERIAL, Loaded, read_items, read_written_items
from gophercite.records import Question
from gophercite.storage.json_fields import RecordError
from tests.ratings.studies import Clock, sqlite

PAGE = {"id": "o", "title": "Ormsby", "text": "A town. Built in 1874."}
TRIPLE = {"claim": "In 1874.", "title": "Ormsby", "quote": "Built in 1874."}
OTHER = {"claim": "Long ago.", "title": "Ormsby", "quote": "A town."}
ALL_YES = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
PLAUSIBLE = {"plausible_0": "yes", "plausible_1": "yes"}


def compared(preferred: float | None, **more: Any) -> dict[str, Any]:
    rating = {"rater": "x", "plausible": [True, True], "supported": [True, True]}
    line = {"id": "c", "question": "When?", "source": "mine", "responses": [[TRIPLE], [OTHER]]}
    return {**line, "preferred": preferred, "ratings": [rating], **more}


def rated(**more: Any) -> dict[str, Any]:
    line = {"question_id": "q", "question": "When?", "documents": [PAGE], "document": "o"}
    return {**line, **TRIPLE, **more}


def read(folder: pathlib.Path, form: str, line: dict[str, Any]) -> Loaded:
    (folder / "gold.jsonl").write_text(json.dumps(line))
    trusted = Question("q", "When?", "mine", (), incorrect_answers=("Never.",))
    return read_items([folder / "gold.jsonl"], FORMS[form], (), [trusted], as_gold=True)


@pytest.mark.parametrize(
    ("form", "line", "vote"),
    [
        ("comparison", compared(0.0), {**ALL_YES, "preferred": "0"}),
        ("comparison", compared(0.5), {**ALL_YES, "preferred": "both_good"}),
        ("comparison", compared(0.5), {**ALL_YES, "preferred": "both_bad"}),
        ("free-text", compared(1.0), {**PLAUSIBLE, "preferred": "1"}),
        ("minimal", compared(0.0), {"accuracy": "2", "coherence": "2", "overall": "-1"}),
        ("minimal", compared(0.5), {"accuracy": "2", "coherence": "2", "overall": "0"}),
        ("long-comparison", compared(1.0), {"overall": "2"}),
        (
            "truthfulqa",
            rated(ratings=[{"rater": "x", "truthful": True, "informative": False}]),
            {"truthful_0": "yes", "informative_0": "no"},
        ),
    ],
)
def test_who_says_what_the_labels_say_is_right(
    tmp_path: pathlib.Path, form: str, line: dict[str, Any], vote: dict[str, str]
) -> None:
    loaded = read(tmp_path, form, line)
    assert loaded.errors == []
    (new,) = loaded.items
    assert new.expected is not None
    assert new.expected.keys() <= {f.name for f in FORMS[form].fields(new.item, Settings())}
    assert is_right(vote, new.expected)
    for name in new.expected:  # and each label counts
        assert not is_right({**vote, name: "unsure"}, new.expected)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("comparison", compared(None, ratings=[])),
        ("long-comparison", compared(None)),
        ("minimal", compared(None)),
        ("minimal", rated(plausible=True, supported=True)),
        ("truthfulqa", rated(plausible=True, supported=True)),
        ("stance", rated(plausible=True, supported=True)),
    ],
)
def test_gold_whose_labels_the_form_does_not_ask_for_is_left_out(
    tmp_path: pathlib.Path, form: str, line: dict[str, Any]
) -> None:
    loaded = read(tmp_path, form, line)
    assert loaded.items == []
    (error,) = loaded.errors
    assert f"has no labels for the questions of the form {form!r}" in str(error)


@pytest.mark.parametrize("form", ["comparison", "free-text", "minimal", "long-comparison"])
@pytest.mark.parametrize("preferred", [0.0, 1.0])
def test_the_perfect_pass_a_screening_and_the_contrary_do_not(
    tmp_path: pathlib.Path, form: str, preferred: float
) -> None:
    """With a tie among the labels, which a screening ignores."""
    lines = [compared(preferred if n else 0.5, id=f"c{n}") for n in range(4)]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = read_items([tmp_path / "gold.jsonl"], FORMS[form], as_gold=True)
    store = sqlite(tmp_path, Clock())
    experiment = create_experiment(store, "s", form, "wide", Settings(gold_every=1))
    add_items(store, experiment, loaded.items)
    first = ALL_YES | {"preferred": "0", "overall": "-2"}
    second = ALL_YES | {"preferred": "1", "overall": "1"}
    tie = ALL_YES | {"preferred": "both_bad", "overall": "0"}
    right, wrong = (first, second) if preferred == 0.0 else (second, first)
    votes = {"perfect": (tie, right), "decided": (wrong, right), "contrary": (wrong, wrong)}
    with store.writing() as connection:
        for rater, (on_tie, otherwise) in votes.items():
            id = add_rater(store, rater, "wide").id
            for item in items_of(connection, experiment, Role.GOLD):
                asked = {field.name for field in FORMS[form].fields(item.item, Settings())}
                said = on_tie if item.name == "c0" else otherwise
                values = {name: value for name, value in said.items() if name in asked}
                assignment.vote(connection, 0.0, experiment, item.id, id, values, 0.0)
        screened = quality.screen(connection, experiment)
        assert [each.passed for each in screened] == [True, True, False]
        kind = "overall" if "overall" in asked else "preferred"
        assert [each.agreement[kind] for each in screened] == [1.0, 1.0, 0.0]
        assert gold_shares(connection, experiment) == {1: 1.0, 2: 0.75, 3: 0.0}
        counted = counted_votes(connection, experiment, Rules(gold_right=0.7))
        assert {vote.rater_id for vote in counted} == {1, 2}
    store.close()


# --- Checks and examples ---


def check(expected: object, answers: int = 2) -> dict[str, Any]:
    return {
        "question": "When?",
        "answers": [TRIPLE, OTHER][:answers],
        "expected": expected,
        "reason": "So it is.",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (check({"suported_0": "yes"}), "'expected.suported_0': the form has no such"),
        (check({"suported_0": "yes"}), "did you mean 'supported_0'"),
        (check({"overall": "1"}), "no such question; its questions are plausible_0,"),
        (check({"comment": "any"}), "'expected.comment'"),
        (check({"supported_1": "No"}), 'of no, unsure, yes, got the string "No"'),
        (check({"supported_1": True}), "'expected.supported_1': expected one or a list of"),
        (check({"preferred": ["0", "2"]}), "'expected.preferred'"),
        (check({"preferred": []}), "'expected.preferred'"),
        (check({"preferred": 0}), "got the number 0"),
        (check({}), "field 'expected'"),
        (check({"supported_0": "yes"}, answers=1), "has 1 answer; the form 'comparison' needs 2"),
    ],
)
@pytest.mark.parametrize("flag", ["--checks", "--examples"])
def test_checks_that_nobody_could_get_right_are_refused(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    line: dict[str, Any],
    said: str,
    flag: str,
) -> None:
    file = tmp_path / "written.jsonl"
    file.write_text(json.dumps(check({"supported_0": "yes"})) + "\n" + json.dumps(line))
    assert cli.main(["rate", "new", str(tmp_path / "study"), flag, str(file)]) == 1
    error = capsys.readouterr().err
    assert f"{file}:2: " in error
    assert said in error
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("path", sorted(MATERIAL.glob("*.jsonl")), ids=lambda path: path.stem)
@pytest.mark.parametrize("later", [False, True])
def test_our_own_checks_and_examples_fit_their_forms(path: pathlib.Path, later: bool) -> None:
    form, _, what = path.stem.partition("_")
    role = Role.CHECK if what == "checks" else Role.EXAMPLE
    assert list(read_written_items(path, role, FORMS[form], Settings(later_variant=later)))


def test_what_a_form_asks_may_depend_on_the_settings(tmp_path: pathlib.Path) -> None:
    """The later variant of WebGPT's comparison has no flags."""
    file, form = tmp_path / "checks.jsonl", FORMS["long-comparison"]
    file.write_text(json.dumps(check({"flag": "nonsense"})))
    assert list(read_written_items(file, Role.CHECK, form, Settings()))
    with pytest.raises(RecordError, match="no such question"):
        list(read_written_items(file, Role.CHECK, form, Settings(later_variant=True)))

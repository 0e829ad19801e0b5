"""Forms: the order shown and the answers' own, what is required when, time, and adjudication."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite import cli
from gophercite.rating_site.views import flattened, shown
from gophercite.ratings.experiments import Settings
from gophercite.ratings.forms import FORMS, Field, kept, problems, read_values
from gophercite.ratings.items import Answer, Claim, Item
from gophercite.ratings.study import Study
from gophercite.records import Extract
from tests.ratings.served import serve
from tests.ratings.studies import Clock

BOXES = Answer((Claim("It fell.", "Towers", "The tower fell.", "https://x.example/"),))
LONG = Answer(text="It fell [1]. So they say.", references=(Extract("Towers", "It fell."),))
SHORT = Answer(text="Nobody knows.")
SETTINGS = Settings()


def item(*answers: Answer, whole: bool = False) -> Item:
    return Item("q", "Did it fall?", "mine", answers, whole=whole)


ITEMS = {
    "comparison": item(BOXES, BOXES),
    "free-text": item(BOXES, SHORT),
    "truthfulqa": item(BOXES),
    "stance": item(BOXES),
    "long-comparison": item(LONG, SHORT, whole=True),
    "minimal": item(LONG, SHORT),
    "demonstration": item(),
}


@given(st.data(), st.sampled_from(sorted(FORMS)))
def test_turning_twice_gives_back_what_was_sent(data: st.DataObject, name: str) -> None:
    """And what was said of the answer shown first is kept of the second, where they are swapped."""
    form, own = FORMS[name], ITEMS[name]
    swapped = len(own.answers) == 2
    seen = form.fields(shown(own, swapped), SETTINGS)
    sent = {
        field.name: data.draw(st.sampled_from(sorted(field.values - {""})))
        for field in seen
        if field.choices
    }
    values, wrong = read_values(seen, sent)
    assert (values, wrong) == (sent, {})
    turned = kept(seen, values, swapped)
    fields = form.fields(own, SETTINGS)
    assert turned.keys() <= {field.name for field in fields}, "a field of the answers' own order"
    assert kept(fields, turned, swapped) == sent
    if swapped and "plausible_0" in sent:
        assert turned["plausible_1"] == sent["plausible_0"]
    if swapped and "overall" in sent:
        assert int(turned["overall"]) == -int(sent["overall"])
    if sent.get("preferred") in ("0", "1"):
        assert turned["preferred"] != sent["preferred"]


def required(form: str, of: Item, settings: Settings = SETTINGS) -> set[str]:
    return {field.name for field in FORMS[form].fields(of, settings) if field.required}


def test_what_webgpts_comparison_requires() -> None:
    """The overall rating always; all parts where that was drawn; the later variant's two more."""
    part, whole = item(LONG, SHORT), item(LONG, SHORT, whole=True)
    assert required("long-comparison", part) == {"overall"}
    assert {"flag", "trust.1_0", "support.2_0", "relevance.1_1", "irrelevant"} <= required(
        "long-comparison", whole
    )
    later = Settings(later_variant=True)
    assert required("long-comparison", part, later) == {"overall", "unsupported", "coherence"}
    fields = FORMS["long-comparison"].fields(part, later)
    assert "flag" not in {field.name for field in fields}


def test_a_single_answer_is_rated_for_itself() -> None:
    fields = FORMS["minimal"].fields(item(LONG), SETTINGS)
    words = [label for _, label in fields[1].choices]
    assert words == ["Very bad", "Bad", "Neutral", "Good", "Very good"]
    assert required("minimal", item(LONG)) == {"accuracy_0", "coherence_0", "useful_0"}


@pytest.mark.parametrize("words", [0, 7])
def test_comments_are_as_long_as_the_experiment_asks_for(words: int) -> None:
    settings = Settings(comment_words=words)

    def wrong(form: str, comment: str) -> bool:
        fields = FORMS[form].fields(ITEMS[form], settings)
        values = {**_answered(fields), "comment": comment}
        return "comment" in problems(FORMS[form], fields, values, settings)

    assert wrong("comparison", "one two three four five six") is (words == 7)
    assert not wrong("comparison", "one two three four five six seven")
    assert wrong("comparison", "") is (words == 7)
    assert not wrong("truthfulqa", "short"), "which asks for none"


def _answered(fields: list[Field]) -> dict[str, str]:
    return {field.name: field.choices[0][0] for field in fields if field.choices}


def test_the_three_templates() -> None:
    (claim,) = BOXES.claims
    texts = [flattened(claim, template) for template in range(3)]
    assert len(set(texts)) == 3
    for text in texts:
        assert text.startswith("It fell.\n\n")
        assert "The tower fell." in text
        assert "Towers" in text
        assert text.endswith("[1] https://x.example/")


def test_who_is_too_quick_reads_again(tmp_path: pathlib.Path) -> None:
    line = {"id": "c", "question": "Did it fall?", "source": "mine", "responses": ["Yes.", "No."]}
    (tmp_path / "c.jsonl").write_text(json.dumps(line))
    options = ["--checks", "none", "--set", "minimum_seconds=10", "--set", "comment_words=0"]
    arguments = [str(tmp_path / "study"), str(tmp_path / "c.jsonl"), *options]
    assert cli.main(["rate", "new", *arguments]) == 0
    clock = Clock()
    with serve(Study(tmp_path / "study", clock)) as served:
        browser = served.browser("hasty")
        page = browser.get("/e/1")
        vote = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
        vote |= {"preferred": "both_good"}
        clock.time += 9
        quick = browser.send("/e/1", page.form | vote)
        assert quick.status == 422
        assert "very quick" in quick.text
        assert quick.form["preferred"] == "both_good"
        clock.time += 1
        assert "Nothing is left" in browser.send("/e/1", quick.form).text


def test_who_adjudicates_sees_what_others_said(tmp_path: pathlib.Path) -> None:
    """By the order shown, and without names."""
    lines = [
        {"id": f"c{n}", "question": f"Question {n}?", "source": "mine", "responses": ["Y.", "N."]}
        for n in range(6)
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = str(tmp_path / "study")
    options = ["--experiment", "nq", "--checks", "none", "--set", "minimum_seconds=0"]
    assert cli.main(["rate", "new", study, str(tmp_path / "c.jsonl"), *options]) == 0
    votes = ["item,rater,plausible_0,plausible_1,preferred"]
    for line in lines:
        votes += [f"{line['id']},Ada Q,yes,no,0", f"{line['id']},Bob Q,yes,yes,both_good"]
    (tmp_path / "v.csv").write_text("\n".join(votes))
    assert cli.main(["rate", "import", study, "nq", str(tmp_path / "v.csv")]) == 0
    assert cli.main(["rate", "adjudicate", study, "nq", "decided"]) == 0
    with serve(Study(study)) as served:
        browser = served.browser("judge", pool="researchers")
        orders = set()
        for _ in lines:
            page = browser.get("/e/2")
            assert "What others said" in page.text
            assert "Ada Q" not in page.source
            assert "Bob Q" not in page.source
            said = page.elements.text.partition("What others said")[2]
            first = page.text.index("Y.") < page.text.index("N.")
            orders.add(first)
            better, worse = ("First", "Second") if first else ("Second", "First")
            told = " ".join(said.partition("Rater 2")[0].split())
            assert f"{better} answer: Plausible answer?Yes" in told
            assert f"{worse} answer: Plausible answer?No" in told
            assert f"The {better.lower()} answer" in told
            browser.send("/e/2", page.form | {"action": "skip"})
        assert orders == {True, False}, "both orders were met"

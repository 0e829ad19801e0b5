"""Raters change the answer that they sent last: every change is a revision."""

import pathlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from gophercite import cli
from gophercite.ratings import assignment
from gophercite.ratings.schema import ratings
from gophercite.ratings.study import Study
from tests.ratings.browsing import at_hill, study_of
from tests.ratings.served import Page, Served, serve
from tests.ratings.studies import Clock
from tests.ratings.test_rate_command import comparison, write

VOTE = {
    "plausible_0": "yes",
    "supported_0": "no",
    "plausible_1": "yes",
    "supported_1": "yes",
    "preferred": "1",
    "comment": "one two three four five six seven",
}
CHANGED = VOTE | {"supported_0": "yes", "preferred": "both_good"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def served(tmp_path: pathlib.Path, clock: Clock) -> Iterator[Served]:
    file = write(tmp_path / "c.jsonl", *(comparison(f"c{n}") for n in range(3)))
    options = ["--checks", "none", "--set", "minimum_seconds=10"]
    assert cli.main(["rate", "new", str(tmp_path / "study"), file, *options]) == 0
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        yield served
    study.store.close()


def link_to_last(page: Page) -> str:
    """The address behind "Change your last answer"; empty without it."""
    found = [str(a["href"]) for tag, a in page.elements.elements if tag == "a"]
    assert ("Change your last answer" in page.text) == any("/rated/" in each for each in found)
    return next((each for each in found if "/rated/" in each), "")


def revisions(served: Served) -> list[tuple[int, int, float]]:
    """Item, revision and seconds of all votes in their order."""
    with served.study.store.reading() as connection:
        rows = connection.execute(sa.select(ratings).order_by(ratings.c.id)).all()
    return [(row.item_id, row.revision, row.seconds) for row in rows]


def test_the_last_answer_is_shown_again_and_changed(served: Served, clock: Clock) -> None:
    browser = served.browser("ada")
    first = browser.get("/e/1")
    assert link_to_last(first) == "", "there is none yet"
    clock.time += 40
    second = browser.send("/e/1", first.form | VOTE)
    again = browser.get(link_to_last(second))
    assert {name: again.form[name] for name in VOTE} == VOTE
    assert "You have already answered" in again.text
    assert link_to_last(again) == ""
    assert not again.has("button", value="skip")
    assert again.has("a", href="/e/1")
    wrong = browser.send("/e/1", again.form | CHANGED | {"comment": "too short"})
    assert wrong.status == 422
    assert "You have already answered" in wrong.text
    clock.time += 5
    after = browser.send("/e/1", wrong.form | CHANGED)
    assert after.form["ticket"] == second.form["ticket"], "on to where they were"
    (item, _, seconds), (same, revision, more) = revisions(served)
    assert (item, same, revision) == (same, item, 1)
    assert (seconds, more) == (40, 45), "all the time that went into the answer"
    changed = browser.get(link_to_last(after))
    assert {name: changed.form[name] for name in CHANGED} == CHANGED


def test_a_draft_of_a_change_is_kept_until_an_answer_is_sent(served: Served, clock: Clock) -> None:
    browser = served.browser("ada")
    first = browser.get("/e/1")
    clock.time += 40
    link = link_to_last(browser.send("/e/1", first.form | VOTE))
    form = browser.get(link).form
    assert browser.send("/e/1/draft", form | CHANGED).source == '{"saved":true}'
    again = browser.get(link)
    assert "This is what you had written" in again.text
    assert again.form["preferred"] == "both_good"
    assert len(revisions(served)) == 1
    browser.send("/e/1", form | VOTE)  # the rater thinks better of it
    assert browser.get(link).form["preferred"] == VOTE["preferred"]
    assert len(revisions(served)) == 1


def test_whose_answers_can_be_changed(served: Served, clock: Clock) -> None:
    browser = served.browser("ada")
    form = browser.get("/e/1").form
    clock.time += 40
    page = browser.send("/e/1", form | VOTE)
    link = link_to_last(page)
    assert served.browser("bob").get(link).status == 404
    assert served.browser("eve", pool="wide").get(link).status == 404
    assert served.browser().get(link).status == 401
    for other in range(9):
        if f"/e/1/rated/{other}" != link:
            assert browser.get(f"/e/1/rated/{other}").status == 404
    for _ in range(2):
        clock.time += 40
        page = browser.send("/e/1", page.form | VOTE)
    assert "Nothing is left" in page.text
    assert browser.get(link_to_last(page)).form["preferred"] == VOTE["preferred"]
    with served.study.store.writing() as connection:
        assignment.exclude(connection, clock(), 1, 1, "a test", "command")
    assert "over for you" in browser.get(link).text


def test_a_demonstration_can_not_be_changed(tmp_path: pathlib.Path) -> None:
    study = study_of(tmp_path)
    with serve(study) as served:
        person = at_hill(served, "Ada")
        person.quote("burned down")
        person.press("End: Answer")
        done = person.answer("It burned down [1].")
        assert "Nothing is left" in done.text
        assert link_to_last(done) == ""
        assert person.browser.get("/e/1/rated/1").status == 404
    study.store.close()

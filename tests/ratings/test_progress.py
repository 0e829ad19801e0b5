"""What raters are told is left for them: what they then really get."""

import pathlib

import pytest

from gophercite import cli
from gophercite.rating_site.progress import progress
from gophercite.ratings import assignment
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.study import Study
from tests.ratings.browsing import Demonstrator, at_hill, study_of
from tests.ratings.served import serve
from tests.ratings.studies import Clock, bare_experiment, bare_items, sqlite
from tests.ratings.test_interfaces import pass_checks
from tests.ratings.test_rate_command import comparison, write


@pytest.mark.parametrize("every", [0, 1, 2, 3, 8])
@pytest.mark.parametrize(("count", "gold"), [(5, 0), (0, 3), (5, 2), (2, 5), (1, 1)])
def test_what_is_left_is_what_a_rater_gets(
    tmp_path: pathlib.Path, every: int, count: int, gold: int
) -> None:
    """Gold comes in its turn, and all of it in a screening; a skipped item does not come back."""
    store = sqlite(tmp_path, Clock())
    experiment = bare_experiment(store, raters=1, gold_every=every)
    bare_items(store, experiment, count)
    bare_items(store, experiment, gold, Role.GOLD, "g")
    ada = add_rater(store, "ada", "super").id
    told, got = [], 0
    while True:
        with store.writing() as connection:
            before = progress(connection, experiment, ada)
            lease = assignment.next_item(connection, 0.0, experiment, ada)
            held = progress(connection, experiment, ada)
            assert held == before, "the item that a rater has begun is one of those to go"
            told.append(before.left)
            if lease is None:
                break
            values = {"right": "yes"}
            assignment.vote(connection, 0.0, experiment, lease.item_id, ada, values, 0.0)
            got += 1
            assert progress(connection, experiment, ada).done == got
    assert told == list(range(got, -1, -1))
    store.close()


def test_a_skipped_item_is_not_to_go(tmp_path: pathlib.Path) -> None:
    store = sqlite(tmp_path, Clock())
    experiment = bare_experiment(store, gold_every=1)
    gold = bare_items(store, experiment, 2, Role.GOLD, "g")
    ada = add_rater(store, "ada", "super").id
    with store.writing() as connection:
        assignment.next_item(connection, 0.0, experiment, ada)
        assignment.skip(connection, 0.0, gold[0], ada)
        assert progress(connection, experiment, ada).left == 1
    store.close()


def test_the_home_page_and_the_status_of_a_screening(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (comparison(f"c{n}", preferred=0.0) for n in range(2))
    file, folder = write(tmp_path / "gold.jsonl", *lines), tmp_path / "study"
    options = ["--screening", "--set", "minimum_seconds=0"]
    assert cli.main(["rate", "new", str(folder), file, *options]) == 0
    study = Study(folder)
    with serve(study) as served:
        browser = served.browser("ada")
        assert "0 rated, 2 to go" in browser.get("/").text
        page = pass_checks(served, browser, "/e/1")
        votes = {f"{name}_{a}": "yes" for name in ("plausible", "supported") for a in (0, 1)}
        votes |= {"preferred": "unsure", "comment": "one two three four five six seven"}
        assert "1 rated, 1 to go" in browser.send("/e/1", page.form | votes).text
    capsys.readouterr()
    assert cli.main(["rate", "status", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "2 gold items, 1 votes on them" in said
    assert "0 of 0" not in said
    study.store.close()


def test_an_item_whose_lease_has_expired_is_to_go(tmp_path: pathlib.Path) -> None:
    file, folder = write(tmp_path / "c.jsonl", comparison("c")), tmp_path / "study"
    options = ["--checks", "none", "--set", "raters=1"]
    assert cli.main(["rate", "new", str(folder), file, *options]) == 0
    clock = Clock()
    study = Study(folder, clock)
    with serve(study) as served:
        assert served.browser("ada").get("/e/1").status == 200
        bob = served.browser("bob")
        assert "There is nothing to rate now" in bob.get("/").text
        clock.time += 31 * 60
        assert "0 rated, 1 to go" in bob.get("/").text
        assert "0 rated, 1 to go" in bob.get("/e/1").text
    study.store.close()


def test_a_question_that_was_begun_is_to_go_though_others_have_it(tmp_path: pathlib.Path) -> None:
    clock = Clock()
    study_of(tmp_path).store.close()
    study = Study(tmp_path / "study", clock)
    with serve(study) as served:
        person = at_hill(served, "Slow")
        clock.time += 31 * 60
        Demonstrator(served, "Quick")
        assert "0 rated, 1 to go" in person.browser.get("/").text
        assert "The ◆ lighthouse" in person.browser.get("/e/1").text
    study.store.close()

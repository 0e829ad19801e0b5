"""Every interface in Chromium: by keyboard, on a desktop and a phone, without axe violations.

`tests/ratings/chromium.py` says what it needs.
"""

import collections
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite import cli
from gophercite.rating_site import admin_pages
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.schema import ratings
from gophercite.ratings.study import Study
from tests.ratings.chromium import DESKTOP, PHONE, Tab, launched
from tests.ratings.served import Served, serve
from tests.ratings.test_interfaces import ALL, address, as_shown, files, is_swapped, pass_checks

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("chromium")
    for form, arguments in files(folder).items():
        settings = ["minimum_seconds=0", "raters=99"]
        settings += ["parts_required=1"] if form == "long-comparison" else []
        options = ["--form", form, *(word for each in settings for word in ("--set", each))]
        assert cli.main(["rate", "new", str(folder / "study"), *arguments, *options]) == 0
    study = Study(folder / "study")
    admin_pages.set_password(study.store, "root", PASSWORD)
    with serve(study) as served:
        yield served


@pytest.mark.parametrize("form", ALL)
def test_by_keyboard_alone(served: Served, chromium: Any, form: str) -> None:
    """Numbers answer groups, Ctrl+Enter sends; the draft is kept meanwhile."""
    name, here = f"keys {form}", address(served, form)
    pass_checks(served, served.browser(name), here)
    tab = Tab(chromium, served.url, DESKTOP)
    page = tab.page
    tab.goto(served.link(name))
    tab.goto(here)
    assert page.locator("#submit").is_disabled()
    groups = page.locator("fieldset.choice")
    for place in range(groups.count()):
        group = groups.nth(place)
        if group.locator("input:checked").count():
            continue
        page.keyboard.press("1" if "prefer" not in group.inner_text() else "3")
    for place in range(page.locator("select").count()):
        page.locator("select").nth(place).focus()
        page.keyboard.press("ArrowDown")
    if page.locator("textarea[required]").count():
        assert page.locator("#submit").is_disabled()
        page.locator("textarea").focus()
        page.keyboard.type("it says when, and proves it with words")
    page.wait_for_selector("#saved:has-text('Draft saved')")
    page.reload()
    assert page.locator("#submit").is_enabled(), "the draft is whole"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("h1:has-text('All done')")
    with served.study.store.reading() as connection:
        experiment = experiment_named(connection, form)
        mine = sa.select(sa.func.count(ratings.c.id)).where(
            ratings.c.experiment_id == experiment.id
        )
        assert connection.execute(mine).scalar_one() == 1
    tab.close()


def test_every_page_looks_right(served: Served, chromium: Any) -> None:
    tab = Tab(chromium, served.url, DESKTOP, PHONE)
    tab.goto(served.link("looks"))
    tab.look("home")
    for form in ALL:
        here, alike = address(served, form), form not in ("comparison", "stance")
        tab.goto(here)
        tab.look(f"{form}-practice", alike=alike)
        tab.goto(f"{here}/instructions")
        tab.look(f"{form}-instructions", alike=alike)
        tab.goto(f"{here}/examples")
        tab.look(f"{form}-examples", alike=alike)
        pass_checks(served, served.browser("looks"), here)
        tab.goto(here)
        tab.look(form, alike=alike)
        if form == "comparison":
            before = tab.page
            with before.expect_popup() as popup:
                before.get_by_text("See the quote in its page").first.click()
            tab.page = popup.value
            tab.page.wait_for_load_state()
            assert tab.page.locator("mark").count() == 1
            tab.look("stored-page")
            tab.page = before
    tab.close()


def test_without_scripts_what_is_wrong_is_said(served: Served, chromium: Any) -> None:
    name, here = "no scripts", address(served, "comparison")
    pass_checks(served, served.browser(name), here)
    context = chromium.new_context(java_script_enabled=False, base_url=served.url)
    page = context.new_page()
    page.goto(served.link(name))
    page.goto(here)
    shown = as_shown(ALL["comparison"], is_swapped(served, "comparison"))
    for field, value in shown.items():
        if field != "comment":
            page.check(f"input[name='{field}'][value='{value}']")
    page.fill("textarea", "too short")
    page.click("#submit")
    assert "at least 7 words; there are 2" in page.inner_text("#problems")
    page.fill("textarea", shown["comment"])
    page.click("#submit")
    assert "All done" in page.inner_text("h1")
    context.close()


def test_the_last_answer_is_changed(served: Served, chromium: Any) -> None:
    """As a rater does it, who finds it by its link; the browser's Back shows the next item."""
    name, here = "second thoughts", address(served, "comparison")
    pass_checks(served, served.browser(name), here)
    tab = Tab(chromium, served.url, DESKTOP, PHONE)
    page = tab.page
    tab.goto(served.link(name))
    tab.goto(here)
    shown = as_shown(ALL["comparison"], is_swapped(served, "comparison"))
    for field, value in shown.items():
        if field != "comment":
            page.check(f"input[name='{field}'][value='{value}']")
    page.fill("textarea", shown["comment"])
    page.click("#submit")
    page.click("text=Change your last answer")
    page.wait_for_selector("text=You have already answered this")
    tab.look("changed-answer")
    assert page.input_value("textarea") == shown["comment"]
    page.fill("textarea", shown["comment"] + " That is what I think now.")
    page.click("#submit")
    page.wait_for_selector("h1:has-text('All done')")
    tab.look("all-done")
    with served.study.store.reading() as connection:
        query = sa.select(ratings).order_by(ratings.c.id.desc())
        row = connection.execute(query.limit(1)).one()
    assert (row.revision, row.values["preferred"]) == (1, ALL["comparison"]["preferred"])
    assert row.values["comment"].endswith("now.")
    tab.close()


def test_the_administrators_pages(served: Served, chromium: Any) -> None:
    tab = Tab(chromium, served.url, DESKTOP, PHONE)
    tab.goto("/admin/login")
    tab.look("login")
    tab.page.fill("input[name=name]", "root")
    tab.page.fill("input[name=password]", PASSWORD)
    tab.page.click("button")
    tab.page.wait_for_selector("h1:has-text('Study')")
    tab.look("admin")
    tab.page.click("text=Log out")
    tab.page.wait_for_selector("h1:has-text('Administration')")
    tab.close()


def test_hostile_text_runs_nothing(tmp_path: pathlib.Path, chromium: Any) -> None:
    from tests.ratings.test_attacks import EVIL, write

    triple = {"claim": f"C {EVIL}", "title": f"T {EVIL}", "quote": EVIL}
    line = {"id": EVIL, "question": EVIL, "source": EVIL, "responses": [[triple], [triple]]}
    page = {"id": "p", "title": f"T {EVIL}", "text": f"Before. {EVIL} After."}
    pair, pages = write(tmp_path / "pair.jsonl", line), write(tmp_path / "pages.jsonl", page)
    study = str(tmp_path / "study")
    options = ["--documents", pages, "--checks", "none"]
    assert cli.main(["rate", "new", study, pair, *options]) == 0
    with serve(Study(study)) as served:
        tab = Tab(chromium, served.url, DESKTOP)
        tab.goto(served.link("victim"))
        tab.goto("/e/1")
        with tab.page.expect_popup() as popup:
            tab.page.get_by_text("See the quote in its page").first.click()
        popup.value.wait_for_load_state()
        assert "<script>alert(1)</script>" in popup.value.inner_text("mark")
        assert tab.page.locator("img, svg, iframe").count() == 0
        tab.close()


def test_the_viewer_opens_from_disk(tmp_path: pathlib.Path, chromium: Any) -> None:
    """Search and filters, by a script that the page's own policy allows; nothing else runs."""
    from gophercite.rating_site.viewer import write_viewer
    from tests.ratings.test_viewer import answer

    write_viewer(tmp_path, "Answers", (answer(number) for number in range(250)))
    tab = Tab(chromium, tmp_path.as_uri(), DESKTOP)
    tab.goto((tmp_path / "index.html").as_uri())
    assert tab.page.inner_text("#count") == "250 of 250 answers"
    assert tab.page.locator("#list li").count() == 50
    tab.page.fill("#search", "claim 24")
    tab.page.select_option("select[name=supported]", "no")
    assert tab.page.inner_text("#count") == "5 of 250 answers", (
        "24, 124, 224 and 240 to 249, less the even"
    )
    tab.page.locator("#list a").first.click()
    tab.page.wait_for_selector("article")
    assert tab.page.locator("mark").first.inner_text() == "The tower fell."
    tab.close()


def test_the_viewer_sorts_and_filters_by_rewards(tmp_path: pathlib.Path, chromium: Any) -> None:
    from gophercite.rating_site.entries import Pages, parse
    from gophercite.rating_site.viewer import write_viewer
    from tests.ratings.test_viewer import PAGE, answer, line

    samples = [parse(line(number), collections.Counter()) for number in range(20)]
    write_viewer(tmp_path, "Samples", [answer(0), *samples], Pages([PAGE]))
    tab = Tab(chromium, tmp_path.as_uri(), DESKTOP, PHONE)
    page = tab.page
    tab.goto((tmp_path / "index.html").as_uri())

    def rewards() -> list[float | None]:
        texts = page.locator("#list .said").all_inner_texts()
        found = [re.search(r"reward: (-?\d+)", text) for text in texts]
        return [float(match[1]) if match else None for match in found]

    assert rewards()[:4] == [None, -3, -2, -1], "as in the file"
    tab.look("viewer")
    page.select_option("#sort", "-reward")
    ranked = rewards()
    assert ranked[-1] is None, "what has none comes last"
    assert ranked[:-1] == sorted(ranked[:-1], key=lambda each: -(each or 0.0))
    page.select_option("#sort", "+reward")
    assert rewards()[:3] == [-3, -3, -3]
    page.fill("input[data-number=reward][data-end=least]", "1")
    page.fill("input[data-number=reward][data-end=most]", "2")
    assert set(rewards()) == {1, 2}
    assert "of 21 answers" in page.inner_text("#count")
    page.locator("#list a").first.click()
    page.wait_for_selector("article")
    tab.look("viewer-part")
    tab.close()

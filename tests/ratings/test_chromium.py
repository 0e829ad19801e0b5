"""Every interface in Chromium: by keyboard, on a desktop and a phone, without axe violations.

It needs `pip install playwright axe-playwright-python` and a Chromium of the system, and is skipped
without. With SCREENSHOTS=FOLDER it leaves a picture of each page there.
"""

import collections
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite import cli
from gophercite.browser.episodes import read_episodes
from gophercite.ratings import admin_pages
from gophercite.ratings.experiments import experiment_named
from gophercite.ratings.schema import ratings
from gophercite.ratings.study import Study
from tests.ratings.browsing import study_of
from tests.ratings.served import Served, serve
from tests.ratings.test_interfaces import ALL, address, as_shown, files, is_swapped, pass_checks

playwright = pytest.importorskip(
    "playwright.sync_api", reason="pip install playwright axe-playwright-python"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium is installed here", allow_module_level=True)

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("chromium")
    for form, arguments in files(folder).items():
        settings = ("minimum_seconds=0", "parts_required=1", "raters=99")
        options = ["--form", form, *(word for each in settings for word in ("--set", each))]
        assert cli.main(["rate", "new", str(folder / "study"), *arguments, *options]) == 0
    study = Study(folder / "study")
    admin_pages.set_password(study.store, "root", PASSWORD)
    with serve(study) as served:
        yield served


class Tab:
    """A page of Chromium; whatever goes wrong in it is a fault."""

    def __init__(self, chromium: Any, url: str, viewport: dict[str, int]) -> None:
        self._context = chromium.new_context(viewport=viewport, base_url=url)
        self.page, self.wrong = self._context.new_page(), list[str]()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        self.is_phone = viewport is PHONE

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def look(self, name: str) -> None:
        """No violation, nothing wider than the screen, and a picture where they are wanted."""
        found = axe.Axe().run(self.page)
        assert found.violations_count == 0, found.generate_report()
        wide = self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        assert not wide, f"{name} is wider than the screen"
        if folder := os.environ.get("SCREENSHOTS"):
            kind = "phone" if self.is_phone else "desktop"
            path = pathlib.Path(folder, f"{name}-{kind}.png")
            self.page.screenshot(path=str(path), full_page=True)

    def close(self) -> None:
        self._context.close()
        assert self.wrong == []


@pytest.mark.parametrize("form", ALL)
def test_by_keyboard_alone(served: Served, chromium: Any, form: str) -> None:
    """Numbers answer groups, Ctrl+Enter sends; the draft is kept meanwhile."""
    name, here = f"keys {form}", address(served, form)
    pass_checks(served, served.browser(name), here)
    tab = Tab(chromium, served.url, DESKTOP)
    page = tab.page
    page.goto(served.link(name))
    page.goto(here)
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


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_looks_right(served: Served, chromium: Any, viewport: dict[str, int]) -> None:
    for form in ALL:
        name, here = f"looks {form} {viewport['width']}", address(served, form)
        tab = Tab(chromium, served.url, viewport)
        tab.page.goto(served.link(name))
        tab.look("home")
        tab.page.goto(here)
        tab.look(f"{form}-practice")
        tab.page.goto(f"{here}/instructions")
        tab.look(f"{form}-instructions")
        tab.page.goto(f"{here}/examples")
        tab.look(f"{form}-examples")
        pass_checks(served, served.browser(name), here)
        tab.page.goto(here)
        tab.look(form)
        if form == "comparison":
            with tab.page.expect_popup() as popup:
                tab.page.get_by_text("See the quote in its page").first.click()
            tab.page = popup.value
            tab.page.wait_for_load_state()
            assert tab.page.locator("mark").count() == 1
            tab.look("stored-page")
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


def test_the_administrators_pages(served: Served, chromium: Any) -> None:
    for viewport in (DESKTOP, PHONE):
        tab = Tab(chromium, served.url, viewport)
        tab.page.goto("/admin/login")
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
        tab.page.goto(served.link("victim"))
        tab.page.goto("/e/1")
        with tab.page.expect_popup() as popup:
            tab.page.get_by_text("See the quote in its page").first.click()
        popup.value.wait_for_load_state()
        assert "<script>alert(1)</script>" in popup.value.inner_text("mark")
        assert tab.page.locator("img, svg, iframe").count() == 0
        tab.close()


def test_the_viewer_opens_from_disk(tmp_path: pathlib.Path, chromium: Any) -> None:
    """Search and filters, by a script that the page's own policy allows; nothing else runs."""
    from gophercite.ratings.viewer import write_viewer
    from tests.ratings.test_viewer import answer

    write_viewer(tmp_path, "Answers", (answer(number) for number in range(250)))
    tab = Tab(chromium, tmp_path.as_uri(), DESKTOP)
    tab.page.goto((tmp_path / "index.html").as_uri())
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


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_viewer_sorts_and_filters_by_rewards(
    tmp_path: pathlib.Path, chromium: Any, viewport: dict[str, int]
) -> None:
    from gophercite.ratings.entries import Pages, parse
    from gophercite.ratings.viewer import write_viewer
    from tests.ratings.test_viewer import PAGE, answer, line

    samples = [parse(line(number), collections.Counter()) for number in range(20)]
    write_viewer(tmp_path, "Samples", [answer(0), *samples], Pages([PAGE]))
    tab = Tab(chromium, tmp_path.as_uri(), viewport)
    page = tab.page
    page.goto((tmp_path / "index.html").as_uri())

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


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A study of demonstrations, in the small site of the browser's tests."""
    folder = tmp_path_factory.mktemp("browsed")
    more = ("--set", "raters=99", "--browser", "view_lines=20")
    with serve(study_of(folder, more=more)) as served:
        yield served


def demonstrated(served: Served) -> list[list[str]]:
    """What was done in each episode that is over, the latest last."""
    out = served.study.folder.parent / "episodes.jsonl"
    assert (
        cli.main(
            ["rate", "export", str(served.study.folder), "demonstration", "episodes", str(out)]
        )
        == 0
    )
    return [[step.action for step in each.steps] for each in read_episodes(out, strict=True)]


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_browsing_looks_right(browsed: Served, chromium: Any, viewport: dict[str, int]) -> None:
    """Each page of a demonstration, with links, a bar to scroll, and what goes wrong."""
    tab = Tab(chromium, browsed.url, viewport)
    page = tab.page
    page.goto(browsed.link(f"viewer {viewport['width']}"))
    page.goto("/e/1/instructions")
    tab.look("demonstration-instructions")
    page.goto("/e/1")
    tab.look("demonstration-start")
    page.fill("#search", "lighthouse")
    page.keyboard.press("Enter")
    page.wait_for_selector("#page-text")
    tab.look("demonstration-results")
    page.click("button[value='Clicked on link 2']")
    page.wait_for_selector("h2:has-text('Archive')")
    page.locator("button[value='Scrolled down 1']").first.click()
    page.wait_for_selector("text=Lines 20 to 39")
    tab.look("demonstration-scrolled")
    page.click("button[value='Back']")
    page.click("button[value='Clicked on link 0']")
    page.fill("#quote", "no such words")
    page.click("#quoting button")
    page.wait_for_selector("#problems")
    tab.look("demonstration-refused")
    page.fill("#quote", "was built in 1874")
    page.click("#quoting button")
    page.wait_for_selector(".references")
    page.click("summary")
    tab.look("demonstration-quoted")
    page.click("button[value='End: Answer']")
    page.fill("#answer", "In 1874 [2].")
    page.click("#submit")
    page.wait_for_selector("#problems")
    tab.look("demonstration-answer")
    page.fill("#answer", "In 1874 [1].")
    page.click("#submit")
    page.wait_for_selector("h1:has-text('All done')")
    tab.close()


def test_quoting_by_mouse_over_a_link(browsed: Served, chromium: Any) -> None:
    """What is dragged over is quoted, without the buttons in it; the words of a link open it."""
    tab = Tab(chromium, browsed.url, DESKTOP)
    page = tab.page
    page.goto(browsed.link("mouse"))
    page.goto("/e/1")
    page.fill("#search", "lighthouse")
    page.keyboard.press("Enter")
    page.wait_for_selector("#page-text")
    page.click(".link[data-link='0']")
    page.wait_for_selector("h2:has-text('hill.example')")
    assert page.locator("#selected").is_hidden()
    places = page.evaluate(
        """() => {
          const text = document.getElementById("page-text");
          const at = (node, start, end) => {
            const range = document.createRange();
            range.setStart(node, start);
            range.setEnd(node, end);
            return range.getBoundingClientRect();
          };
          const first = text.firstChild;
          const last = document.querySelector("[data-link='1']").firstChild;
          const from = at(first, first.data.indexOf("See "), first.data.indexOf("See ") + 1);
          const to = at(last, last.data.length - 1, last.data.length);
          return [from.left + 1, from.top + from.height / 2, to.right - 1, to.top + to.height / 2];
        }"""
    )
    page.mouse.move(places[0], places[1])
    page.mouse.down()
    page.mouse.move(places[2], places[3], steps=8)
    page.mouse.up()
    page.wait_for_selector("#selected:visible")
    tab.look("demonstration-selected")
    page.click("#selected button")
    page.wait_for_selector(".references")
    extract = page.inner_text(".references blockquote")
    assert extract.startswith("See the town, its keepe")
    page.click("button[value='End: Answer']")
    page.fill("#answer", "A town [1].")
    page.click("#submit")
    page.wait_for_selector("h1:has-text('All done')")
    quote = demonstrated(browsed)[-1][2]
    assert quote.startswith("Quote: See the town, its keep")
    tab.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "none"])
def test_browsing_by_keyboard_alone(browsed: Served, chromium: Any, scripts: bool) -> None:
    """Tab and Enter reach every action, with our script and without."""
    context = chromium.new_context(java_script_enabled=scripts, base_url=browsed.url)
    page = context.new_page()
    page.goto(browsed.link(f"keys {scripts}"))
    page.goto("/e/1")

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.locator(f"{selector}:focus").count():
                return
        raise AssertionError(f"{selector} is not reached")

    def go(selector: str, *words: str, then: str) -> None:
        tab_to(selector)
        for word in words:
            page.keyboard.type(word)
        page.keyboard.press("Enter")
        page.wait_for_selector(then)

    go("#search", "lighthouse", then="h2:has-text('Search results')")
    go("button[value='Clicked on link 2']", then="h2:has-text('Archive')")
    go("button[value='Scrolled down 1']", then="text=Lines 20 to 39")
    go("#find", "line 150", then="text=Lines 150 to 169")
    tab_to("#quote")
    page.keyboard.type("Line 151 of")
    go("#until", "152", then=".references")
    go("button[value='End: Answer']", then="#answer")
    tab_to("#answer")
    page.keyboard.type("There is a line 151 [1].")
    go("#submit", then="h1:has-text('All done')")
    assert demonstrated(browsed)[-1] == [
        "Search lighthouse",
        "Clicked on link 2",
        "Scrolled down 1",
        "Find in page: line 150",
        "Quote: Line 151 of the chronicle. Line 152",
        "End: Answer",
        "There is a line 151 [1].",
    ]
    context.close()


def test_hostile_pages_run_nothing_while_browsing(tmp_path: pathlib.Path, chromium: Any) -> None:
    from gophercite.documents import Document
    from gophercite.retrieval.index import DocumentIndex
    from tests.ratings.browsing import question
    from tests.ratings.test_attacks import EVIL, write

    with DocumentIndex(tmp_path / "index.db", write=True) as index:
        index.add([Document("d", f"T {EVIL}", f"Before {EVIL} after.", "http://x.example/")])
    line = write(tmp_path / "q.jsonl", question("q", f"Q {EVIL}?"))
    study, options = str(tmp_path / "study"), ["--index", str(tmp_path / "index.db")]
    options += ["--form", "demonstration", "--browser", "censored_words=0"]
    assert cli.main(["rate", "new", study, line, *options]) == 0
    with serve(Study(study)) as served:
        tab = Tab(chromium, served.url, DESKTOP)
        page = tab.page
        page.goto(served.link("victim"))
        page.goto("/e/1")
        page.fill("#search", f"before {EVIL[:200]}")
        page.keyboard.press("Enter")
        page.wait_for_selector("#page-text")
        page.click("button[value='Clicked on link 0']")
        page.wait_for_selector("#quote")
        page.fill("#quote", "Before")
        page.fill("#until", "after.")
        page.click("#quoting button")
        page.wait_for_selector(".references")
        assert "<script>alert(1)</script>" in page.inner_text(".references")
        page.click("button[value='End: Answer']")
        page.fill("#answer", f"{EVIL} [9]")
        page.click("#submit")
        page.wait_for_selector("#problems")
        assert page.locator("img, svg, iframe").count() == 0
        tab.close()

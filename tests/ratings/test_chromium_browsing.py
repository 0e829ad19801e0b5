"""The demonstration browser in Chromium: by mouse and by keyboard, on a desktop and a phone.

`tests/ratings/chromium.py` says what it needs.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from gophercite import cli
from gophercite.browser.episodes import read_episodes
from gophercite.documents import Document
from gophercite.ratings.study import Study
from gophercite.retrieval.index import DocumentIndex
from tests.ratings.browsing import question, study_of, write
from tests.ratings.chromium import DESKTOP, PHONE, Tab, launched
from tests.ratings.served import Served, serve
from tests.ratings.test_attacks import EVIL


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


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


def test_browsing_looks_right(browsed: Served, chromium: Any) -> None:
    """Each page of a demonstration, with links, a bar to scroll, and what goes wrong."""
    tab = Tab(chromium, browsed.url, DESKTOP, PHONE)
    page = tab.page
    tab.goto(browsed.link("viewer"))
    tab.goto("/e/1/instructions")
    tab.look("demonstration-instructions")
    tab.goto("/e/1")
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
    page.wait_for_selector("h2:has-text('Search results')")  # the page before had a link 0, too
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
    tab.goto(browsed.link("mouse"))
    tab.goto("/e/1")
    page.fill("#search", "lighthouse")
    page.keyboard.press("Enter")
    page.wait_for_selector("#page-text")
    page.wait_for_load_state()  # before its script has run, the words of a link open nothing
    page.click(".link[data-link='0']")
    page.wait_for_selector("h2:has-text('hill.example')")
    page.wait_for_load_state()
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
        if page.locator("#screen").count():  # Chromium moves the focus there with its first frame
            page.wait_for_selector("#screen:focus")

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
    with DocumentIndex(tmp_path / "index.db", write=True) as index:
        index.add([Document("d", f"T {EVIL}", f"Before {EVIL} after.", "http://x.example/")])
    line = write(tmp_path / "q.jsonl", question("q", f"Q {EVIL}?"))
    study, options = str(tmp_path / "study"), ["--index", str(tmp_path / "index.db")]
    options += ["--form", "demonstration", "--browser", "censored_words=0"]
    assert cli.main(["rate", "new", study, line, *options]) == 0
    with serve(Study(study)) as served:
        tab = Tab(chromium, served.url, DESKTOP)
        page = tab.page
        tab.goto(served.link("victim"))
        tab.goto("/e/1")
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


def test_the_back_button_does_nothing_twice(browsed: Served, chromium: Any) -> None:
    """Whether Chromium asks anew for the page before or keeps it, an action is taken once."""
    tab = Tab(chromium, browsed.url, DESKTOP)
    page = tab.page
    tab.goto(browsed.link("back"))
    tab.goto("/e/1")
    page.fill("#search", "lighthouse")
    page.keyboard.press("Enter")
    page.wait_for_selector("#page-text")
    page.click("button[value='Clicked on link 0']")
    page.wait_for_selector("h2:has-text('hill.example')")
    page.go_back()
    page.go_back()
    page.fill("#search", "another search")
    page.keyboard.press("Enter")
    page.wait_for_selector("#page-text")
    past = page.locator(".past li").all_inner_texts()
    assert past[:2] == ["Search lighthouse", "Click The ◆ lighthouse hill.example"]
    assert past[2:] in ([], ["Search another search"])
    page.dblclick("button[value='Back']")
    page.wait_for_selector(".past li:has-text('Back')")
    tab.goto("/e/1/instructions")
    tab.goto("/e/1")
    again = page.locator(".past li").all_inner_texts()
    assert again == [*past, "Back"], "pressed twice, done once"
    tab.close()

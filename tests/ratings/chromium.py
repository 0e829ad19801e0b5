"""Chromium for the tests: pages that are looked at, on a desktop and a phone.

It needs a Chromium of the system (Debian: `apt install chromium`). Files of tests that import this
are skipped without one. With SCREENSHOTS=FOLDER it leaves pictures of all pages there.
"""

import contextlib
import os
import pathlib
import shutil
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright import sync_api as playwright

from tests.long_forms import IS_LONG

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium is installed here", allow_module_level=True)

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser without a window, with the page that all tabs show: another takes half a second."""
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        browser.new_context().new_page()
        yield browser
        browser.close()


class Tab:
    """Chromium's page, as of a new visitor; whatever goes wrong in it is a fault.

    It has the size of the last viewport, and is looked at in each.
    """

    def __init__(self, chromium: Any, url: str, *viewports: dict[str, int]) -> None:
        self._url, self._viewports = url, viewports
        self.page, *popups = chromium.contexts[0].pages
        for popup in popups:
            popup.close()
        self.page.goto("about:blank")
        chromium.contexts[0].clear_cookies()
        self.page.set_viewport_size(viewports[-1])
        self._page, self.wrong = self.page, list[str]()
        self._heard = {"console": self._console, "pageerror": self._error, "dialog": self._dialog}
        for event, hear in self._heard.items():
            self._page.on(event, hear)

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def _error(self, error: Any) -> None:
        self.wrong.append(str(error))

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def goto(self, path: str) -> None:
        self.page.goto(urllib.parse.urljoin(self._url, path))

    def look(self, name: str, *, alike: bool = False) -> None:
        """No violation, nothing wider than the screen, and a picture where they are wanted.

        Pages that are like another's pages are looked through in the last viewport only.
        """
        self.page.evaluate(AXE_SCRIPT)
        for viewport in self._viewports:
            self.page.set_viewport_size(viewport)
            if viewport is self._viewports[-1] or IS_LONG or not alike:
                found = AxeResults(self.page.evaluate("axe.run({resultTypes: ['violations']})"))
                assert found.violations_count == 0, found.generate_report()
            size = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert size[1] == viewport["width"]
            assert size[0] <= size[1] + 1, f"{name} is wider than the screen"
            if folder := os.environ.get("SCREENSHOTS"):
                kind = "phone" if viewport is PHONE else "desktop"
                path = pathlib.Path(folder, f"{name}-{kind}.png")
                self.page.screenshot(path=str(path), full_page=True)

    def close(self) -> None:
        for event, hear in self._heard.items():
            self._page.remove_listener(event, hear)
        assert self.wrong == []

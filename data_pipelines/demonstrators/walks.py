"""A walk through a world, step by step, with what is on the screen at each step.

The walk acts only through texts that the environment reads as actions. It bases its decisions only
on the screen and on the true targets of links.
"""

import random
from collections.abc import Sequence

from data_pipelines.demonstrators.styles import Noise
from gophercite.browser.environment import page_of, step
from gophercite.browser.episodes import EpisodeStep, taken
from gophercite.browser.pages import Page
from gophercite.browser.shown import ShownPage
from gophercite.browser.state import State
from gophercite.browser.worlds import World

_LONGEST_SEARCH = 60  # maximum number of moves on one page before giving up
_MOST_FINDS = 3  # maximum number of times that a text is looked for in a page


class BrowsingOverError(Exception):
    """Browsing has ended: the actions or the references reached their limit."""


class Walk:
    """An episode in progress.

    Args:
      world: the world to browse.
      start: the initial state.
      draw: random decisions.
      noise: probabilities of mistakes.

    Attributes:
      state: the current state.
      page: the page that is open.
      steps: what was read and written so far.
    """

    def __init__(self, world: World, start: State, draw: random.Random, noise: Noise) -> None:
        self.world, self.state, self.draw, self.noise = world, start, draw, noise
        self.page: Page = page_of(world, start)
        self.steps: list[EpisodeStep] = []

    @property
    def shown(self) -> ShownPage:
        """The current page as the screen shows it."""
        return self.page.shown(self.state.settings)

    @property
    def screen(self) -> tuple[int, int]:
        """The part of the page's text on the screen: `plain[start:end]`."""
        return self._screen_of(self.state)

    def chance(self, rate: float) -> bool:
        """Returns True with this probability."""
        return self.draw.random() < rate

    def do(self, text: str, mistake: str | None = None) -> None:
        """Issues an action, sometimes after an invalid one.

        Raises:
          BrowsingOverError: the action ended browsing; it has still been taken.
        """
        if self.chance(self.noise.invalid):
            self._issue(self._invalid(text), None)
        self._issue(text, mistake)

    def write(self, answer: str, mistake: str | None = None) -> None:
        """Writes the answer."""
        step, self.state = taken(self.world, self.state, answer, mistake)
        self.steps.append(step)

    def sees(self, span: tuple[int, int]) -> bool:
        """Whether all of a part of the page is on the screen."""
        return self._shows(self.state, span)

    def find_soonest(self, span: tuple[int, int], phrases: Sequence[str]) -> bool:
        """Looks for the text that brings a part of the page onto the screen in the fewest finds.

        Args:
          span: the part of the page's text.
          phrases: texts to choose from; if several are equally fast, the first is used.

        Returns:
          Whether the part is on the screen. If no text leads there in three finds, nothing is done.
        """
        if self.sees(span):
            return True
        states = dict.fromkeys(phrases, self.state)
        for finds in range(1, _MOST_FINDS + 1):
            for phrase, before in list(states.items()):
                after = step(self.world, before, f"Find in page: {phrase}").state
                if after.place == before.place or after.phase != "browsing":
                    del states[phrase]
                elif self._shows(after, span):
                    for _ in range(finds):
                        self.do(f"Find in page: {phrase}")
                    return True
                else:
                    states[phrase] = after
        return False

    def bring(self, span: tuple[int, int], words: tuple[str, ...], looks: str) -> bool:
        """Moves until a part of the page is completely on the screen; returns whether it is.

        Args:
          span: the part of the page's text.
          words: texts to look for, the best first.
          looks: `find`, `scroll` or `either`.
        """
        finds = looks == "find" or (looks == "either" and self.chance(0.5))
        above = self.state.settings.lines_above
        for word in words[:2] if finds else ():
            if self.sees(span):
                return True
            self.do(f"Find in page: {word}")
        for _ in range(_LONGEST_SEARCH):
            if self.sees(span):
                return True
            start, end = self.screen
            if start <= span[0] < end:
                # It continues below the screen, so bring its first words to the top line.
                before = self.state.place
                self.do(f"Find in page: {self._beginning(span)}")
                if (
                    self.state.place == before
                    or self.shown.line_of(span[0]) == self.state.view.first + above
                ):
                    return self.sees(span)
            elif span[0] < start:
                far = self.shown.line_of(span[0]) + 3 * self.state.settings.view_lines
                self.do("Top" if far < self.state.view.first else "Scrolled up 1")
            else:
                self.scroll_down(self.draw.choice((1, 1, 1, 2, 3)))
        return False

    def scroll_down(self, screens: int, mistake: str | None = None) -> None:
        """Scrolls down, but not past the page's end, as people do."""
        left = len(self.shown) - 1 - self.state.view.last
        screens = min(screens, -(-left // self.state.settings.view_lines))
        self.do(f"Scrolled down {max(screens, 1)}", mistake)

    def link_to(self, address: str, near: int = 0) -> int | None:
        """Returns the number of the link to an address; of several, the one nearest to a place."""
        links = [
            (abs(link.start - near), number)
            for number, link in enumerate(self.shown.links)
            if link.url == address
        ]
        return min(links)[1] if links else None

    def other_links(self, address: str) -> list[int]:
        """Returns the links on the screen that lead to other addresses."""
        return [
            number
            for number, link in enumerate(self.shown.links)
            if link.url != address and self.sees((link.start, link.end))
        ]

    def _shows(self, state: State, span: tuple[int, int]) -> bool:
        start, end = self._screen_of(state)
        return start <= span[0] and span[1] <= end

    def _screen_of(self, state: State) -> tuple[int, int]:
        """The part of the current page's text that a state shows."""
        shown, view = self.shown, state.view
        end = shown.place_of_line(view.last + 1) if view.last + 1 < len(shown) else None
        return shown.place_of_line(view.first), len(shown.plain) if end is None else end

    def _issue(self, text: str, mistake: str | None) -> None:
        step, self.state = taken(self.world, self.state, text, mistake)
        self.page = page_of(self.world, self.state)
        self.steps.append(step)
        if self.state.phase != "browsing":
            raise BrowsingOverError

    def _invalid(self, text: str) -> str:
        """A text that resembles an action, but is not possible here."""
        links = len(self.shown.links) if self.state.place is not None else 0
        return self.draw.choice(
            (
                f"Clicked on link {links + self.draw.randint(0, 9)}",
                f"Click on link {self.draw.randint(0, 9)}",
                "Scroll down",
                "Quote:",
                text[0].lower() + text[1:],
                "Scrolled down 5",
            )
        )

    def _beginning(self, span: tuple[int, int]) -> str:
        words = self.shown.plain[slice(*span)].split()
        return " ".join(words[:4])

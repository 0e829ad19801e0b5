"""One demonstration: walks a route in a style, and writes the answer from the quotes."""

import contextlib
import dataclasses
import random
import re

from data_pipelines.demonstrators.routes import Leg, keywords, name_of, name_query, phrases
from data_pipelines.demonstrators.styles import Style
from data_pipelines.demonstrators.truth import judge
from data_pipelines.demonstrators.walks import BrowsingOverError, Walk
from gophercite.browser.episodes import Episode
from gophercite.browser.state import State
from gophercite.browser.worlds import World
from gophercite.records import Question
from gophercite.text.sentences import sentence_spans

_MARK_AT_END = re.compile(r"[.!?]?[\"'”’)]*$")
_ENDS = (2, 3, 5)  # words at either end in `Quote: <start>━<end>`: the fewest that are unambiguous
_LONG = 40  # characters; longer quotes may be written as their two ends
_MOST_CLICKS = 3  # maximum number of tries to reach a page


def demonstrate(
    world: World, question: Question, route: tuple[Leg, ...], style: Style, start: State, seed: int
) -> Episode:
    """Returns the episode in which a demonstrator answers a question, with its score.

    Args:
      world: the world to browse.
      question: the question, with its answers and evidence.
      route: the route to its proof (`routes.route_of`).
      style: how the demonstrator browses, and its errors.
      start: the initial state of the episode.
      seed: seed of the random decisions, together with the question and the style.
    """
    draw = random.Random(f"{seed}/{question.id}/{style.name}")
    walk = Walk(world, start, draw, style.noise)
    demonstration = _Demonstration(walk, question, route, style)
    with contextlib.suppress(BrowsingOverError):
        demonstration.browse()
    if walk.state.phase == "answering":
        walk.write(*demonstration.answer())
    verdict = judge(question, walk.state)
    return Episode(
        id=f"{question.id}-{style.name}",
        question_id=question.id,
        world=world.name,
        by=style.name,
        start=start,
        steps=tuple(walk.steps),
        end=walk.state,
        right=verdict.right,
        supported=verdict.supported,
    )


@dataclasses.dataclass(frozen=True)
class _Noted:
    """A quoted sentence that the answer can use, and whether it belongs to the proof."""

    sentence: str
    number: int
    is_proof: bool


class _Demonstration:
    def __init__(
        self, walk: Walk, question: Question, route: tuple[Leg, ...], style: Style
    ) -> None:
        self._walk, self._question, self._route, self._style = walk, question, route, style
        self._noise = style.noise
        self._proof = " ".join(route[-1].sentence.split())
        self._noted: list[_Noted] = []

    def browse(self) -> None:
        walk = self._walk
        for number, leg in enumerate(self._route):
            if walk.chance(self._noise.gives_up) or not self._reach(number):
                self._give_up()
                return
            if leg.span is not None and not self._read(leg, leg.span):
                self._give_up()
                return
        walk.do("End: Answer", None if self._noted else "nothing was quoted")

    def answer(self) -> tuple[str, str | None]:
        """The answer, and what is deliberately wrong about it."""
        noted, mistakes = self._noted, list[str]()
        proofs = [each for each in noted if each.is_proof]
        knows = bool(proofs) and proofs[-1].sentence == self._proof and self._question.answers
        value = self._question.answers[0] if knows else ""
        said: list[tuple[str, tuple[int, ...]]]
        said = [(each.sentence, (each.number,)) for each in noted]
        if self._style.answers == "briefly" and value:
            said = [(f"{value[0].upper()}{value[1:]}.", tuple(each.number for each in noted))]
        wrong = self._question.incorrect_answers
        if value and wrong and self._walk.chance(self._noise.wrong_answer):
            wrong_value = self._walk.draw.choice(wrong)
            said = [(sentence.replace(value, wrong_value), numbers) for sentence, numbers in said]
            mistakes.append("wrong answer")
        if self._walk.chance(self._noise.uncited):
            said = [(sentence, ()) for sentence, _ in said]
            mistakes.append("cites nothing")
        return " ".join(_cited(*each) for each in said), ", ".join(mistakes) or None

    def _give_up(self) -> None:
        if self._noted or self._walk.chance(0.5):
            self._walk.do("End: Answer", "gave up")
        else:
            self._walk.do("End: Nonsense", "gave up")

    # --- To a page ---

    def _reach(self, number: int) -> bool:
        """Goes to a page of the route; returns whether that succeeded."""
        walk, leg = self._walk, self._route[number]
        before = self._route[number - 1] if number else None
        near = before.span[1] if before is not None and before.span is not None else 0
        for _ in range(_MOST_CLICKS):
            if number == 0:
                self._search()
            elif not (self._style.goes == "search" and self._search_next(leg)) and (
                walk.link_to(leg.address, near) is None
            ):
                return False
            if not self._follow(leg, near):
                return False
            if walk.state.place is not None and walk.state.place.target == leg.address:
                return walk.page.problem is None
        return False

    def _search(self) -> None:
        question, titles = self._question.question, [leg.title for leg in self._route]
        asks = self._style.asks
        by_name = asks == "name" or (asks == "either" and self._walk.chance(0.5))
        queries = [name_query(question, titles), keywords(question)]
        for query in dict.fromkeys(queries if by_name else reversed(queries)):
            self._walk.do(f"Search {query}")
            if self._walk.link_to(self._route[0].address) is not None:
                return

    def _search_next(self, leg: Leg) -> bool:
        """Searches for the next page by its name; goes back if it is not found or is ambiguous."""
        walk = self._walk
        if name_of(leg.title) != leg.title or not self._is_named(leg):
            return False
        walk.do(f"Search {leg.title}")
        if walk.link_to(leg.address) is not None:
            return True
        walk.do("Back")
        return False

    def _is_named(self, leg: Leg) -> bool:
        """Whether the quotes so far contain the name of a page."""
        return any(leg.title in each.sentence for each in self._noted)

    def _follow(self, leg: Leg, near: int) -> bool:
        """Clicks on the link to a page, and sometimes on another link first."""
        walk = self._walk
        wanted = walk.link_to(leg.address, near)
        if wanted is None:
            return False
        link = walk.shown.links[wanted]
        words = (walk.shown.plain[link.start : link.end],)
        looks = "scroll" if walk.page.is_results else self._style.looks
        if not walk.bring((link.start, link.end), words, looks):
            return False
        others = walk.other_links(leg.address)
        namesakes = [each for each in others if self._title_of(each) == self._title_of(wanted)]
        if namesakes and walk.chance(self._noise.namesake):
            self._turn_wrong(walk.draw.choice(namesakes), "a namesake")
        elif others and walk.chance(self._noise.wrong_turn):
            self._turn_wrong(walk.draw.choice(others), "wrong turn")
        walk.do(f"Clicked on link {wanted}")
        return True

    def _turn_wrong(self, link: int, mistake: str) -> None:
        walk = self._walk
        walk.do(f"Clicked on link {link}", mistake)
        if len(walk.shown) > walk.state.settings.view_lines and walk.chance(0.3):
            walk.do("Scrolled down 1", mistake)
        walk.do("Back")

    def _title_of(self, number: int) -> str:
        shown = self._walk.shown
        link = shown.links[number]
        return name_of(shown.plain[link.start : link.end])

    # --- On a page ---

    def _read(self, leg: Leg, span: tuple[int, int]) -> bool:
        """Looks for the sentence of the proof and quotes it, or makes a mistake.

        Returns:
          Whether to go on; False if it gives up because it did not find the sentence.
        """
        walk, noise = self._walk, self._noise
        if self._style.looks != "soonest":
            walk.bring(span, leg.words, self._style.looks)
        elif not walk.find_soonest(span, phrases(self._question.question)):
            return False
        if walk.chance(noise.overshoots):
            self._overshoot(span)
        if walk.chance(noise.skipped_quote):
            return True
        others = self._other_sentences(span)
        if others and walk.chance(noise.wrong_quote):
            wrong = walk.draw.choice(others)
            text = walk.page.document.text[slice(*wrong)]
            self._quote(wrong, text, proof=False, mistake="wrong quote")
            return True
        wide = self._style.quotes == "around"
        mistake = None
        if not wide and others and walk.chance(noise.wide_quote):
            wide, mistake = True, "quotes too much"
        whole = (
            (
                min(span[0], *(start for start, _ in others)),
                max(span[1], *(end for _, end in others)),
            )
            if wide and others
            else span
        )
        self._quote(whole, leg.sentence, proof=True, mistake=mistake)
        return True

    def _overshoot(self, span: tuple[int, int]) -> None:
        """Scrolls past a sentence, and back."""
        walk = self._walk
        lines, first = walk.state.settings.view_lines, walk.state.view.first
        if walk.state.view.last + 1 >= len(walk.shown):
            return
        walk.scroll_down(walk.draw.randint(1, 3), "scrolled past")
        past = -(-(walk.state.view.first - first) // lines)  # screens, including a partial last one
        walk.do(f"Scrolled up {past}" if first else "Top")
        walk.bring(span, (), "scroll")

    def _other_sentences(self, span: tuple[int, int]) -> list[tuple[int, int]]:
        """The other sentences nearby that are on the screen, up to two on either side."""
        walk = self._walk
        text = walk.page.document.text
        first = text.rfind("\n", 0, span[0]) + 1
        last = text.find("\n", span[1])
        # On a long page the surrounding lines, otherwise only those of the paragraph.
        for _ in range(2):
            if last - first < 2 * (span[1] - span[0]):
                first = text.rfind("\n", 0, max(0, first - 1)) + 1
                last = len(text) if last < 0 else text.find("\n", last + 1)
        last = len(text) if last < 0 else last
        found = [
            (first + start, first + end)
            for start, end in sentence_spans(text[first:last])
            if text[first + start : first + end].rstrip().endswith(".")
        ]
        around = [each for each in found if each[1] <= span[0]][-2:]
        around += [each for each in found if each[0] >= span[1]][:2]
        return [each for each in around if walk.sees(each)]

    def _quote(
        self, span: tuple[int, int], sentence: str, *, proof: bool, mistake: str | None
    ) -> None:
        walk = self._walk
        if span[1] - span[0] > walk.state.settings.reference_characters:
            return
        number = len(walk.state.references) + 1
        # Before the command, because a quote that ends browsing raises an error, but is taken.
        self._noted.append(_Noted(" ".join(sentence.split()), number, proof))
        walk.do(f"Quote: {self._written(span)}", mistake)

    def _written(self, span: tuple[int, int]) -> str:
        """A part of the page as a command writes it: in full, or as its two ends."""
        walk = self._walk
        words = walk.shown.plain[slice(*span)].split()
        whole = " ".join(words)
        if len(whole) <= _LONG or self._style.quotes == "sentence":
            return whole
        matcher, (seen_from, _) = walk.shown.matcher, walk.screen
        for number in _ENDS:
            start, end = " ".join(words[:number]), " ".join(words[-number:])
            begins = matcher.quote(start, seen_from)
            ends = None if begins is None else matcher.quote(end, begins[1])
            if begins is not None and ends is not None and (begins[0], ends[1]) == span:
                return f"{start}━{end}"
        return whole


def _cited(sentence: str, numbers: tuple[int, ...]) -> str:
    """A sentence with its citations before its full stop."""
    marks = "".join(f"[{number}]" for number in numbers)
    end = _MARK_AT_END.search(sentence)
    place = end.start() if end else len(sentence)
    return f"{sentence[:place]} {marks}{sentence[place:]}" if marks else sentence

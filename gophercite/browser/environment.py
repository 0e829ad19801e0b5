"""Steps of an episode: `reset`, then `step` with the model's texts, until it is done.

A step is a pure function of world, state and text. The rules are those of WebGPT's section 2,
table 1 and appendix A; what the paper leaves open is specified in `docs/browser.md`.
"""

import dataclasses
import random
from collections.abc import Iterable
from typing import NamedTuple

from gophercite.browser import commands
from gophercite.browser.censoring import shares_a_run
from gophercite.browser.commands import (
    Back,
    Click,
    Command,
    End,
    Find,
    InvalidCommandError,
    Quote,
    Scroll,
    Search,
    Top,
)
from gophercite.browser.hosts import host_of, is_blocked, without_fragment
from gophercite.browser.marks import one_line
from gophercite.browser.pages import NO_PAGE, Page, error_page, failed_search, results_page
from gophercite.browser.settings import LONGEST_ACTION, Settings
from gophercite.browser.state import Action, EndReason, Place, Reference, State, View
from gophercite.browser.worlds import World
from gophercite.documents import normalise_text
from gophercite.retrieval.engine import Hit, SearchError

LONGEST_ANSWER = 100_000  # characters; longer answers are cut
ABSENT_TEXT = "the page does not hold this text"  # the note or error of an action that named one


class Step(NamedTuple):
    """The result of a step.

    Attributes:
      state: the next state.
      done: whether the episode is over.
      invalid: why the text was not a valid action; None if it was.
    """

    state: State
    done: bool
    invalid: str | None


def reset(
    question: str,
    settings: Settings | None = None,
    *,
    reference_answer: str | None = None,
    seed: int = 0,
) -> State:
    """Returns the initial state of an episode: a question, and no page yet.

    Args:
      question: the question.
      settings: the rules.
      reference_answer: if given, pages that repeat ten words of it are censored.
      seed: decides the number of actions if the settings give a range.
    """
    settings = settings or Settings()
    question = normalise_text(question)
    # Depends on the question too, since a batch of episodes shares one seed.
    draw = random.Random(f"{seed}:{question}")
    limit = draw.randint(*settings.action_range)
    answer = None if reference_answer is None else normalise_text(reference_answer)
    return State(question, settings, limit, answer)


def step(world: World, state: State, text: str) -> Step:
    """Executes a text: a command while browsing, then the answer.

    A text that is not a command, or not possible here, is an invalid action: it counts as an action
    and changes nothing else.

    Raises:
      ValueError: when the episode is over.
    """
    if state.done:
        raise ValueError("the episode is over: there is no further step")
    # Only as much of a text is examined as matters, however long it is.
    text = normalise_text(text[: 4 * LONGEST_ANSWER])
    if state.phase == "answering":
        state = dataclasses.replace(state, phase="done", answer=text[:LONGEST_ANSWER])
        return Step(state, True, None)
    # The log keeps just enough of an over-long text that it is still too long when replayed.
    logged = text[: LONGEST_ACTION + 1]
    invalid: str | None = None
    try:
        after = _Turn(world, state, logged).do(commands.parse(logged))
    except InvalidCommandError as error:
        invalid = str(error)
        action = Action(logged, invalid)
        after = dataclasses.replace(state, actions=(*state.actions, action))
    if after.end is None and after.actions_left <= 0:
        after = _ended(after, "actions")
    return Step(after, after.done, invalid)


def replay(world: World, state: State, texts: Iterable[str]) -> State:
    """Returns the state after these texts, issued one after the other.

    Raises:
      ValueError: when the episode ends before the last of them.
    """
    for text in texts:
        state = step(world, state, text).state
    return state


def page_of(world: World, state: State) -> Page:
    """Returns the browser's current page, as far as the episode's rules allow seeing it."""
    return NO_PAGE if state.place is None else _page_at(world, state, state.place)


def _ended(state: State, reason: EndReason) -> State:
    answers = bool(state.references) and reason in ("answer", "actions", "references")
    return dataclasses.replace(state, phase="answering" if answers else "done", end=reason)


class _Turn:
    """One action: computes the state after it from the state before."""

    def __init__(self, world: World, state: State, text: str) -> None:
        self._world, self._state, self._text = world, state, text

    def do(self, command: Command) -> State:
        match command:
            case Search(query):
                return self._visit(Place("search", query), past=f"Search {one_line(query)}")
            case Click(link):
                return self._click(link)
            case Find(text):
                return self._find(text)
            case Quote(start, end):
                return self._quote(start, end)
            case Scroll(times):
                return self._scroll(times)
            case Top():
                return self._show(self._open_place(), first=0, past="Top")
            case Back():
                return self._back()
            case End(reason):
                return self._end(reason)

    def _visit(self, place: Place, past: str, line_at: str = "") -> State:
        """Goes to another place; `line_at` is an anchor on it."""
        state = self._state
        if state.place is not None:
            state = dataclasses.replace(state, history=(*state.history, state.place))
        page = _page_at(self._world, state, place)
        first = 0
        if line_at in page.anchors:
            shown = page.shown(state.settings)
            first = shown.line_of(min(page.anchors[line_at], len(shown.plain)))
        return self._show(place, first=first, past=past, state=state)

    def _click(self, number: int) -> State:
        state, page = self._state, page_of(self._world, self._state)
        links = page.shown(state.settings).links
        if number >= len(links):
            has = f"its links are 0 to {len(links) - 1}" if links else "it has none"
            raise InvalidCommandError(f"the page has no link {number}: {has}")
        link = links[number]
        address, anchor = without_fragment(link.url)
        opened = self._world.open(address)
        place = Place("page", address, problem=_refusal(opened, state))
        failed = opened.problem is not None or place.problem is not None
        called = page.document.text[link.start : link.end] if failed else opened.document.title
        host = host_of(address) if failed else opened.host
        return self._visit(place, f"Click {one_line(called)} {one_line(host)}".rstrip(), anchor)

    def _find(self, text: str) -> State:
        place, page = self._open_place(), page_of(self._world, self._state)
        shown = page.shown(self._state.settings)
        found = shown.matcher.find(text, place.cursor)
        note = None
        if found is None:
            found = shown.matcher.find(text, 0)
            note = "found again from the top of the page"
        past = f"Find in page: {one_line(text)}"
        if found is None:
            if self._state.settings.absent_text_is_invalid:
                raise InvalidCommandError(ABSENT_TEXT)
            return self._after(self._state, past, ABSENT_TEXT)
        start, end = found
        first = shown.line_of(start) - self._state.settings.lines_above
        return self._show(place, first=first, past=past, cursor=end, note=note)

    def _quote(self, start: str, end: str | None) -> State:
        place, page = self._open_place(), page_of(self._world, self._state)
        if page.source_problem is not None:
            raise InvalidCommandError(page.source_problem)
        settings, document = self._state.settings, page.document
        seen_from = page.shown(settings).place_of_line(place.first)
        span = None
        for begin in (seen_from, 0):
            span = span or _quoted(page, settings, start, end, begin)
        if span is None:
            raise InvalidCommandError(ABSENT_TEXT)
        length = span[1] - span[0]
        if length > settings.reference_characters:
            raise InvalidCommandError(
                f"the extract has {length} characters; at most {settings.reference_characters} "
                "can be quoted"
            )
        reference = Reference(
            title=document.title,
            domain=page.host,
            url=document.url or "",
            extract=document.text[slice(*span)],
            document=document.id,
            start=span[0],
            end=span[1],
            sha256=document.sha256,
            retrieved_at=document.retrieved_at,
            pages=document.pages_of(*span),
        )
        references = (*self._state.references, reference)
        state = dataclasses.replace(self._state, references=references)
        state = self._after(state, "Quote")
        total = sum(len(reference.extract) for reference in references)
        return _ended(state, "references") if total >= settings.reference_characters else state

    def _scroll(self, times: int) -> State:
        place = self._open_place()
        first = place.first + times * self._state.settings.view_lines
        direction = "down" if times > 0 else "up"
        return self._show(place, first=first, past=f"Scrolled {direction} {abs(times)}")

    def _back(self) -> State:
        if not self._state.history:
            raise InvalidCommandError("there is no page before this one")
        *history, place = self._state.history
        state = dataclasses.replace(self._state, history=tuple(history))
        return self._show(place, first=place.first, cursor=place.cursor, past="Back", state=state)

    def _end(self, reason: str) -> State:
        reasons: dict[str, EndReason] = {
            "answer": "answer",
            "nonsense": "nonsense",
            "controversial": "controversial",
        }
        note = None
        if reason == "answer" and not self._state.references:
            note = "there is no reference, and so no answer"
        return _ended(self._after(self._state, None, note), reasons[reason])

    def _open_place(self) -> Place:
        if self._state.place is None:
            raise InvalidCommandError("no page is open: search for something first")
        return self._state.place

    def _show(
        self,
        place: Place,
        *,
        first: int,
        past: str,
        cursor: int | None = None,
        note: str | None = None,
        state: State | None = None,
    ) -> State:
        """Shows a place from a line on, or from an earlier one if the page ends too soon."""
        state = state or self._state
        page = _page_at(self._world, state, place)
        shown = page.shown(state.settings)
        first = max(0, min(first, len(shown) - state.settings.view_lines))
        last = min(len(shown), first + state.settings.view_lines) - 1
        if cursor is None:
            cursor = shown.place_of_line(first)
        place = dataclasses.replace(place, first=first, cursor=cursor)
        view = View(page.title, first, last, shown.lines(first, last))
        state = dataclasses.replace(state, place=place, view=view)
        return self._after(state, past, note)

    def _after(self, state: State, past: str | None, note: str | None = None) -> State:
        action = Action(self._text, past=past, note=note)
        return dataclasses.replace(state, actions=(*state.actions, action))


def _quoted(
    page: Page, settings: Settings, start: str, end: str | None, begin: int
) -> tuple[int, int] | None:
    """The span of a quote at or after `begin`; with an `end`, up to its first occurrence after it.

    The start is its first occurrence with an end after it.
    """
    matcher = page.shown(settings).matcher
    first = matcher.quote(start, begin)
    if first is None or end is None:
        return first
    last = matcher.quote(end, first[1])
    return None if last is None else (first[0], last[1])


def _page_at(world: World, state: State, place: Place) -> Page:
    if place.kind == "search":
        return _results(world, state, place.target)
    if place.problem is not None:
        return error_page(place.target, place.problem)
    return world.open(place.target)


def _results(world: World, state: State, query: str) -> Page:
    settings = state.settings
    try:
        hits = world.search(query, settings.results)
    except SearchError as error:
        return failed_search(query, str(error))
    return results_page(query, [hit for hit in hits if _may_be_shown(hit, state)])


def _may_be_shown(hit: Hit, state: State) -> bool:
    if is_blocked(hit.url, state.settings.blocked):
        return False
    return not _gives_away(f"{hit.title}\n{hit.snippet}", state)


def _refusal(page: Page, state: State) -> str | None:
    """Why the rules hide a page that the world has; None if they allow it."""
    if page.problem is not None:
        return None  # the page itself says what is wrong
    if is_blocked(page.document.url or "", state.settings.blocked):
        return "its site is blocked"
    if _gives_away(f"{page.document.title}\n{page.document.text}", state):
        return "it repeats the question, or the answer, word for word"
    return None


def _gives_away(text: str, state: State) -> bool:
    known = [state.question]
    if state.reference_answer is not None:
        known.append(state.reference_answer)
    return shares_a_run(text, known, state.settings.censored_words)

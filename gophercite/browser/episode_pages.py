"""An episode as a web page, step by step: what was read, what was written, what was quoted.

Everything in an episode is untrusted: questions, pages, the model's texts, addresses, names. All of
it is escaped, and the page runs and loads nothing (`gophercite.html`).
"""

import bisect
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gophercite.browser.browsed_answers import NUMBERS, cited
from gophercite.browser.commands import InvalidCommandError, Quote, parse
from gophercite.browser.episodes import Episode, EpisodeStep
from gophercite.browser.marks import LINK_CLOSE, LINK_OPEN, LINK_PART, escape
from gophercite.browser.observation import titled
from gophercite.browser.state import Reference
from gophercite.browser.worlds import World
from gophercite.documents import Document
from gophercite.html.escaping import escape_html, whole_page
from gophercite.html.marked_pages import (
    CONTEXT,
    PAGE_STYLE,
    Mark,
    MarkedPages,
    about,
    address,
    marked_text,
)

Finder = Callable[[Reference], Document | None]
"""Returns the page that a reference is from, or None if it is not available."""

_TEXT, _BEHIND_TEXT = "♦Text\n", "\n♦Actions left: "
_LINK_MARKS = re.compile(
    f"{LINK_OPEN}[0-9]+{LINK_PART}|(?:{LINK_PART}[^{LINK_PART}{LINK_CLOSE}\n]*)?{LINK_CLOSE}"
)
_LEAST_PART = 12  # minimum characters of an extract by which its beginning is recognised
_LONGEST_PART = 20_000  # maximum characters searched: a hostile record could take for ever
_ENDS = {
    "answer": "it ended browsing to answer",
    "nonsense": "it held the question to be nonsense",
    "controversial": "it held the question to be controversial",
    "actions": "its actions were used up",
    "references": "its references reached their total length",
}


def episode_page(
    episode: Episode, find: Finder | None = None, *, context: int = CONTEXT
) -> MarkedPages:
    """Shows an episode: the answer with its references, then each step.

    Args:
      episode: a recorded episode.
      find: looks up the pages of references, to show each extract in its page.
      context: characters of a page that are shown before and after an extract.

    Raises:
      ValueError: `context` is negative.
    """
    question = episode.start.question
    heading = f'<h1 dir="auto">{escape_html(question)}</h1>\n'
    shown = episode_html(episode, find, context=context)
    return MarkedPages(question, f"<main>\n{heading}{shown}</main>\n")


def episode_html(episode: Episode, find: Finder | None = None, *, context: int = CONTEXT) -> str:
    """Returns the part of `episode_page` below the question; see there."""
    end, anchor = episode.end, _anchor(episode)
    if end.answer is not None:
        answer = f'<p class="claim written" dir="auto">{_cited(end.answer, end.references, anchor)}'
        parts = [f"{answer}</p>\n", *_uncited(end.answer, len(end.references))]
    else:
        parts = ['<p class="claim">No answer</p>\n']
    parts.append(_origin(episode))
    for number, reference in enumerate(end.references, 1):
        parts.append(_reference(number, reference, anchor, find, context))
    parts.append("<h2>Step by step</h2>\n")
    taken = 0
    for number, step in enumerate(episode.steps, 1):
        is_answer = end.answer is not None and number == len(episode.steps)
        quoted = not is_answer and _quotes(step) and taken < len(end.references)
        taken += quoted
        seen = end.references[:taken]
        parts.append(_step(number, step, seen, anchor, is_answer=is_answer, is_quote=quoted))
    return "".join(parts)


def pages_in(world: World) -> Finder:
    """Returns a finder for the pages of references in the world that was browsed."""

    def find(reference: Reference) -> Document | None:
        page = world.open(reference.url)
        same = page.problem is None and page.document.sha256 == reference.sha256
        return page.document if same else None

    return find


def write_episode_pages(
    folder: str | os.PathLike[str],
    title: str,
    episodes: Iterable[Episode],
    find: Finder | None = None,
) -> int:
    """Writes a page per episode, and `index.html`, which lists them; returns their number.

    Args:
      folder: created if missing; pages of an earlier call are overwritten.
      title: title of the list.
      episodes: consumed one at a time.
      find: as for `episode_page`.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    items = []
    for number, episode in enumerate(episodes, 1):
        name = f"episode-{number:05d}.html"
        (folder / name).write_text(episode_page(episode, find).page(), "utf-8")
        question, answer = episode.start.question, episode.end.answer
        items.append(
            f'<li><a href="{name}" dir="auto">{escape_html(question[:300] or "(no question)")}</a>'
            f'\n<p dir="auto">{escape_html((answer or "No answer")[:300])}</p>\n'
            f"{_origin(episode)}</li>\n"
        )
    body = (
        f'<main class="gophercite">\n<h1>{escape_html(title)}</h1>\n'
        f"<ol>\n{''.join(items)}</ol>\n</main>\n"
    )
    (folder / "index.html").write_text(whole_page(title, PAGE_STYLE, body), "utf-8")
    return len(items)


# --- Parts ---


def _origin(episode: Episode) -> str:
    """Who browsed where, how it ended, and its score."""
    answered = episode.end.answer is not None
    actions = len(episode.steps) - answered
    invalid = sum(step.invalid is not None for step in episode.steps)
    parts = [
        f"by {escape_html(episode.by)}",
        f"world {escape_html(episode.world)}",
        f"{actions} of {episode.start.limit} actions, {invalid} invalid",
        _ENDS.get(str(episode.end.end), "it is not over"),
    ]
    if episode.reward is not None:
        parts.append(f"reward: {episode.reward:.3g}")
    for name, holds in (("right", episode.right), ("supported", episode.supported)):
        if holds is not None:
            parts.append(_mark(name if holds else f"not {name}", holds))
    return about(*parts, f"episode {escape_html(episode.id)}")


def _cited(answer: str, references: Sequence[Reference], anchor: str) -> str:
    """An answer as HTML, its citation numbers linked to the references."""
    parts, place = [], 0
    for match in NUMBERS.finditer(answer):
        parts.append(escape_html(answer[place : match.start()]))
        pieces = re.split("([0-9]+)", match[0])
        parts += [_number(piece, len(references), anchor) for piece in pieces]
        place = match.end()
    return "".join([*parts, escape_html(answer[place:])])


def _number(text: str, references: int, anchor: str) -> str:
    if not text.isdigit() or not 1 <= int(text) <= references:
        return escape_html(text)
    return f'<a href="#{anchor}-{int(text)}">{text}</a>'


def _uncited(answer: str, references: int) -> Iterator[str]:
    """A warning about citation numbers without a reference."""
    missing = sorted(number for number in cited(answer) if not 1 <= number <= references)
    if missing:
        numbers = ", ".join(map(str, missing))
        yield about(f'<span class="no">there is no reference {numbers}</span>')


def _reference(
    number: int, reference: Reference, anchor: str, find: Finder | None, context: int
) -> str:
    """A reference: its title, the extract (in its page if that is available), and its place."""
    domain = f" ({reference.domain})" if reference.domain else ""
    title = escape_html(f"[{number}] {reference.title}{domain}")
    page = None if find is None else find(reference)
    if page is not None and page.text[reference.start : reference.end] == reference.extract:
        mark = Mark(reference.start, reference.end, str(number))
        shown = marked_text(page.text, [mark], context)
        text = f'<div class="text" dir="auto">{shown}</div>\n'
        said = '<span class="yes">word for word in its page</span>'
    else:
        text = f'<blockquote dir="auto">{escape_html(reference.extract)}</blockquote>\n'
        said = "not checked: its page is not at hand" if find is not None else ""
    parts = [said] if said else []
    parts.append(address(reference.url or reference.document))
    if reference.retrieved_at:
        parts.append(f"retrieved {escape_html(reference.retrieved_at)}")
    if reference.pages:
        parts.append(f"PDF page {', '.join(map(str, reference.pages))}")
    parts.append(f"characters {reference.start}–{reference.end}")
    parts.append(f"SHA-256 of the text {escape_html(reference.sha256)}")
    return (
        f'<section class="source" id="{anchor}-{number}">\n'
        f'<p class="title" dir="auto">{title}</p>\n{text}{about(*parts)}</section>\n'
    )


def _step(
    number: int,
    step: EpisodeStep,
    references: Sequence[Reference],
    anchor: str,
    *,
    is_answer: bool,
    is_quote: bool,
) -> str:
    """A step, which can be unfolded; steps that quote, and the answer, start unfolded."""
    said = []
    if is_quote:
        taken = len(references)
        said.append(_mark(f'taken as <a href="#{anchor}-{taken}">reference [{taken}]</a>', True))
    if step.invalid is not None:
        said.append(_mark(f"invalid: {escape_html(step.invalid)}", False))
    if step.mistake is not None:
        said.append(_mark(f"a mistake on purpose: {escape_html(step.mistake)}", False))
    written = "the answer" if is_answer else f"<code>{escape_html(step.action)}</code>"
    is_open = " open" if is_quote or is_answer else ""
    answer = _cited(step.action, references, anchor) if is_answer else ""
    body = f'<p class="written" dir="auto">{answer}</p>\n' if is_answer else ""
    return (
        f'<details class="step"{is_open}><summary>{number}. {written}</summary>\n'
        f"{about(*said) if said else ''}"
        f'<div class="text read" dir="auto">{_observation(step.observation, references)}</div>\n'
        f"{body}</details>\n"
    )


def _observation(text: str, references: Sequence[Reference]) -> str:
    """What was read, with the extracts quoted so far marked in the page's text."""
    marks = list(quoted_places(text, references))
    return marked_text(text, marks, context=len(text)) if text else ""


class _Plain(NamedTuple):
    """A page's text in an observation, without link marks.

    Attributes:
      text: the page's own characters.
      starts: for each run without link marks, its start in `text`.
      places: for each such run, its start in the observation.
    """

    text: str
    starts: list[int]
    places: list[int]

    def place(self, character: int) -> int:
        run = bisect.bisect_right(self.starts, character) - 1
        return self.places[run] + character - self.starts[run]


def quoted_places(observation: str, references: Sequence[Reference]) -> Iterator[Mark]:
    """Yields where extracts stand in the page's text that an observation shows.

    The page is recognised by its title. If an extract continues below the screen, only the visible
    part is marked.

    Args:
      observation: the text that was read.
      references: the episode's references, in the order of their numbers.
    """
    plain = _plain(observation)
    for number, reference in enumerate(references, 1):
        if plain is None or not _is_of_page(observation, reference):
            continue
        extract = escape(reference.extract)
        start = plain.text.find(extract)
        length = len(extract)
        if start < 0:
            start, length = _begun(plain.text, extract)
        if length:
            yield Mark(plain.place(start), plain.place(start + length - 1) + 1, str(number))


def _plain(observation: str) -> _Plain | None:
    start = observation.find(_TEXT)
    end = observation.rfind(_BEHIND_TEXT)
    if start < 0 or end < (place := start + len(_TEXT)):
        return None
    pieces: list[str] = []
    starts, places, length = [], [], 0
    for match in [*_LINK_MARKS.finditer(observation, place, end), None]:
        stop = end if match is None else match.start()
        if stop > place:
            pieces.append(observation[place:stop])
            starts.append(length)
            places.append(place)
            length += stop - place
        place = end if match is None else match.end()
    return _Plain("".join(pieces), starts, places)


def _begun(text: str, extract: str) -> tuple[int, int]:
    """Where `text` ends with the beginning of an extract, and that part's length; 0 if none."""
    first = extract[:_LEAST_PART]
    start = text.find(first, max(0, len(text) - min(len(extract), _LONGEST_PART)))
    while start >= 0:
        if extract.startswith(text[start:]):
            return start, len(text) - start
        start = text.find(first, start + 1)
    return 0, 0


def _is_of_page(observation: str, reference: Reference) -> bool:
    return f"\n♦Title\n{titled(reference)}\n♦Scrollbar: " in observation


def _quotes(step: EpisodeStep) -> bool:
    """Whether a step added a reference: each valid quote adds one."""
    if step.invalid is not None:
        return False
    try:
        return isinstance(parse(step.action), Quote)
    except InvalidCommandError:
        return False


def _anchor(episode: Episode) -> str:
    """The prefix of the page's own anchors, so that one page can show several episodes."""
    return "r" + hashlib.sha256(episode.id.encode(errors="replace")).hexdigest()[:8]


def _mark(html: str, holds: bool) -> str:
    sign, kind = ("✓", "yes") if holds else ("✗", "no")
    return f'<span class="{kind}">{sign} {html}</span>'

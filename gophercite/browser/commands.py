"""The commands of WebGPT's table 1, in their exact spelling."""

import dataclasses
import re

from gophercite.browser.marks import ELLIPSIS
from gophercite.browser.settings import LONGEST_ACTION


@dataclasses.dataclass(frozen=True)
class Search:
    """`Search <query>`: sends the query to the search engine and shows a page of results."""

    query: str


@dataclasses.dataclass(frozen=True)
class Click:
    """`Clicked on link <link ID>`: follows a link of the page."""

    link: int


@dataclasses.dataclass(frozen=True)
class Find:
    """`Find in page: <text>`: scrolls to the next occurrence of the text."""

    text: str


@dataclasses.dataclass(frozen=True)
class Quote:
    """`Quote: <text>`: adds the text as a reference, if the page contains it.

    Attributes:
      start: the text, or its beginning.
      end: its ending, in the short form `Quote: <start>━<end>`; else None.
    """

    start: str
    end: str | None = None


@dataclasses.dataclass(frozen=True)
class Scroll:
    """`Scrolled down <1, 2, 3>`, `Scrolled up <1, 2, 3>`: scrolls a number of times.

    Attributes:
      times: positive for down, negative for up.
    """

    times: int


@dataclasses.dataclass(frozen=True)
class Top:
    """`Top`: scrolls to the top of the page."""


@dataclasses.dataclass(frozen=True)
class Back:
    """`Back`: goes to the previous page."""


@dataclasses.dataclass(frozen=True)
class End:
    """`End: <Answer, Nonsense, Controversial>`: ends browsing.

    Attributes:
      reason: `answer` (the answer is then written), `nonsense` or `controversial`.
    """

    reason: str


Command = Search | Click | Find | Quote | Scroll | Top | Back | End


class InvalidCommandError(ValueError):
    """A text that is not a command, or not possible here; the message says why."""


_WORDS: dict[str, Command] = {
    "Top": Top(),
    "Back": Back(),
    "End: Answer": End("answer"),
    "End: Nonsense": End("nonsense"),
    "End: Controversial": End("controversial"),
}
_CLICK = re.compile(r"Clicked on link (0|[1-9][0-9]{0,8})")
_SCROLL = re.compile(r"Scrolled (down|up) ([123])")
_STARTS = ("Search", "Clicked on link", "Find in page:", "Quote:", "Scrolled", "End:")


def parse(text: str) -> Command:
    """Parses a command; surrounding white space is ignored, the rest must match table 1 exactly.

    White space in a query or in a text to find counts as one blank.

    Raises:
      InvalidCommandError: when it is not a command.
    """
    if len(text) > LONGEST_ACTION:
        raise InvalidCommandError(f"has more than {LONGEST_ACTION} characters")
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if match := _CLICK.fullmatch(text):
        return Click(int(match[1]))
    if match := _SCROLL.fullmatch(text):
        return Scroll(int(match[2]) * (1 if match[1] == "down" else -1))
    name, rest = _split(text)
    if name == "Search":
        return Search(" ".join(rest.split()))
    if name == "Find in page:":
        return Find(" ".join(rest.split()))
    if name == "Quote:":
        return _quote(rest)
    raise InvalidCommandError(_problem(text))


def _split(text: str) -> tuple[str, str]:
    for name in ("Search", "Find in page:", "Quote:"):
        if text.startswith(f"{name} "):
            return name, text[len(name) + 1 :].strip()
    return "", ""


def _quote(text: str) -> Quote:
    start, mark, end = text.partition(ELLIPSIS)
    if not mark:
        return Quote(text)
    if ELLIPSIS in end:
        raise InvalidCommandError(f"has more than one {ELLIPSIS} between start and end")
    if not start.strip() or not end.strip():
        raise InvalidCommandError(f"must have a text on either side of {ELLIPSIS}")
    return Quote(start.strip(), end.strip())


def _problem(text: str) -> str:
    if not text:
        return "is empty"
    for start in _STARTS:
        if text == start or text == start.rstrip(":"):
            return f"says only {text!r}"
    if text.startswith("Clicked on link "):
        return "must end in the number of a link"
    if text.startswith("Scrolled "):
        return "must be 'Scrolled down' or 'Scrolled up' with 1, 2 or 3"
    if text.startswith("End: "):
        return "must be 'End: Answer', 'End: Nonsense' or 'End: Controversial'"
    return "is none of the commands"

"""From a question with its proof to the route that leads there, page after page."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from gophercite.browser.worlds import World
from gophercite.records import Question
from gophercite.retrieval.index import STOP_WORDS

_WORD = re.compile(r"\w+")
_LONGEST_HEADING = 40  # characters of a line above a sentence that counts as its heading


@dataclasses.dataclass(frozen=True)
class Leg:
    """A page on the route.

    Attributes:
      address: address of the page.
      title: its title.
      span: span of the sentence that belongs to the proof, in the page's text; None if there is
          none.
      sentence: that sentence.
      words: words for finding the sentence in the page: the heading above it, or those words of
        the question that it contains.
    """

    address: str
    title: str
    span: tuple[int, int] | None = None
    sentence: str = ""
    words: tuple[str, ...] = ()


class NoWayError(ValueError):
    """The world lacks a page or sentence of a question's proof; the message says which."""


def route_of(
    question: Question, world: World, addresses: Mapping[str, str] | None = None
) -> tuple[Leg, ...]:
    """Returns the route to the proof of a question: its documents, in order.

    A document without evidence only leads to the next one; the last one has evidence.

    Args:
      question: the question, with `documents` and `evidence`.
      world: the world that has the pages.
      addresses: addresses of documents by id; other documents have their addresses as ids.

    Raises:
      NoWayError: a page or its sentence is missing.
    """
    legs: list[Leg] = []
    spans = {span.document: span for span in question.evidence}
    for source in question.documents:
        address = (addresses or {}).get(source.id, source.id)
        page = world.open(address)
        if page.problem is not None:
            raise NoWayError(f"question {question.id!r}: {address}: {page.problem}")
        title, text = page.document.title, page.document.text
        if (span := spans.get(source.id)) is None:
            legs.append(Leg(address, title))
            continue
        if span.end > len(text):
            raise NoWayError(f"question {question.id!r}: {address} ends before its evidence")
        sentence = text[span.start : span.end]
        words = _words_to_find(question.question, text, span.start, span.end)
        legs.append(Leg(address, title, (span.start, span.end), sentence, words))
    if not legs or legs[-1].span is None:
        raise NoWayError(f"question {question.id!r} has no evidence in its last document")
    return tuple(legs)


def name_query(question: str, titles: Sequence[str]) -> str:
    """Returns a question's subject: those of its words that occur in titles, as it spells them.

    If there are none, returns the question's `keywords`.
    """
    named = {word for title in titles for word in _telling(title)}
    return " ".join(word for word in _telling(question) if word in named) or keywords(question)


def keywords(question: str) -> str:
    """Returns the informative words of a question, or all of it if there are none."""
    return " ".join(_telling(question)) or question


def phrases(question: str) -> tuple[str, ...]:
    """Returns the phrases of one to three words of a question that are worth finding in a page.

    They neither begin nor end with an uninformative word. Shorter phrases come first, because a
    page is more likely to contain them.
    """
    words = list(_WORD.finditer(question))
    telling = [word.group().lower() not in STOP_WORDS for word in words]
    runs = [
        question[words[first].start() : words[first + more].end()]
        for more in range(3)
        for first in range(len(words) - more)
        if telling[first] and telling[first + more]
    ]
    return tuple(dict.fromkeys(runs))


def name_of(title: str) -> str:
    """Returns a title without its disambiguation: the name in `Ada Fenwick (engineer)`."""
    return title.partition(" (")[0]


def _telling(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]


def _words_to_find(question: str, text: str, start: int, end: int) -> tuple[str, ...]:
    begin = text.rfind("\n", 0, start) + 1
    above = text[text.rfind("\n", 0, max(0, begin - 1)) + 1 : max(0, begin - 1)].strip()
    sentence = text[start:end]
    found = [word for word in _telling(question) if len(word) > 3 and word in sentence]
    if begin == start and above and len(above) <= _LONGEST_HEADING and above[-1] not in ".:!?":
        found.insert(0, above)
    return tuple(dict.fromkeys(found))

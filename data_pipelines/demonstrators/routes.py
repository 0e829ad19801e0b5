"""From a question with its proof to the way that leads there: page after page."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from gophercite.browser.worlds import World
from gophercite.records import Question
from gophercite.retrieval.index import STOP_WORDS

_WORD = re.compile(r"\w+")
_LONGEST_HEADING = 40  # characters of a line that stands above a sentence as its heading


@dataclasses.dataclass(frozen=True)
class Leg:
    """A page on the way.

    Attributes:
      address: of the page.
      title: its title.
      span: of the sentence that belongs to the proof, in the page's text; None where it has none.
      sentence: that sentence.
      words: what to look for in the page to find it: the heading above it, else the question's
        words that stand in it.
    """

    address: str
    title: str
    span: tuple[int, int] | None = None
    sentence: str = ""
    words: tuple[str, ...] = ()


class NoWayError(ValueError):
    """A question whose pages or sentences the world has not; the message says which."""


def route_of(
    question: Question, world: World, addresses: Mapping[str, str] | None = None
) -> tuple[Leg, ...]:
    """Returns the way to the proof of a question: its documents, in their order.

    A document without evidence is on the way only to lead on; the last one has evidence.

    Args:
      question: with `documents` and `evidence`.
      world: that has the pages.
      addresses: of documents by their ids; those that are not there have their addresses as ids.

    Raises:
      NoWayError: when a page or its sentence is not there.
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
        raise NoWayError(f"question {question.id!r} says of no page that it proves the answer")
    return tuple(legs)


def name_query(question: str, titles: Sequence[str]) -> str:
    """Returns the words of a question that stand in titles, as it has them: what it is about.

    Without such words, its `keywords`.
    """
    named = {word for title in titles for word in _telling(title)}
    return " ".join(word for word in _telling(question) if word in named) or keywords(question)


def keywords(question: str) -> str:
    """Returns the words of a question that tell something; where none does, all of it."""
    return " ".join(_telling(question)) or question


def name_of(title: str) -> str:
    """Returns a title without what tells namesakes apart: `Ada Fenwick (engineer)`'s name."""
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

"""The pages of the sample web: short and long articles, records, lists, and pages of namesakes."""

import dataclasses
import random
from collections.abc import Iterator

from data_pipelines.sample_web.things import Thing, Value, address, lists_of
from data_pipelines.sample_world.wording import Attribute
from data_pipelines.sample_world.world import capitalised, subject_words
from gophercite.browser.pages import Page
from gophercite.browser.shown import Link
from gophercite.documents import Document

PLURALS = {"person": "people"}  # other kinds add an s: `towns` and so on

# The heading of a section of a long page, if it is not the attribute's key.
HEADINGS = {
    "born": "Birth",
    "founded": "Foundation",
    "launched": "Launch",
    "finished": "Completion",
    "place": "Location",
    "open": "Visitors",
}

# The content of a chronicle, which answers no question about the world.
_EVENTS = (
    "the harvest was poor and bread was dear",
    "a stranger left a chest that nobody opened",
    "the road to the north was mended",
    "two clocks struck thirteen on the same night",
    "the well ran dry for forty days",
    "a letter took nine weeks to arrive",
    "the bells were taken down and cleaned",
    "snow fell in the middle of summer",
    "a fire was seen on the hill, but no smoke",
    "the old gate was painted again",
    "the council forbade whistling after dark",
    "a wandering teacher stayed for three weeks",
    "the bees left their hives and came back",
    "a long quarrel about a fence was settled",
    "the ferry sank and was raised again",
    "wolves were heard, though none was seen",
    "the winter stores were counted twice",
    "a map was drawn that proved to be wrong",
    "the school was closed because of the wind",
    "nobody could say where the geese had gone",
)


@dataclasses.dataclass(frozen=True)
class Fact:
    """A fact that a page states; the sentence that states it is `text[start:end]`."""

    attribute: Attribute
    value: Value
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class SitePage:
    """A page of the site, and the facts on it.

    Attributes:
      page: the page as the browser's worlds have it.
      thing: the thing that an article or a page of records is about; None for other pages.
      facts: the facts that it states, in the order of the text.
      hidden: whether no search finds it.
    """

    page: Page
    thing: Thing | None = None
    facts: tuple[Fact, ...] = ()
    hidden: bool = False

    @property
    def address(self) -> str:
        """The page's address."""
        return self.page.document.url or ""

    def sentence(self, fact: Fact) -> str:
        """Returns the sentence that states a fact."""
        return self.page.document.text[fact.start : fact.end]

    def leads_to(self, address: str) -> bool:
        """Whether it has a link to this address."""
        return any(link.url == address for link in self.page.links)


def pages_of(things: list[Thing], seed: int, lines: int) -> Iterator[SitePage]:
    """Yields the pages of a site.

    Args:
      things: all things of the site.
      seed: seed of the wordings.
      lines: minimum number of lines before a fact on a long page.
    """
    lists = lists_of(things)
    list_of = {number: at for each in lists.values() for number, at in _places(each)}
    for thing in things:
        draw = random.Random(f"{seed}/web/page/{thing.title}")
        yield _article(thing, things, list_of[thing.number], lines, draw)
        if thing.records:
            yield _records(thing, things, draw)
    for listed in lists.values():
        for number in range(len(listed)):
            yield _list(listed, number)
    for thing in things:
        if thing.namesakes and thing.number == thing.namesakes[0]:
            yield _namesakes([things[number] for number in thing.namesakes])


class _Writing:
    """A page's text while it is being written."""

    def __init__(self) -> None:
        self.text = ""
        self.links: list[Link] = []
        self.facts: list[Fact] = []

    def add(self, text: str, link: str | None = None) -> None:
        if link is not None:
            self.links.append(Link(len(self.text), len(self.text) + len(text), link))
        self.text += text

    def state(
        self, thing: Thing, attribute: Attribute, things: list[Thing], statement: str
    ) -> None:
        value, words = thing.values[attribute.key], subject_words(thing.name)
        start = len(self.text)
        before, after = (part.format(**words) for part in statement.split("{value}"))
        self.add(capitalised(before) if before else "")
        linked = None if value.thing is None else things[value.thing].address
        self.add(value.text, linked)
        self.add(after)
        self.facts.append(Fact(attribute, value, start, len(self.text)))

    def page(self, title: str, at: str, thing: Thing | None = None, *, hidden: bool) -> SitePage:
        page = Page(Document(at, title, self.text, at), tuple(self.links))
        return SitePage(page, thing, tuple(self.facts), hidden)


def _article(
    thing: Thing, things: list[Thing], list_at: tuple[str, str], lines: int, draw: random.Random
) -> SitePage:
    written = _Writing()
    at_top = thing.told[:2] if thing.long else thing.told
    _paragraph(written, thing, at_top, things, draw)
    if thing.long:
        _chronicle(written, "\n\nChronicle\n", lines, draw)
        for attribute in thing.told[2:]:
            written.add(f"\n{heading(attribute)}\n")
            written.state(thing, attribute, things, draw.choice(attribute.statements))
            _chronicle(written, "\n", draw.randint(0, 3), draw)
        _chronicle(written, "\nFrom another chronicle\n", lines // 3, draw)
    else:
        written.add("\n")
    if thing.records:
        written.add("\nMore is written in the ")
        written.add("records", thing.records_address)
        written.add(".")
    written.add("\nSee also: ")
    title, at = list_at
    written.add(title, at)
    return written.page(thing.title, thing.address, thing, hidden=thing.hidden)


def _chronicle(written: _Writing, heading: str, lines: int, draw: random.Random) -> None:
    """Writes lines that say nothing about any thing."""
    written.add(heading)
    for year in sorted(draw.randint(1100, 1999) for _ in range(lines)):
        written.add(f"In {year} {draw.choice(_EVENTS)}.\n")


def _records(thing: Thing, things: list[Thing], draw: random.Random) -> SitePage:
    written = _Writing()
    _paragraph(written, thing, thing.filed, things, draw)
    written.add("\n\nBack to ")
    written.add(thing.title, thing.address)
    return written.page(thing.records_title, thing.records_address, thing, hidden=True)


def _paragraph(
    written: _Writing,
    thing: Thing,
    attributes: tuple[Attribute, ...],
    things: list[Thing],
    draw: random.Random,
) -> None:
    """Writes sentences that state facts, and remarks; the first sentence names the thing."""
    remarks = draw.sample(thing.kind.remarks, draw.choice((0, 0, 1, 2)))
    before = [draw.randint(1, len(attributes)) for _ in remarks]
    for place, attribute in enumerate(attributes):
        for remark, at in zip(remarks, before, strict=True):
            if at == place:
                written.add(" " + capitalised(remark.format(**subject_words(thing.name))))
        if place:
            written.add(" ")
        named, *leaning = attribute.statements
        statement = draw.choice([named, *leaning, *leaning]) if place else named
        written.state(thing, attribute, things, statement)


def _list(listed: list[list[Thing]], number: int) -> SitePage:
    title, at = _list_at(listed, number)
    written = _Writing()
    written.add(f"{title}\n")
    for thing in listed[number]:
        written.add("\n")
        written.add(thing.title, thing.address)
    for step, word in ((1, "Next"), (-1, "Before")):
        if 0 <= number + step < len(listed):
            written.add(f"\n{word}: ")
            written.add(*_list_at(listed, number + step))
    return written.page(title, at, hidden=False)


def _namesakes(things: list[Thing]) -> SitePage:
    name = things[0].name
    title = f"{name} (disambiguation)"
    written = _Writing()
    written.add(f"{name} may mean:\n")
    for thing in things:
        written.add("\n")
        written.add(thing.title, thing.address)
    return written.page(title, address("names.example", name), hidden=False)


def heading(attribute: Attribute) -> str:
    """Returns the heading above the section of a long page that states this attribute."""
    return HEADINGS.get(attribute.key, attribute.key.capitalize())


def _places(listed: list[list[Thing]]) -> Iterator[tuple[int, tuple[str, str]]]:
    for number, things in enumerate(listed):
        for thing in things:
            yield thing.number, _list_at(listed, number)


def _list_at(listed: list[list[Thing]], number: int) -> tuple[str, str]:
    kind = listed[0][0].kind.key
    title = f"List of {PLURALS.get(kind, f'{kind}s')}"
    if len(listed) > 1:
        title = f"{title} ({number + 1} of {len(listed)})"
    return title, address("lists.example", title)

"""The things that the sample web has pages about: their names, namesakes, and facts.

Kinds, wordings and names are those of the sample world. In addition, a fact may lead to another
thing (the mayor of a town has a page); some things share their name with others of their kind; some
have pages so long that their facts are three screens down; some have half of their facts on a page
of records; and some pages can't be found by search.
"""

import dataclasses
import random
import urllib.parse
from collections.abc import Mapping

from data_pipelines.sample_world import names
from data_pipelines.sample_world.names import Split
from data_pipelines.sample_world.values import FEMALE_NAMES, MALE_NAMES, NUMBERS, WORDS
from data_pipelines.sample_world.wording import KINDS, Attribute, Kind

SMALLEST = 40  # pages; on a smaller site, some kinds have no thing to which facts could lead
LISTED_ON_A_PAGE = 60  # things; if a kind has more, its list has several pages

# Shares of the things.
LONG, RECORDS, HIDDEN, NAMESAKE = 0.15, 0.10, 0.12, 0.12
MOST_NAMESAKES = 3  # per name

# What distinguishes namesakes of each kind: the attribute, and its form in titles and in questions.
APART: dict[str, tuple[str, str, str]] = {
    "person": ("profession", "{name} ({value})", "the {value} {name}"),
    "town": ("county", "{name} ({value} County)", "{name} in {value} County"),
    "ship": ("launched", "{name} ({value})", "{name} of {value}"),
}
HOSTS = {"person": "people.example"}  # other kinds: `towns.example` and so on


@dataclasses.dataclass(frozen=True)
class Value:
    """One value of a thing's attribute.

    Attributes:
      text: the value as its page writes it.
      thing: the number of the thing that it names; None if it names none, as a number or a colour.
    """

    text: str
    thing: int | None = None


@dataclasses.dataclass
class Thing:
    """A thing with a page.

    Attributes:
      number: index among all things of the site.
      kind: a town, a person, …
      name: its name in texts; namesakes share it.
      namesakes: the numbers of all things with this name, including its own; empty if it is the
        only one.
      long, records, hidden: whether its page is long; whether half of its facts are on a page of
        records; whether its page can only be reached by links.
      values: the values of all attributes, by the attribute's key.
      told: the attributes that its page states, in order; the sentence of the first names the
        thing.
      filed: the attributes that its page of records states.
      title, asked: the title of its page, and how questions refer to it.
    """

    number: int
    kind: Kind
    name: str
    namesakes: tuple[int, ...] = ()
    long: bool = False
    records: bool = False
    hidden: bool = False
    values: dict[str, Value] = dataclasses.field(default_factory=dict)
    told: tuple[Attribute, ...] = ()
    filed: tuple[Attribute, ...] = ()
    title: str = ""
    asked: str = ""

    @property
    def address(self) -> str:
        """The address of its page."""
        return address(HOSTS.get(self.kind.key, f"{self.kind.key}s.example"), self.title)

    @property
    def records_title(self) -> str:
        """The title of its page of records."""
        return f"Records of {self.title}"

    @property
    def records_address(self) -> str:
        """The address of its page of records."""
        return address("records.example", self.title)


def address(host: str, title: str) -> str:
    """Returns the address of a page."""
    return f"http://{host}/{urllib.parse.quote(title.replace(' ', '_'), safe='()')}"


def root(split: Split, index: int, seed: int) -> str:
    """Returns the root of the name of thing `index`; no two things have the same root.

    Roots are names of the split; when all are taken, two are joined.
    """
    around, place = divmod(index, names.count(split))
    first = names.name(split, place, seed)
    return first if not around else f"{first}-{names.name(split, place + around, seed)}"


def things_of(seed: int, split: Split, pages: int) -> tuple[list[Thing], int]:
    """Returns the things of a site with this many pages, and how many pages they use.

    Args:
      seed: seed of the site.
      split: the split whose names it uses.
      pages: number of pages, including lists, records and pages of namesakes.

    Raises:
      ValueError: there are too few pages.
    """
    if pages < SMALLEST:
        raise ValueError(f"a site has at least {SMALLEST} pages, not {pages}")
    things: list[Thing] = []
    used_pages = 0
    while True:
        thing = _outline(seed, split, things)
        with_it = used_pages + _pages_with(thing, things)
        if with_it > pages:
            break
        things.append(thing)
        for other in thing.namesakes[:-1]:
            things[other].namesakes = thing.namesakes
            things[other].hidden = False
        used_pages = with_it
    for thing in things:  # one or two remaining pages
        if used_pages < pages and not thing.records:
            thing.records, thing.long = True, False
            used_pages += 1
    for thing in things:
        draw = random.Random(f"{seed}/{split}/web/values/{thing.number}")
        _give_values(thing, things, split, draw)
    for thing in things:
        _give_titles(thing)
    return things, used_pages


def lists_of(things: list[Thing]) -> Mapping[str, list[list[Thing]]]:
    """Returns, by kind, the things on each page of its list, ordered by their titles."""
    lists = {}
    for kind in KINDS:
        listed = sorted((t for t in things if t.kind is kind), key=lambda thing: thing.title)
        lists[kind.key] = [
            listed[start : start + LISTED_ON_A_PAGE]
            for start in range(0, len(listed), LISTED_ON_A_PAGE)
        ]
    return lists


def _outline(seed: int, split: Split, things: list[Thing]) -> Thing:
    """The next thing, with its kind, its name, and what pages it has."""
    number = len(things)
    draw = random.Random(f"{seed}/{split}/web/outline/{number}")
    kind = KINDS[number % len(KINDS)]
    given = draw.choice(FEMALE_NAMES + MALE_NAMES)
    name = draw.choice(kind.titles).format(root=root(split, number, seed), given=given)
    thing = Thing(number, kind, name)
    extent = draw.random()
    thing.long, thing.records = extent < LONG, LONG <= extent < LONG + RECORDS
    thing.hidden = draw.random() < HIDDEN
    before = things[number - len(KINDS)] if number >= len(KINDS) else None
    shares = draw.random() < NAMESAKE
    if before is not None and kind.key in APART and shares:
        group = before.namesakes or (before.number,)
        if len(group) < MOST_NAMESAKES:
            thing.name, thing.namesakes, thing.hidden = before.name, (*group, number), False
    return thing


def _pages_with(thing: Thing, things: list[Thing]) -> int:
    """Number of pages that a thing adds.

    These are its own page, and maybe a page of records, the next page of a list, or a page that
    distinguishes namesakes.
    """
    place = len(things) // len(KINDS)  # index among those of its kind
    return 1 + thing.records + (place % LISTED_ON_A_PAGE == 0) + (len(thing.namesakes) == 2)


def _give_values(thing: Thing, things: list[Thing], split: Split, draw: random.Random) -> None:
    apart = APART.get(thing.kind.key, ("", "", ""))[0] if thing.namesakes else ""
    used = {thing.name}
    for attribute in thing.kind.attributes:
        # An answer must have one place on the page, and namesakes must differ in the attribute
        # that distinguishes them.
        barred = set(used)
        if attribute.key == apart:
            others = [things[number].values for number in thing.namesakes]
            barred |= {values[apart].text for values in others if apart in values}
        value = _value(attribute, things, split, draw)
        while value.text in barred or any(value.text in each for each in used):
            value = _value(attribute, things, split, draw)
        used.add(value.text)
        thing.values[attribute.key] = value
    order = draw.sample(thing.kind.attributes, len(thing.kind.attributes))
    order.sort(key=lambda attribute: attribute.key != apart)
    count = 3 if thing.records else 6 if thing.long else draw.choice((3, 4, 4, 5, 6))
    thing.told = tuple(order[:count])
    thing.filed = tuple(order[count:]) if thing.records else ()


def _value(attribute: Attribute, things: list[Thing], split: Split, draw: random.Random) -> Value:
    kind = attribute.value
    if kind in NUMBERS:
        unit, least, most = NUMBERS[kind]
        return Value(f"{draw.randint(least, most)}{unit}")
    if kind in WORDS:
        return Value(draw.choice(WORDS[kind]))
    if kind == "place":
        return Value(names.name(split, draw.randrange(names.count(split))))
    first = next(index for index, each in enumerate(KINDS) if each.key == kind)
    other = things[first + len(KINDS) * draw.randrange(1 + (len(things) - 1 - first) // len(KINDS))]
    return Value(other.name, other.number)


def _give_titles(thing: Thing) -> None:
    thing.title = thing.asked = thing.name
    if thing.namesakes:
        key, title, asked = APART[thing.kind.key]
        value = thing.values[key].text
        thing.title = title.format(name=thing.name, value=value)
        thing.asked = asked.format(name=thing.name, value=value)

"""Questions about the sample web that need one to four of its pages, each with its proof.

A question with several pages goes from one thing to another that its page mentions ("the mayor of
Boravel"), to a thing's page of records, or to a page that no search finds. The last page does not
mention the thing with which the question begins, so no search leads straight there.
"""

import collections
import dataclasses
import random
from collections.abc import Iterator, Sequence

from data_pipelines.demonstrators.routes import name_query
from data_pipelines.sample_web.pages import Fact, SitePage
from data_pipelines.sample_web.things import Thing
from data_pipelines.sample_world.values import NUMBERS
from gophercite.browser.worlds import World
from gophercite.records import Hit, Question, Span
from gophercite.text.answer_matching import contains_answer

SOURCE = "sample_web"
MOST_STEPS = 4
STEPS = (4, 3, 2, 1)  # relative frequencies of questions that need one to four pages

# How questions refer to the thing to which a fact leads.
_RELATIONS = {
    ("town", "river"): "the river that runs through {name}",
    ("town", "mayor"): "the mayor of {name}",
    ("person", "birthplace"): "the town where {name} was born",
    ("person", "teacher"): "the teacher of {name}",
    ("river", "source"): "the mountain where the {name} rises",
    ("ship", "port"): "the home port of the {name}",
    ("ship", "captain"): "the captain of the {name}",
    ("animal", "discoverer"): "the person who first described the {name}",
    ("mountain", "climber"): "the person who first climbed {name}",
    ("mountain", "town"): "the town at the foot of {name}",
    ("castle", "builder"): "the builder of {name}",
    ("castle", "place"): "the town nearest to {name}",
}
_NAMES_ITS_KIND = ("town of {name}", "town {name}", "ship {name}")
_TRIES = 200  # per question
_MISSES = 5  # failures in a row after which a site has no more questions with so many pages


@dataclasses.dataclass(frozen=True)
class _Way:
    """An unfinished route: pages, proof, and how a question refers to the last page's thing."""

    pages: tuple[SitePage, ...]
    proof: tuple[tuple[SitePage, Fact], ...]
    asked: str


class QuestionMaker:
    """Draws questions about a site.

    Args:
      pages: pages of the site.
      world: the site's recorded world, whose search decides where a question can begin.
      split, seed: split and seed of the site; the questions' ids contain them.
      results: number of search results to consider.
    """

    def __init__(
        self, pages: Sequence[SitePage], world: World, split: str, seed: int, results: int
    ) -> None:
        self._world, self._split, self._seed, self._results = world, split, seed, results
        self._at = {page.address: page for page in pages}
        self._articles = {
            page.thing.number: page
            for page in pages
            if page.thing is not None and page.address == page.thing.address
        }
        self._listed = [page for page in self._articles.values() if not page.hidden]
        self._hidden = [page for page in self._articles.values() if page.hidden]

    def questions(self, number: int, steps: Sequence[float] = STEPS) -> Iterator[Question]:
        """Yields different questions, or fewer than requested if the site has no more.

        Args:
          number: number of questions.
          steps: relative frequencies of questions that need one page, two, and so on, up to four.
        """
        used: set[str] = set()
        missed = collections.Counter[int]()
        for place in range(number):
            draw = random.Random(f"{self._seed}/{self._split}/web/question/{place}")
            (wanted,) = draw.choices(range(1, len(steps) + 1), steps)
            if missed[wanted] == _MISSES:
                continue
            for _ in range(_TRIES):
                question = self._question(draw, wanted, f"{self._split}-{self._seed}-{place}")
                if question is not None and question.question not in used:
                    used.add(question.question)
                    yield question
                    missed[wanted] = 0
                    break
            else:
                missed[wanted] += 1

    def _question(self, draw: random.Random, steps: int, id: str) -> Question | None:
        hidden = bool(self._hidden) and steps > 1 and draw.random() < 0.3
        page = draw.choice(self._hidden if hidden else self._listed)
        thing = _thing(page)
        way = _Way((page,), (), thing.asked)
        while len(way.pages) + hidden < steps:
            further = self._further(way, draw)
            if further is None:
                return None
            way = further
        asked = self._asked(way, draw)
        if asked is None:
            return None
        text, fact = asked
        pages, proof = way.pages, (*way.proof, (way.pages[-1], fact))
        begins = self._beginning(text, way, page if hidden else None)
        if begins is None:
            return None
        pages = (begins, *pages) if hidden else pages
        if not _is_needed(pages, thing, fact):
            return None
        return _record(id, text, pages, proof, self._wrong(proof))

    def _further(self, way: _Way, draw: random.Random) -> _Way | None:
        """The route with one more page; None if it can't be continued."""
        here = way.pages[-1]
        thing, visited = _thing(here), {page.address for page in way.pages}
        options: list[_Way] = []
        if thing.records and thing.records_address not in visited:
            records = self._at[thing.records_address]
            options.append(_Way((*way.pages, records), way.proof, way.asked))
        for fact in here.facts:
            phrase = _RELATIONS.get((thing.kind.key, fact.attribute.key))
            if phrase is None or fact.value.thing is None:
                continue
            article = self._articles[fact.value.thing]
            if article.address not in visited:
                pages, proof = (*way.pages, article), (*way.proof, (here, fact))
                options.append(_Way(pages, proof, _named(phrase, way.asked)))
        return draw.choice(options) if options else None

    def _asked(self, way: _Way, draw: random.Random) -> tuple[str, Fact] | None:
        """A question about the last page of a route, and the fact that answers it.

        None if the question contains the answer.
        """
        page = way.pages[-1]
        fact = draw.choice(page.facts)
        wordings = fact.attribute.questions
        if way.proof:
            wordings = tuple(w for w in wordings if not any(n in w for n in _NAMES_ITS_KIND))
        text = _named(draw.choice(wordings), way.asked)
        # For example, the profession of the painter who has namesakes.
        return None if contains_answer(text, [fact.value.text]) else (text, fact)

    def _beginning(self, text: str, way: _Way, hidden: SitePage | None) -> SitePage | None:
        """The search result with which a route begins; None if there is none.

        This is the route's first page. If no search finds that page (`hidden`), it is the first
        result that leads there.
        """
        first = way.pages[0]
        hits = self._world.search(name_query(text, [first.page.document.title]), self._results)
        found = [self._at[hit.url] for hit in hits]
        if hidden is None:
            return first if first in found else None
        taken = {page.address for page in way.pages}
        leading = (page for page in found if page.leads_to(hidden.address))
        return next((page for page in leading if page.address not in taken), None)

    def _wrong(self, proof: tuple[tuple[SitePage, Fact], ...]) -> tuple[str, ...]:
        """Answers known to be wrong: other values on the page, and the values of namesakes."""
        page, fact = proof[-1]
        thing = _thing(page)
        values = [each.value.text for each in page.facts]
        for number in thing.namesakes:
            if number != thing.number:
                told = self._articles[number].facts
                same = (each for each in told if each.attribute is fact.attribute)
                values += [each.value.text for each in same]
        said = " ".join([fact.value.text, *(where.sentence(each) for where, each in proof)])
        return tuple(value for value in dict.fromkeys(values) if not contains_answer(said, [value]))


def _thing(page: SitePage) -> Thing:
    assert page.thing is not None, page.address
    return page.thing


def _named(wording: str, name: str) -> str:
    """Fills a name or phrase into a wording, without doubling the article in `the {name}`."""
    if name.startswith("the "):
        wording = wording.replace("the {name}", "{name}")
    return wording.format(name=name)


def _is_needed(pages: tuple[SitePage, ...], first: Thing, fact: Fact) -> bool:
    """Whether all pages are needed: only the last has the answer, and it doesn't name `first`."""
    answer = [fact.value.text]
    if any(contains_answer(page.page.document.text, answer) for page in pages[:-1]):
        return False
    last = pages[-1]
    return last.thing is first or not contains_answer(last.page.document.text, [first.name])


def _record(
    id: str,
    text: str,
    pages: tuple[SitePage, ...],
    proof: tuple[tuple[SitePage, Fact], ...],
    wrong: tuple[str, ...],
) -> Question:
    stated = {page.address: fact for page, fact in proof}
    documents = tuple(
        Hit(
            page.address,
            page.sentence(stated[page.address])
            if page.address in stated
            else page.page.document.title,
        )
        for page in pages
    )
    value = proof[-1][1].value.text
    unit = NUMBERS.get(proof[-1][1].attribute.value, ("",))[0]
    return Question(
        id=id,
        question=text,
        source=SOURCE,
        documents=documents,
        answers=(value, value.removesuffix(unit)) if unit else (value,),
        evidence=tuple(Span(page.address, fact.start, fact.end) for page, fact in proof),
        incorrect_answers=wrong,
    )

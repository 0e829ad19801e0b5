"""A closed world of invented things: pages about them, questions, and the truth about answers.

`World(seed, split)` is a function of its fields: `page(i)`, `question(i)` and `rated_answer(i)`
depend only on (seed, split, i), take well under a millisecond, and can be called in any
order. Pages refer to each other (the mayor of a town may have a page), and no name of one split
occurs in another.
"""

import random
import re
from dataclasses import dataclass
from typing import Literal

from data_pipelines.sample_world import names
from data_pipelines.sample_world.names import Split
from data_pipelines.sample_world.values import (
    FEMALE_NAMES,
    MALE_NAMES,
    NUMBERS,
    WORDS,
    ValueType,
)
from data_pipelines.sample_world.wording import KINDS, Attribute, Kind
from gophercite.documents import Document
from gophercite.text.answer_matching import normalize_answer

# The deliberate faults of an answer:
# "quote": the right claim, with the sentence of another fact of the page as its quote;
# "fact": claim and quote are those of another fact of the page, and agree with each other;
# "alike": the same, with a fact whose value has the same form (a number, a name, a word), if the
#   page has one;
# "page": claim and quote are those of another page;
# "claim": the claim is another value of the requested kind, with the right quote;
# "slip": the claim is the right value with a wrong digit or half of a name;
# "garble": the claim is the right value with a part missing, doubled or added;
# "mixed": the claim is that of another fact, and the quote that of a third one;
# "sentence": the right claim, with any other sentence of the page as its quote;
# "cut": the right claim, with a quote that ends too soon.
AnswerFault = Literal[
    "quote", "fact", "alike", "page", "claim", "slip", "garble", "mixed", "sentence", "cut"
]
# The faults of rated answers, on which the bundled vocabulary was also trained.
_RATED: tuple[AnswerFault, ...] = ("quote", "fact", "page")
# Weights of the faults in comparisons with a good answer. Slips are most frequent: a model that has
# mostly seen completely different values compares only the last piece of claim and quote, and
# mistakes Flora Lamemir for Rosa Lamemir, or 1562 for 1162. Next come the faults of a model's own
# samples, then answers to other questions. A supervised model hardly ever samples the latter, but
# reinforcement learning finds them if nothing penalises them.
COMPARED: dict[AnswerFault, int] = {
    "slip": 15,
    "claim": 5,
    "quote": 3,
    "fact": 2,
    "alike": 2,
    "page": 2,
    "garble": 1,
    "mixed": 1,
    "sentence": 1,
    "cut": 1,
}

_KIND_INDEX = {kind.key: index for index, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Fact:
    """One fact of a page: its attribute, the value as the page writes it, and where it is stated.

    `start` and `end` are code-point offsets of the whole sentence in the page's text.
    """

    attribute: Attribute
    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Page:
    """A page of the world: its number, the document, and what it states, in reading order."""

    index: int
    kind: Kind
    document: Document
    facts: tuple[Fact, ...]

    def sentence(self, fact: Fact) -> str:
        """Returns the sentence of this page that states `fact`."""
        return self.document.text[fact.start : fact.end]


@dataclass(frozen=True)
class WorldQuestion:
    """A question about one fact of `target`, shown with `pages`, which include `target`."""

    id: str
    text: str
    target: Page
    fact: Fact
    pages: tuple[Page, ...]


@dataclass(frozen=True)
class WorldAnswer:
    """An answer to a question, good or deliberately bad, with the labels that raters would give."""

    id: str
    question: WorldQuestion
    claim: str
    page: Page
    quote: str
    plausible: bool
    supported: bool


@dataclass(frozen=True)
class WorldComparison:
    """Two answers to a question.

    `preferred` is the probability that raters prefer the second answer; `fault` is the fault of the
    worse one.
    """

    id: str
    question: WorldQuestion
    answers: tuple[WorldAnswer, WorldAnswer]
    preferred: float
    fault: AnswerFault


@dataclass(frozen=True)
class World:
    """The pages, questions and answers of one split of a world.

    Attributes:
      seed: seed of the world. Other seeds give other pages, but splits never share names.
      split: "train", "validation" or "test".
      pages: number of pages, at most `names.count(split)`; None takes them all.
      max_documents: maximum number of pages that come with a question; the minimum is 1.
      max_sentences: maximum number of sentences on all pages of a question (the target alone may
        have up to eight), which limits the length of prompts.
      good_fraction: share of the rated answers that are both plausible and supported.
    """

    seed: int = 0
    split: Split = "train"
    pages: int | None = None
    max_documents: int = 3
    max_sentences: int = 11
    good_fraction: float = 0.7

    def __post_init__(self) -> None:
        if self.split not in names.SPLITS:
            raise ValueError(
                f"split is {self.split!r}; it must be one of {', '.join(names.SPLITS)}"
            )
        if not len(KINDS) <= self.size <= names.count(self.split):
            raise ValueError(
                f"pages is {self.pages}; the {self.split} split has names for "
                f"{len(KINDS)} to {names.count(self.split)} pages"
            )

    @property
    def size(self) -> int:
        """The number of pages."""
        return names.count(self.split) if self.pages is None else self.pages

    def title(self, index: int) -> str:
        """Returns the title of page `index`, which is also the name of its subject."""
        kind = KINDS[index % len(KINDS)]
        draw = self._draws("title", index)
        root = names.name(self.split, index, offset=self.seed)
        given = draw.choice(FEMALE_NAMES + MALE_NAMES)
        return draw.choice(kind.titles).format(root=root, given=given)

    def page(self, index: int) -> Page:
        """Returns page `index`, with 3 to 8 sentences, of which 3 to 6 state facts.

        Raises:
          IndexError: the index is not between 0 and `size - 1`.
        """
        if not 0 <= index < self.size:
            raise IndexError(f"there is no page {index}; the pages are 0 to {self.size - 1}")
        kind = KINDS[index % len(KINDS)]
        draw = self._draws("page", index)
        attributes = draw.sample(kind.attributes, draw.choice((3, 3, 4, 4, 5, 6)))
        remarks = draw.sample(kind.remarks, draw.choice((0, 0, 0, 1, 1, 2)))
        words = subject_words(self.title(index))
        sentences: list[tuple[str, Attribute | None, str]] = []
        used: set[str] = set()
        for attribute in attributes:
            value = self._value(draw, attribute.value)
            while value in used:  # each answer must occur at only one place on the page
                value = self._value(draw, attribute.value)
            used.add(value)
            # The sentence that opens a page names its subject; most others refer back to it.
            named, *leaning = attribute.statements
            statement = draw.choice([named, *leaning, *leaning]) if sentences else named
            sentences.append((statement.format(value=value, **words), attribute, value))
        for remark in remarks:
            place = draw.randint(1, len(sentences))
            sentences.insert(place, (remark.format(**words), None, ""))
        text, facts = "", []
        for sentence, stated, value in sentences:
            start = len(text) + bool(text)
            text = f"{text} {capitalised(sentence)}".lstrip()
            if stated is not None:
                facts.append(Fact(stated, value, start, len(text)))
        document = Document(f"{self.split}-{self.seed}-{index}", self.title(index), text)
        return Page(index, kind, document, tuple(facts))

    def question(self, index: int) -> WorldQuestion:
        """Returns question `index`, any number from 0; page, wording and distractors are drawn."""
        draw = self._draws("question", index)
        target = self.page(draw.randrange(self.size))
        fact = draw.choice(target.facts)
        text = draw.choice(fact.attribute.questions).format(name=target.document.title)
        pages = [target]
        sentences = _count_sentences(target)
        for _ in range(draw.randint(1, self.max_documents) - 1):
            distractor = self.page(self._distractor(draw, target))
            sentences += _count_sentences(distractor)
            if sentences <= self.max_sentences and distractor.index not in {p.index for p in pages}:
                pages.append(distractor)
        draw.shuffle(pages)
        name = f"{self.split}-{self.seed}-q{index}"
        return WorldQuestion(name, text, target, fact, tuple(pages))

    def rated_answer(self, index: int) -> WorldAnswer:
        """Returns an answer to question `index`: the good one, or one with a known fault.

        The possible faults are the right claim with a quote that doesn't state it, the claim and
        quote of another fact of the page, and a fact of another page.
        """
        question = self.question(index)
        draw = self._draws("answer", index)
        good = draw.random() < self.good_fraction
        return self._answer(question, draw, None if good else draw.choice(_RATED))

    def comparison(self, index: int, fault: AnswerFault | None = None) -> WorldComparison:
        """Returns the good answer to question `index` and one with a known fault, in either order.

        Raters prefer the good answer.

        Args:
          index: number of the question.
          fault: fault of the worse answer; None draws one by the weights of `COMPARED`.
        """
        question = self.question(index)
        draw = self._draws("comparison", index)
        (drawn,) = draw.choices(tuple(COMPARED), tuple(COMPARED.values()))
        fault = fault or drawn
        good, faulty = (self._answer(question, draw, each) for each in (None, fault))
        if draw.random() < 0.5:
            return WorldComparison(question.id, question, (faulty, good), 1.0, fault)
        return WorldComparison(question.id, question, (good, faulty), 0.0, fault)

    def _answer(
        self, question: WorldQuestion, draw: random.Random, fault: AnswerFault | None
    ) -> WorldAnswer:
        target, fact = question.target, question.fact
        page, claim, quote = target, fact.value, target.sentence(fact)
        if fault == "claim":
            claim = self._other_value(question, draw)
        elif fault == "slip":
            claim = _slip(claim, draw) or self._other_value(question, draw)
        elif fault == "garble":
            claim = _garbled(claim, self._other_value(question, draw), draw)
        elif fault == "mixed":
            stated, quoted = draw.sample([other for other in target.facts if other is not fact], 2)
            claim, quote = stated.value, target.sentence(quoted)
        elif fault == "alike":
            other_facts = [other for other in target.facts if other is not fact]
            alike = [
                o for o in other_facts if _form(o.attribute.value) == _form(fact.attribute.value)
            ]
            stated = draw.choice(alike or other_facts)
            claim, quote = stated.value, target.sentence(stated)
        elif fault == "sentence":
            sentences = re.findall(r"[^ .][^.]*\.", target.document.text)
            quote = draw.choice([other for other in sentences if other != quote])
        elif fault == "cut":
            quote = quote[: draw.randrange(len(quote) // 3, len(quote))].rstrip()
        elif fault == "page" and len(question.pages) > 1:
            page = draw.choice([other for other in question.pages if other is not target])
            same = [f for f in page.facts if f.attribute.key == fact.attribute.key]
            stated = draw.choice(same or page.facts)
            claim, quote = stated.value, page.sentence(stated)
        elif fault is not None:
            stated = draw.choice([other for other in target.facts if other is not fact])
            claim, quote = claim if fault == "quote" else stated.value, target.sentence(stated)
        plausible, supported = judge(question, claim, page, quote)
        return WorldAnswer(question.id, question, claim, page, quote, plausible, supported)

    def _other_value(self, question: WorldQuestion, draw: random.Random) -> str:
        """A wrong value of the requested kind: from a page shown, or from none."""
        true, kind = question.fact.value, question.fact.attribute.value
        shown = [f.value for p in question.pages for f in p.facts if f.attribute.value == kind]
        wrong = [value for value in shown if value != true]
        value = draw.choice(wrong) if wrong and draw.random() < 0.5 else true
        while value == true:
            value = self._value(draw, kind)
        return value

    def _draws(self, purpose: str, index: int) -> random.Random:
        return random.Random(f"{self.seed}/{self.split}/{purpose}/{index}")

    def _page_of(self, draw: random.Random, kind: str) -> int:
        first = _KIND_INDEX[kind]
        return first + len(KINDS) * draw.randrange(
            (self.size - first + len(KINDS) - 1) // len(KINDS)
        )

    def _distractor(self, draw: random.Random, target: Page) -> int:
        # A page of the same kind states other values of the same attributes: only its title
        # distinguishes it from the target.
        if draw.random() < 0.6:
            return self._page_of(draw, target.kind.key)
        return draw.randrange(self.size)

    def _value(self, draw: random.Random, kind: ValueType) -> str:
        if kind in NUMBERS:
            unit, least, most = NUMBERS[kind]
            return f"{draw.randint(least, most)}{unit}"
        if kind in WORDS:
            return draw.choice(WORDS[kind])
        if kind == "place":
            return names.name(self.split, draw.randrange(names.count(self.split)))
        return self.title(self._page_of(draw, kind))


def judge(question: WorldQuestion, claim: str, page: Page | None, quote: str) -> tuple[bool, bool]:
    """Returns whether an answer is plausible and whether it is supported (the paper's section 2.6).

    An answer is plausible if its claim is an answer of the requested kind, right or wrong: a value
    that one of the shown pages gives for such an attribute. It is supported if its claim is true,
    and its quote comes from the page that states it and contains the whole sentence.

    Args:
      question: the question.
      claim: the answer's claim.
      page: the page that the answer names, None if there is no such page.
      quote: the quoted text.
    """
    kind = question.fact.attribute.value
    values = {f.value for p in question.pages for f in p.facts if f.attribute.value == kind}
    sentence = question.target.sentence(question.fact)
    true = claim == question.fact.value
    supported = (
        true and page == question.target and sentence in quote and quote in page.document.text
    )
    return claim in values, supported


def _slip(value: str, draw: random.Random) -> str | None:
    """A value with a wrong digit, given name, or half of a name; None if it has no such part."""
    words = value.split()
    for place in draw.sample(range(len(words)), len(words)):
        word = words[place]
        if word.isdigit():
            digit = draw.randrange(len(word))
            other = draw.choice([each for each in "123456789" if each != word[digit]])
            wrong: str | None = word[:digit] + other + word[digit + 1 :]
        elif word in FEMALE_NAMES + MALE_NAMES:
            wrong = draw.choice([each for each in FEMALE_NAMES + MALE_NAMES if each != word])
        else:
            wrong = names.resembling(word, draw)
        if wrong is not None:
            return " ".join((*words[:place], wrong, *words[place + 1 :]))
    return None


def _garbled(value: str, other: str, draw: random.Random) -> str:
    """A value with a part missing, doubled, or taken from another value: a value of no kind."""
    while True:
        first, second = sorted(draw.sample(range(len(value) + 1), 2))
        part = draw.choice(
            (
                value[first:second],  # only a part
                value[:second] + value[first:],  # a part twice
                value[:first] + value[second:],  # a part missing
                other[: draw.randint(1, len(other))] + value[first:],  # another's beginning
            )
        ).strip()
        made = set(part.split()) - {*value.split(), *other.split()}
        is_name = any(map(names.split_of, made))  # possibly of another split
        if not is_name and normalize_answer(part) not in ("", normalize_answer(value)):
            return part


def _form(kind: ValueType) -> str:
    """The form of a kind's values: numbers, words from a list, or names."""
    if kind in NUMBERS:
        return "number"
    return "word" if kind in WORDS else "name"


def subject_words(title: str) -> dict[str, str]:
    """Returns the replacements for `{name}`, `{they}`, `{their}` … in the wording, by title."""
    female = title.split()[0] in FEMALE_NAMES
    they, their = ("she", "her") if female else ("he", "his")
    return {
        "name": title,
        "they": they,
        "their": their,
        "They": they.capitalize(),
        "Their": their.capitalize(),
    }


def capitalised(sentence: str) -> str:
    """Returns a sentence that begins with a capital."""
    return sentence[0].upper() + sentence[1:]


def _count_sentences(page: Page) -> int:
    return page.document.text.count(".")

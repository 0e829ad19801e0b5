"""What one line of a file of records is, once it has been read."""

import dataclasses
from typing import Any

from gophercite.documents import Document
from gophercite.evidence import Evidence


@dataclasses.dataclass(frozen=True)
class Hit:
    """A document by name only, with the search engine's snippet of it."""

    id: str
    snippet: str


@dataclasses.dataclass(frozen=True)
class FoundDocument(Document):
    """A page with the snippet that the search engine showed of it for this question."""

    snippet: str | None = None


@dataclasses.dataclass(frozen=True)
class Span:
    """Gold evidence: `text[start:end]` of the document with this id, in code points."""

    document: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with the documents found for it, in rank order.

    Attributes:
      id: names the question within its file.
      question: the text of the question.
      source: the data set it is from.
      documents: whole pages, or hits whose pages are elsewhere.
      answers: what is accepted as an answer, where that is known.
      evidence: where the documents prove it, where that is known.
      incorrect_answers: what is known to be wrong, such as TruthfulQA's misconceptions.
    """

    id: str
    question: str
    source: str
    documents: tuple[Document | Hit, ...]
    answers: tuple[str, ...] = ()
    evidence: tuple[Span, ...] = ()
    incorrect_answers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class RatedAnswer:
    """An answer with its evidence, and what people thought of it (section 2.6).

    Attributes:
      question_id: the question it answers.
      question: the text of that question.
      documents: what the model, or the person, was shown.
      claim, title, quote: the inline evidence.
      document: id of the document that is quoted.
      plausible: whether it is a reasonable on-topic answer; None when not rated.
      supported: whether the quote proves the claim; None when not rated.
      ratings: the single judgements, each with the rater's name.
      model: who answered.
    """

    question_id: str
    question: str
    documents: tuple[Document | Hit, ...]
    claim: str
    title: str
    quote: str
    document: str
    plausible: bool | None = None
    supported: bool | None = None
    ratings: tuple[dict[str, Any], ...] = ()
    model: str | None = None


@dataclasses.dataclass(frozen=True)
class Extract:
    """A numbered reference of a long answer, as far as a judge reads it.

    Attributes:
      title: of the page, without its domain.
      extract: the page's own words.
      domain: the host of the page's address; empty where there is none.
      url: that address.
    """

    title: str
    extract: str
    domain: str = ""
    url: str | None = None


@dataclasses.dataclass(frozen=True)
class LongAnswer:
    """An answer that cites its references by number, as WebGPT's do.

    Attributes:
      answer: its text.
      references: `[1]`, `[2]` and so on, in this order.
    """

    answer: str
    references: tuple[Extract, ...]


Response = tuple[Evidence, ...] | LongAnswer | str


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two answers to one question, and which of them people prefer (sections 2.6 and 2.8).

    Attributes:
      id: names the comparison within its file.
      question: the text of the question.
      source: the data set it is from.
      responses: claims with their evidence, answers with numbered references, or the text of an
        answer that has another form.
      preferred: the probability that the second is better: 0, 1, or 0.5 for a tie; None when the
        raters were unsure.
      supported_and_plausible: whether each response is both; None where that was not rated.
      ratings: the single judgements, each with the rater's name.
    """

    id: str
    question: str
    source: str
    responses: tuple[Response, Response]
    preferred: float | None
    supported_and_plausible: tuple[bool | None, bool | None] = (None, None)
    ratings: tuple[dict[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Completion:
    """What a model should write behind a prompt, such as a command behind what a browser shows.

    Attributes:
      id: names the completion within its file.
      prompt: all that is read before, to the character.
      completion: what is written; an end of sequence follows it.
    """

    id: str
    prompt: str
    completion: str


Record = Document | Question | RatedAnswer | Comparison | Completion

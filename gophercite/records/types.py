"""The types of records: what one line of a file represents."""

import dataclasses
from typing import Any

from gophercite.documents import Document
from gophercite.evidence import Evidence


@dataclasses.dataclass(frozen=True)
class Hit:
    """A document given by id only, with the search engine's snippet."""

    id: str
    snippet: str


@dataclasses.dataclass(frozen=True)
class FoundDocument(Document):
    """A page with the snippet that the search engine showed for this question."""

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
      id: unique name of the question within its file.
      question: the text of the question.
      source: the data set it is from.
      documents: whole pages, or hits whose pages are stored elsewhere.
      answers: accepted answers, if known.
      evidence: where the documents prove the answer, if known.
      incorrect_answers: answers known to be wrong, such as TruthfulQA's misconceptions.
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
    """An answer with its evidence, and people's judgements of it (section 2.6).

    Attributes:
      question_id: the question it answers.
      question: the text of that question.
      documents: what the model, or the person, was shown.
      claim, title, quote: the inline evidence.
      document: id of the document that is quoted.
      plausible: whether it is a reasonable on-topic answer; None when not rated.
      supported: whether the quote proves the claim; None when not rated.
      ratings: the individual judgements, each with the rater's name.
      model: name of the model that answered.
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
    """A numbered reference of a long answer, with only the fields that a judge reads.

    Attributes:
      title: the page's title, without its domain.
      extract: the page's own words.
      domain: the host of the page's address; empty if there is none.
      url: the page's address.
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
      id: unique name of the comparison within its file.
      question: the text of the question.
      source: the data set it is from.
      responses: claims with their evidence, answers with numbered references, or plain text for an
        answer in another form.
      preferred: the probability that the second is better: 0, 1, or 0.5 for a tie; None when the
        raters were unsure.
      supported_and_plausible: whether each response is both; None where that was not rated.
      ratings: the individual judgements, each with the rater's name.
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
    """What a model should write after a prompt, such as a command after a browser observation.

    Attributes:
      id: unique name of the completion within its file.
      prompt: the exact text that is read.
      completion: the text to write; an end of sequence follows it.
    """

    id: str
    prompt: str
    completion: str


Record = Document | Question | RatedAnswer | Comparison | Completion

"""An answer with its proof, for people and programs: what is claimed, and where it can be checked.

Each claim comes with a citation: the quote, the page that it is from, and the quote's place in that
page's text. Who has the page can check it without trusting us: the SHA-256 says whether it is the
same text, and `text[start:end]` is the quote; of a quote that leaves words out, each run of it has
such a span. `docs/ask.md` lists the fields of the JSON form.
"""

import collections
import dataclasses
import os
from typing import Any

from gophercite import evidence
from gophercite.documents import Document, normalise_text
from gophercite.evidence import Evidence
from gophercite.storage.json_fields import JsonFields
from gophercite.storage.json_lines import read_one


@dataclasses.dataclass(frozen=True)
class Citation:
    """A claim, and where its proof stands.

    Attributes:
      claim: what is said.
      title: of the page.
      quote: a run of the page's text, or several, joined by ` [...] ` where words are left out.
      document: the page's id where it was found.
      url: the page's address, where it has one.
      retrieved_at: when the page was fetched, in ISO 8601.
      sha256: of the page's normalised text, in UTF-8 (`Document.sha256`).
      spans: where the runs stand: each is `text[start:end]` of that text, in code points.
      pages: of a PDF, the numbers of the pages that the quote is on, from 1 on.
    """

    claim: str
    title: str
    quote: str
    document: str
    url: str | None
    retrieved_at: str | None
    sha256: str
    spans: tuple[tuple[int, int], ...]
    pages: tuple[int, ...] = ()

    @property
    def runs(self) -> tuple[str, ...]:
        """The quote's runs, as many as spans; one where no words are left out."""
        return tuple(evidence.runs_of(self.quote, len(self.spans) - 1))

    @property
    def start(self) -> int | None:
        """Where the quote begins in the text; None where words are left out of it."""
        return self.spans[0][0] if len(self.spans) == 1 else None

    @property
    def end(self) -> int | None:
        """Where the quote ends in the text; None where words are left out of it."""
        return self.spans[0][1] if len(self.spans) == 1 else None


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A page that was found and is not shown to the model, and why."""

    document: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Sample:
    """One of the answers that a model gave.

    Attributes:
      citations: what it says.
      text: the raw text.
      score: by which the best was chosen.
      likelihood: log-probability of the text under the model, in nats.
      constrained_likelihood: the same among the tokens that the quote constraint allowed, which is
        what it was drawn from at temperature 1.
      tokens: how many the text has, its end included.
      reward: the reward model's, where there is one.
      supported_and_plausible: the probability that raters find it both, by the reward model.
    """

    citations: tuple[Citation, ...]
    text: str
    score: float
    likelihood: float
    constrained_likelihood: float
    tokens: int
    reward: float | None = None
    supported_and_plausible: float | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """What is answered to a question, or why nothing is.

    Attributes:
      question: what was asked.
      model: who answers.
      is_baseline: whether that is a rule and no model.
      citations: the claims with their proofs; empty when the answer is declined.
      reason: why it is declined; None when it is not.
      text: the raw text in the syntax of inline evidence.
      score: how good the answer is held to be; of an answer that is declined for it, the score of
        the one that is not given.
      scored_by: what that score is.
      likelihood: log-probability of the text under the model, in nats.
      reward_model: by whose reward the answer was chosen; None where there was none.
      supported_and_plausible: the probability that raters find it both, by the reward model.
      threshold: what a score had to exceed, where answers below it are declined.
      left_out: pages that were found and could not be used.
      warnings: why the answer may be worth little, in sentences for people.
      samples: all answers that were sampled, in their order, where they were asked for.
    """

    question: str
    model: str
    is_baseline: bool = False
    citations: tuple[Citation, ...] = ()
    reason: str | None = None
    text: str = ""
    score: float | None = None
    scored_by: str | None = None
    likelihood: float | None = None
    reward_model: str | None = None
    supported_and_plausible: float | None = None
    threshold: float | None = None
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.citations) == (self.reason is not None):
            raise ValueError("an answer has citations, or a reason why it is declined")

    @property
    def declined(self) -> bool:
        """Whether no answer is given."""
        return self.reason is not None


def cite(triple: Evidence, document: Document, *starts: int) -> Citation:
    """Returns the citation of a quote in a page.

    Args:
      triple: claim, title and quote.
      document: the page.
      starts: where the quote begins in the page's text; where it leaves words out, where each run
        of it does.

    Raises:
      ValueError: when it does not stand there.
    """
    runs = evidence.runs_of(triple.quote, len(starts) - 1)
    if len(runs) != len(starts):
        raise ValueError(f"the quote has {len(runs)} runs, and {len(starts)} places")
    spans = tuple((start, start + len(run)) for start, run in zip(starts, runs, strict=True))
    for (start, end), run in zip(spans, runs, strict=True):
        if document.text[start:end] != run:
            raise ValueError(f"the quote is not at {start}:{end} of document {document.id!r}")
    return Citation(
        claim=normalise_text(triple.claim),
        title=document.title,
        quote=triple.quote,
        document=document.id,
        url=document.url or None,
        retrieved_at=document.retrieved_at or None,
        sha256=document.sha256,
        spans=spans,
        pages=tuple(sorted({page for span in spans for page in document.pages_of(*span)})),
    )


def page_numbers(pages: tuple[int, ...]) -> str:
    """Returns the numbers of PDF pages as people write them: `page 3`, `pages 3–4, 7`."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][-1] + 1:
            runs[-1].append(page)
        else:
            runs.append([page])
    numbers = (f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"page{'s' if len(pages) > 1 else ''} {', '.join(numbers)}"


# --- JSON ---


def answer_to_json(answer: Answer) -> dict[str, Any]:
    """Returns the JSON object of an answer; `samples` only where there are any."""
    value: dict[str, Any] = {
        "question": answer.question,
        "answer": _citations_to_json(answer.citations),
        "declined": answer.declined,
        "reason": answer.reason,
        "score": answer.score,
        "scored_by": answer.scored_by,
        "likelihood": answer.likelihood,
        "reward_model": answer.reward_model,
        "supported_and_plausible": answer.supported_and_plausible,
        "threshold": answer.threshold,
        "text": answer.text,
        "model": answer.model,
        "baseline": answer.is_baseline,
        "left_out": [dataclasses.asdict(page) for page in answer.left_out],
        "warnings": list(answer.warnings),
    }
    if answer.samples:
        value["samples"] = [
            {
                "answer": _citations_to_json(sample.citations),
                "text": sample.text,
                "score": sample.score,
                "likelihood": sample.likelihood,
                "constrained_likelihood": sample.constrained_likelihood,
                "tokens": sample.tokens,
                "reward": sample.reward,
                "supported_and_plausible": sample.supported_and_plausible,
            }
            for sample in answer.samples
        ]
    return value


def answer_from_json(value: object) -> Answer:
    """Makes an answer of a decoded JSON object; fields that mean nothing here are passed over.

    That a quote stands where the object says is not looked at: see
    `gophercite.answering.verification`.

    Raises:
      RecordError: with the field, and what would be right.
    """
    fields = JsonFields(value, _ANSWER, collections.Counter())
    if "answer" not in fields:
        raise fields.error("answer", "is missing, and must be a list: is this an answer?")
    citations = _citations(fields)
    if fields.flag("declined") != (not citations):
        raise fields.error("declined", "must be true where there is no answer, and else false")
    return Answer(
        question=fields.text("question"),
        model=fields.text("model"),
        is_baseline=fields.flag("baseline") is True,
        citations=citations,
        reason=None if citations else fields.text("reason"),
        text=fields.text("text", empty=True, raw=True),
        score=fields.optional_number("score"),
        scored_by=fields.optional_text("scored_by"),
        likelihood=fields.optional_number("likelihood"),
        reward_model=fields.optional_text("reward_model"),
        supported_and_plausible=fields.optional_number("supported_and_plausible"),
        threshold=fields.optional_number("threshold"),
        left_out=tuple(
            LeftOut(page.text("document", empty=True), page.text("reason"))
            for page in fields.objects("left_out", _names(LeftOut))
        ),
        warnings=fields.texts("warnings"),
        samples=tuple(_sample(sample) for sample in fields.objects("samples", _SAMPLE)),
    )


def read_answer(path: str | os.PathLike[str]) -> Answer:
    """Reads the answer that a file holds as JSON.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when it holds something else, with the file and the field.
    """
    return read_one(path, answer_from_json)


def _names(kind: type) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


_CITATION = _names(Citation) | {"start", "end", "status"}
_SAMPLE = _names(Sample) - {"citations"} | {"answer"}
_ANSWER = _names(Answer) - {"citations", "is_baseline"} | {"answer", "declined", "baseline"}


def _citations_to_json(citations: tuple[Citation, ...]) -> list[dict[str, Any]]:
    return [_citation_to_json(citation) for citation in citations]


def _citation_to_json(citation: Citation) -> dict[str, Any]:
    value = dataclasses.asdict(citation)
    del value["spans"]
    return value | {
        "start": citation.start,
        "end": citation.end,
        "spans": [{"start": start, "end": end} for start, end in citation.spans],
        "pages": list(citation.pages),
        "status": "exact",  # whoever made a citation had the page at hand (`cite`)
    }


def _citations(parent: JsonFields) -> tuple[Citation, ...]:
    return tuple(_citation(fields) for fields in parent.objects("answer", _CITATION))


def _citation(fields: JsonFields) -> Citation:
    quote = fields.text("quote")
    return Citation(
        claim=fields.text("claim"),
        title=fields.text("title", empty=True),
        quote=quote,
        document=fields.text("document", empty=True),
        url=fields.optional_text("url"),
        retrieved_at=fields.optional_text("retrieved_at"),
        sha256=fields.text("sha256"),
        spans=_spans(fields, quote),
        pages=fields.integers("pages"),
    )


def _spans(fields: JsonFields, quote: str) -> tuple[tuple[int, int], ...]:
    """The places of a quote's runs: of one `start` and `end` say it, of several `spans`."""
    parts = list(fields.objects("spans", ("start", "end")))
    if len(parts) > 1:
        runs = evidence.runs_of(quote, len(parts) - 1)
        if len(runs) != len(parts):
            raise fields.error(
                "spans", f"has {len(parts)} places, and the quote's runs are {len(runs)}"
            )
        for name in ("start", "end"):
            if name in fields:
                raise fields.error(name, "must be null where the quote leaves words out")
        return tuple(_span(part, run) for part, run in zip(parts, runs, strict=True))
    span = _span(fields, quote)
    if parts and _span(parts[0], quote) != span:
        raise fields.error("spans", "must be the place that start and end give, or have several")
    return (span,)


def _span(fields: JsonFields, run: str) -> tuple[int, int]:
    start, end = fields.integer("start"), fields.integer("end")
    if not 0 <= start <= end == start + len(run):
        raise fields.error(
            "end", f"{start} and {end} are no place of a quote with {len(run)} characters"
        )
    return start, end


def _sample(fields: JsonFields) -> Sample:
    numbers: dict[str, float] = {}
    for name in ("score", "likelihood", "constrained_likelihood"):
        value = fields.optional_number(name)
        if value is None:
            raise fields.error(name, "is missing, and must be a number")
        numbers[name] = value
    return Sample(
        _citations(fields),
        fields.text("text", empty=True, raw=True),
        tokens=fields.integer("tokens"),
        reward=fields.optional_number("reward"),
        supported_and_plausible=fields.optional_number("supported_and_plausible"),
        **numbers,
    )

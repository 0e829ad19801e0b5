"""An answer with its proof, for people and programs: the claims, and where they can be checked.

Each claim comes with a citation: the quote, the page that it is from, and its place in the page's
text. Anybody with the page can check it without trusting us: the SHA-256 tells whether the text is
the same, and `text[start:end]` is the quote. If a quote leaves words out, each run of it has such a
span. `docs/ask.md` lists the fields of the JSON form.
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
      claim: the claim.
      title: the page's title.
      quote: a run of the page's text, or several, joined by ` [...] ` where words are left out.
      document: the page's id where it was found.
      url: the page's address, if it has one.
      retrieved_at: when the page was fetched, in ISO 8601.
      sha256: SHA-256 of the page's normalised text, in UTF-8 (`Document.sha256`).
      spans: places of the runs: each is `text[start:end]` of that text, in code points.
      pages: for a PDF, the numbers of the pages that the quote is on, from 1.
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
        """The quote's runs, one per span; a single one if no words are left out."""
        return tuple(evidence.runs_of(self.quote, len(self.spans) - 1))

    @property
    def start(self) -> int | None:
        """Where the quote begins in the text; None if it leaves words out."""
        return self.spans[0][0] if len(self.spans) == 1 else None

    @property
    def end(self) -> int | None:
        """Where the quote ends in the text; None if it leaves words out."""
        return self.spans[0][1] if len(self.spans) == 1 else None


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A page that was found but not shown to the model, and why."""

    document: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Sample:
    """One of the answers that a model sampled.

    Attributes:
      citations: its claims with their proofs.
      text: the raw text.
      score: the score by which the best sample was chosen.
      likelihood: log-probability of the text under the model, in nats.
      constrained_likelihood: the same, renormalised over the tokens that the quote constraint
        allowed: the distribution that it was sampled from at temperature 1.
      tokens: number of tokens in the text, including the end of sequence.
      reward: the reward model's score, if there is one.
      supported_and_plausible: the reward model's probability that raters find it both.
      consensus: how much all samples agree with it, and how sure the model is of it, from 0 to 1
        (`gophercite.decoding.consensus`); None if there is no other sample.
      quote_lacks_claim: whether its quote lacks its claim, though another quote could contain it;
        it is then chosen only if there is no other sample (`gophercite.decoding.claim_in_quote`).
    """

    citations: tuple[Citation, ...]
    text: str
    score: float
    likelihood: float
    constrained_likelihood: float
    tokens: int
    reward: float | None = None
    supported_and_plausible: float | None = None
    consensus: float | None = None
    quote_lacks_claim: bool = False


@dataclasses.dataclass(frozen=True)
class TrackRecord:
    """How many of the labelled answers that are about as sure as an answer are good.

    Attributes:
      good: how many of them are good.
      of: how many were looked at.
      questions: what their questions are about; None where that isn't known.
    """

    good: int
    of: int
    questions: str | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a question, or why there is none.

    Attributes:
      question: the question.
      model: name of the model.
      is_baseline: whether that is a rule instead of a model.
      citations: the claims with their proofs; empty when the answer is declined.
      reason: why it is declined; None when it is not.
      text: the raw text in the syntax of inline evidence.
      score: estimated quality of the answer; if it was declined for its score, the score of the
        answer that is withheld.
      scored_by: what that score is.
      likelihood: log-probability of the text under the model, in nats.
      consensus: how much all samples agree with it, and how sure the model is of it, from 0 to 1
        (`gophercite.decoding.consensus`); None if there was no other sample.
      reward_model: the reward model that chose the answer; None without one.
      supported_and_plausible: the reward model's probability that raters find it both.
      threshold: what a score had to exceed, if answers below it are declined.
      track_record: how good answers about as sure as this one were; None without a calibration.
      left_out: pages that were found but could not be used.
      warnings: why the answer may be unreliable, in sentences for the user.
      samples: all sampled answers in order, if they were requested.
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
    consensus: float | None = None
    reward_model: str | None = None
    supported_and_plausible: float | None = None
    threshold: float | None = None
    track_record: TrackRecord | None = None
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.citations) == (self.reason is not None):
            raise ValueError("an answer must have either citations or a reason why it was declined")

    @property
    def declined(self) -> bool:
        """Whether there is no answer."""
        return self.reason is not None


def cite(triple: Evidence, document: Document, *starts: int) -> Citation:
    """Returns the citation of a quote in a page.

    Args:
      triple: claim, title and quote.
      document: the page.
      starts: where the quote begins in the page's text; if it leaves words out, where each of its
        runs begins.

    Raises:
      ValueError: when it is not at this place.
    """
    runs = evidence.runs_of(triple.quote, len(starts) - 1)
    if len(runs) != len(starts):
        raise ValueError(f"the quote has {len(runs)} runs, but {len(starts)} places are given")
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
    """Returns the numbers of PDF pages in the usual form: `page 3`, `pages 3–4, 7`."""
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
    """Returns the JSON object of an answer; it has `samples` only if there are any."""
    value: dict[str, Any] = {
        "question": answer.question,
        "answer": _citations_to_json(answer.citations),
        "declined": answer.declined,
        "reason": answer.reason,
        "score": answer.score,
        "scored_by": answer.scored_by,
        "likelihood": answer.likelihood,
        "consensus": answer.consensus,
        "reward_model": answer.reward_model,
        "supported_and_plausible": answer.supported_and_plausible,
        "threshold": answer.threshold,
        "track_record": answer.track_record and dataclasses.asdict(answer.track_record),
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
                "consensus": sample.consensus,
                "quote_lacks_claim": sample.quote_lacks_claim,
            }
            for sample in answer.samples
        ]
    return value


def answer_from_json(value: object) -> Answer:
    """Parses an answer from a decoded JSON object; unknown fields are ignored.

    It does not check that quotes stand where the object says: see
    `gophercite.answering.verification`.

    Raises:
      RecordError: names the field, and what would be right.
    """
    fields = JsonFields(value, _ANSWER, collections.Counter())
    if "answer" not in fields:
        raise fields.error("answer", "is missing: expected a list; is this an answer?")
    citations = _citations(fields)
    if fields.flag("declined") != (not citations):
        raise fields.error("declined", "must be true if there is no answer, otherwise false")
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
        consensus=fields.optional_number("consensus"),
        reward_model=fields.optional_text("reward_model"),
        supported_and_plausible=fields.optional_number("supported_and_plausible"),
        threshold=fields.optional_number("threshold"),
        track_record=_track_record(fields),
        left_out=tuple(
            LeftOut(page.text("document", empty=True), page.text("reason"))
            for page in fields.objects("left_out", _names(LeftOut))
        ),
        warnings=fields.texts("warnings"),
        samples=tuple(_sample(sample) for sample in fields.objects("samples", _SAMPLE)),
    )


def _track_record(fields: JsonFields) -> TrackRecord | None:
    record = fields.optional_object("track_record", _names(TrackRecord))
    if record is None:
        return None
    return TrackRecord(
        record.integer("good"), record.integer("of"), record.optional_text("questions")
    )


def read_answer(path: str | os.PathLike[str]) -> Answer:
    """Reads an answer from a JSON file.

    Raises:
      FileNotFoundError: when there is no such file.
      RecordError: when it holds something else; names the file and the field.
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
        "status": "exact",  # the page was available when the citation was created (`cite`)
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
    """The spans of a quote's runs: from `start` and `end` for one run, from `spans` for several."""
    parts = list(fields.objects("spans", ("start", "end")))
    if len(parts) > 1:
        runs = evidence.runs_of(quote, len(parts) - 1)
        if len(runs) != len(parts):
            raise fields.error(
                "spans", f"has {len(parts)} places, but the quote has {len(runs)} runs"
            )
        if not all(run.strip() for run in runs):
            raise fields.error("quote", "has no words before or after an omission")
        for name in ("start", "end"):
            if name in fields:
                raise fields.error(name, "must be null where the quote leaves words out")
        return tuple(_span(part, run) for part, run in zip(parts, runs, strict=True))
    span = _span(fields, quote)
    if parts and _span(parts[0], quote) != span:
        raise fields.error(
            "spans", "must be the place given by start and end, or a list of several places"
        )
    return (span,)


def _span(fields: JsonFields, run: str) -> tuple[int, int]:
    start, end = fields.integer("start"), fields.integer("end")
    if not 0 <= start <= end == start + len(run):
        raise fields.error(
            "end", f"{start} and {end} can't be the place of a quote with {len(run)} characters"
        )
    return start, end


def _sample(fields: JsonFields) -> Sample:
    numbers: dict[str, float] = {}
    for name in ("score", "likelihood", "constrained_likelihood"):
        value = fields.optional_number(name)
        if value is None:
            raise fields.error(name, "is missing: expected a number")
        numbers[name] = value
    return Sample(
        _citations(fields),
        fields.text("text", empty=True, raw=True),
        tokens=fields.integer("tokens"),
        reward=fields.optional_number("reward"),
        supported_and_plausible=fields.optional_number("supported_and_plausible"),
        consensus=fields.optional_number("consensus"),
        quote_lacks_claim=fields.flag("quote_lacks_claim") is True,
        **numbers,
    )

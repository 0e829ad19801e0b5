"""What the pages of `viewer` show of each record: answers, evidence, human and model judgements.

There are five kinds of records: rated answers, comparisons, the output of `gophercite ask --json`
and `launch/infer.py`, the lines of `launch/eval.py`, and episodes. Pages that a record doesn't
contain are looked up among the pages that are given separately.
"""

import collections
import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gophercite import evidence, records
from gophercite.browser.episode_pages import episode_html
from gophercite.browser.episodes import Episode, episode_from_json
from gophercite.browser.state import Reference
from gophercite.documents import Document
from gophercite.evidence import Evidence, SyntaxFault
from gophercite.html.escaping import escape_html
from gophercite.html.marked_pages import Mark, about, source
from gophercite.records import Comparison, LongAnswer, RatedAnswer, Response
from gophercite.records.answers import Answer, Citation, answer_from_json
from gophercite.storage.json_fields import JsonFields, RecordError

_VERDICTS = ("well_formed", "verbatim", "claim_correct", "quote_contains_answer", "supported")
_SCORES = ("reward", "supported_and_plausible", "consensus", "evidence_score", "log_prob")
_LINE = frozenset({"question_id", "question", "document", "text", "model", "declined", "reason"})
_PASSED_OVER = frozenset({"answer", "tokens", "faults", "seed", "log_prob_constrained"} | {
    "claim_f1", "claim_rouge_l", "evidence_precision", "evidence_recall"
})  # fmt: skip
_NAMES = {  # names of numbers on the pages
    "supported_and_plausible": "probability supported and plausible",
    "evidence_score": "evidence score",
    "log_prob": "log-probability",
}


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of `launch/eval.py`: an answer, or a declined question.

    Attributes:
      question: its text.
      text: the raw answer; empty if there is none.
      document: id of the page that was shown; None for several.
      labels: what is known about it, and the model's name.
      scores: by their names in the file, such as `reward`.
      reason: why it was declined.
    """

    question: str
    text: str
    document: str | None
    labels: dict[str, str]
    scores: dict[str, float]
    reason: str | None


Shown = RatedAnswer | Comparison | Answer | Line | Episode


@dataclasses.dataclass(frozen=True)
class Entry:
    """An answer, or a pair of them.

    Attributes:
      question, answer: the texts shown in lists.
      labels: by name, judgements by raters or checks: `yes`, `no`, or another label.
      numbers: by name, such as `reward`: lists can be sorted by these.
      html: the complete entry.
    """

    question: str
    answer: str
    labels: dict[str, str]
    numbers: dict[str, float]
    html: str


class Pages:
    """Pages to mark evidence in, for records that don't contain theirs.

    Args:
      documents: the pages.
    """

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._by_key: dict[tuple[str, str], Document] = {}
        self._by_title: dict[str, list[Document]] = {}
        for each in documents:
            self._by_key.setdefault(("id", each.id), each)
            self._by_key.setdefault(("sha256", each.sha256), each)
            self._by_title.setdefault(each.title, []).append(each)

    def of_citation(self, citation: Citation) -> Document | None:
        """Returns the exact page that a citation's offsets refer to."""
        return self._by_key.get(("sha256", citation.sha256))

    def of_reference(self, reference: Reference) -> Document | None:
        """Returns the exact page that an episode's reference points into."""
        return self._by_key.get(("sha256", reference.sha256))

    def of_triple(self, triple: Evidence, id: str | None) -> Document | None:
        """Returns the page with this id, else one with this title that contains the quote."""
        given = None if id is None else self._by_key.get(("id", id))
        if given is not None:
            return given
        titled = self._by_title.get(triple.title, ())
        return next((each for each in titled if _place(triple, each) is not None), None)


def parse(value: object, unknown: collections.Counter[str]) -> Shown:
    """Parses a line's JSON into a record of any of the five kinds.

    Args:
      value: the JSON.
      unknown: counts the unknown fields.

    Raises:
      RecordError: it is none of these kinds, or one of its fields is bad.
    """
    if not isinstance(value, dict):
        raise RecordError("expected an object")
    if "responses" in value:
        return records.from_json(value, Comparison, unknown)
    if "claim" in value:
        return records.from_json(value, RatedAnswer, unknown)
    if "steps" in value:
        return episode_from_json(value, unknown)
    if isinstance(value.get("answer"), list):
        return answer_from_json(value)
    if "text" in value or "declined" in value:
        return _line(value, unknown)
    raise RecordError(
        "is neither a rated answer (`claim`), nor a comparison (`responses`), nor an episode "
        "(`steps`), nor what `gophercite ask --json` prints (`answer`), nor a line of an "
        "evaluation (`text`)"
    )


@functools.singledispatch
def entry_of(record: object, pages: Pages) -> Entry:
    """Returns what is shown of a record.

    Raises:
      TypeError: the record is of none of the five kinds.
    """
    raise TypeError(f"{type(record).__name__} is not shown")


@entry_of.register
def _(record: RatedAnswer, pages: Pages) -> Entry:
    triple = Evidence(record.claim, record.title, record.quote)
    quoted = next((d for d in record.documents if d.id == record.document), None)
    labels = {"model": record.model or "unnamed"}
    judged = {"plausible": record.plausible, "supported": record.supported}
    labels |= {name: _yes(value) for name, value in judged.items() if value is not None}
    page = quoted if isinstance(quoted, Document) else pages.of_triple(triple, record.document)
    shown = _claim(triple, page)
    html = f"{_question(record.question)}{shown}{_said(labels, record.ratings)}"
    return Entry(record.question, record.claim, labels, {}, html)


@entry_of.register
def _(record: Comparison, pages: Pages) -> Entry:
    words = {0.0: "first", 0.5: "tie", 1.0: "second", None: "undecided"}
    labels = {"preferred": words.get(record.preferred, str(record.preferred))}
    for name, verdict in zip(("first", "second"), record.supported_and_plausible, strict=True):
        if verdict is not None:
            labels[f"{name} supported and plausible"] = _yes(verdict)
    sides = "".join(
        f'<p class="about">{name}</p>\n{_response(response, pages)}'
        for name, response in zip(("First answer", "Second answer"), record.responses, strict=True)
    )
    html = f"{_question(record.question)}{sides}{_said(labels, record.ratings)}"
    brief = " / ".join(_brief(response) for response in record.responses)
    return Entry(record.question, brief, labels, {}, html)


@entry_of.register
def _(record: Answer, pages: Pages) -> Entry:
    labels = {"model": record.model, "declined": _yes(record.declined)}
    numbers = {
        record.scored_by or "score": record.score,
        _NAMES["supported_and_plausible"]: record.supported_and_plausible,
        _NAMES["log_prob"]: record.likelihood,
    }
    known = {name: number for name, number in numbers.items() if number is not None}
    shown = "".join(_citation(each, pages) for each in record.citations)
    if record.reason is not None:
        shown = f'<p class="claim">Declined: {escape_html(record.reason)}</p>\n'
    samples = sorted(record.samples, key=lambda sample: -_first(sample.reward, sample.score))
    lines = "".join(
        f"<li>{escape_html(_numbers({'reward': _first(each.reward, each.score)}))}: "
        f"{escape_html(' '.join(c.claim for c in each.citations) or each.text)}</li>"
        for each in samples
    )
    more = f"<details><summary>All samples</summary><ol>{lines}</ol></details>\n" if lines else ""
    html = f"{_question(record.question)}{shown}{_said(labels, (), known)}{more}"
    brief = " ".join(each.claim for each in record.citations) or f"declined: {record.reason}"
    return Entry(record.question, brief[:200], labels, known, html)


@entry_of.register
def _(record: Line, pages: Pages) -> Entry:
    numbers = {_NAMES.get(name, name): number for name, number in record.scores.items()}
    try:
        triples = evidence.parse(record.text)
    except SyntaxFault:
        triples = ()
    shown = "".join(_claim(each, pages.of_triple(each, record.document)) for each in triples)
    brief = " ".join(each.claim for each in triples) or record.text.strip()
    if record.reason is not None:
        brief = f"declined: {record.reason}"
    shown = shown or f'<p class="claim" dir="auto">{escape_html(brief)}</p>\n'
    html = f"{_question(record.question)}{shown}{_said(record.labels, (), numbers)}"
    return Entry(record.question, brief[:200], record.labels, numbers, html)


@entry_of.register
def _(record: Episode, pages: Pages) -> Entry:
    end = record.end
    labels = {"by": record.by, "end": str(end.end)}
    judged = {"right": record.right, "supported": record.supported}
    labels |= {name: _yes(value) for name, value in judged.items() if value is not None}
    numbers = {"actions": float(sum(1 for _ in record.steps) - (end.answer is not None))}
    if record.reward is not None:
        numbers = {"reward": record.reward, **numbers}
    question = record.start.question
    html = f"{_question(question)}{episode_html(record, pages.of_reference)}"
    brief = end.answer or f"({end.end})"
    return Entry(question, brief[:200], labels, numbers, html)


def _line(value: Mapping[str, Any], unknown: collections.Counter[str]) -> Line:
    fields = JsonFields(value, _LINE | _PASSED_OVER | {*_VERDICTS, *_SCORES}, unknown)
    declined = fields.flag("declined") is True
    verdicts = {name: fields.flag(name) for name in _VERDICTS}
    labels = {"model": fields.optional_text("model") or "unnamed", "declined": _yes(declined)}
    scores = {name: fields.optional_number(name) for name in _SCORES}
    return Line(
        fields.text("question"),
        "" if declined else fields.text("text", empty=True, raw=True),
        fields.optional_text("document"),
        labels | {n.replace("_", " "): _yes(v) for n, v in verdicts.items() if v is not None},
        {name: score for name, score in scores.items() if score is not None},
        fields.text("reason") if declined else None,
    )


# --- HTML ---


def _question(question: str) -> str:
    return f'<h2 dir="auto">{escape_html(question)}</h2>\n'


def _response(response: Response, pages: Pages) -> str:
    if isinstance(response, str):
        return f'<p class="claim" dir="auto">{escape_html(response)}</p>\n'
    if isinstance(response, LongAnswer):
        references = "".join(
            f"<li>{escape_html(each.title)}\n"
            f"<blockquote>{escape_html(each.extract)}</blockquote></li>\n"
            for each in response.references
        )
        return f'<p dir="auto">{escape_html(response.answer)}</p>\n<ol>{references}</ol>\n'
    return "".join(_claim(triple, pages.of_triple(triple, None)) for triple in response)


def _brief(response: Response) -> str:
    if isinstance(response, str):
        return response[:200]
    if isinstance(response, LongAnswer):
        return response.answer[:200]
    return " ".join(triple.claim for triple in response)[:200]


def _place(triple: Evidence, page: Document) -> int | None:
    """Where a quote begins in a page."""
    start = evidence.fold_case(page.text).find(evidence.fold_case(triple.quote))
    return start if triple.quote and start >= 0 else None


def _claim(triple: Evidence, page: Document | None) -> str:
    claim = f'<p class="claim" dir="auto">{escape_html(triple.claim)}</p>\n'
    start = None if page is None else _place(triple, page)
    if page is not None and start is not None:
        marks = [Mark(start, start + len(triple.quote))]
        return claim + source(page, marks, "the quote is here, word for word")
    quote = f'<blockquote dir="auto">{escape_html(triple.quote)}</blockquote>\n'
    title = f'<p class="title" dir="auto">{escape_html(triple.title)}</p>\n'
    return f'{claim}<section class="source">{title}{quote}</section>\n'


def _citation(citation: Citation, pages: Pages) -> str:
    page = pages.of_citation(citation)
    if page is None or any(end > len(page.text) for _, end in citation.spans):
        return _claim(Evidence(citation.claim, citation.title, citation.quote), None)
    claim = f'<p class="claim" dir="auto">{escape_html(citation.claim)}</p>\n'
    marks = [Mark(*span) for span in citation.spans]
    return claim + source(page, marks, "the quote is here, word for word")


def _said(
    labels: Mapping[str, str],
    ratings: Iterable[Mapping[str, Any]],
    numbers: Mapping[str, float] | None = None,
) -> str:
    parts = [escape_html(_numbers({name: number})) for name, number in (numbers or {}).items()]
    parts += [f"{escape_html(name)}: {escape_html(value)}" for name, value in labels.items()]
    lines = "".join(f"<li>{'; '.join(_rating(each))}</li>" for each in ratings)
    listed = f"<details><summary>Ratings</summary><ul>{lines}</ul></details>\n" if lines else ""
    return about(*parts) + listed


def _rating(rating: Mapping[str, Any]) -> Iterator[str]:
    for name, value in rating.items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        yield f"{escape_html(str(name))}: {escape_html(shown)}"


def _numbers(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {number:.3g}" for name, number in numbers.items())


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _first(reward: float | None, score: float) -> float:
    return score if reward is None else reward

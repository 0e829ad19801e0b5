"""Chooses which samples of a few-shot prompted model become training data (sections 2.5 and H).

The paper asks people. If the answer or the evidence of a question is known, ROUGE-L is nearly as
good, and free: it chooses among the samples, and a threshold on it replaces people's verdict.
"""

import collections
import dataclasses
from collections.abc import Sequence

from gophercite import evidence, records
from gophercite.documents import Document
from gophercite.evidence import SyntaxFault
from gophercite.few_shot.evidence_search import find_evidence
from gophercite.few_shot.prompting import Style, first_answer
from gophercite.few_shot.splices import restore
from gophercite.records import Question, RatedAnswer
from gophercite.text.counting import counted
from gophercite.text.rouge import rouge_l

RATER = "ROUGE-L"


@dataclasses.dataclass(frozen=True)
class BootstrapSettings:
    """How samples are read and judged.

    Attributes:
      style: style of the prompts: inline evidence, or claims alone.
      plausible: minimum ROUGE-L of a plausible claim against an accepted answer.
      supported: minimum ROUGE-L of a supporting quote against the gold evidence.
    """

    style: Style
    plausible: float = 0.5
    supported: float = 0.5

    def __post_init__(self) -> None:
        for name in ("plausible", "supported"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: must be between 0 and 1")


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A model's output: the raw text, the page it was shown, and the model's name, if known."""

    text: str
    document: str | None = None
    model: str | None = None


@dataclasses.dataclass
class BootstrapReport:
    """Counts of what happened to the samples.

    Attributes:
      samples: number of samples.
      refused: number of samples that can't be used, by reason.
      questions: number of questions with at least one sample.
      kept: number of questions with a rated answer.
      rated_good: number of rated answers that are plausible and supported.
      unrated: number of rated answers that people still have to judge.
    """

    samples: int = 0
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    questions: int = 0
    kept: int = 0
    rated_good: int = 0
    unrated: int = 0

    def __str__(self) -> str:
        """One line for each count."""
        lines = [f"{counted(self.samples, 'sample')} of {counted(self.questions, 'question')}"]
        lines += [f"  {count} refused: {reason}" for reason, count in self.refused.most_common()]
        lines.append(
            f"{self.kept} questions have an answer: {self.rated_good} rated good, "
            f"{self.unrated} to be rated by people"
        )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Candidate:
    claim: str
    document: Document
    quote: str
    model: str | None


def best_answer(
    question: Question,
    samples: Sequence[Sampled],
    settings: BootstrapSettings,
    report: BootstrapReport,
) -> RatedAnswer | None:
    """Returns the sample that is most like the known answer, or None if no sample can be used.

    Claims are compared with the question's answers, and quotes with its gold evidence; the score is
    the mean of the comparisons that can be made. If neither answers nor evidence are known, the
    claim is compared with its own quote, as in the paper's baseline, and the verdict is left to
    people.

    Args:
      question: the question, with whole pages.
      samples: a model's samples for this question.
      settings: how they are judged.
      report: counts what happens to them.

    Returns:
      The sample as a rated answer.
    """
    candidates = []
    for sample in samples:
        found = _candidate(question, sample, settings.style)
        if isinstance(found, str):
            report.refused[found] += 1
        else:
            candidates.append(found)
    report.samples += len(samples)
    report.questions += bool(samples)
    rated = [_rated(question, candidate, settings) for candidate in candidates]
    if not rated:
        return None
    best = max(rated, key=lambda answer: answer.ratings[0]["score"])
    report.kept += 1
    report.rated_good += bool(best.plausible and best.supported)
    report.unrated += best.plausible is None or best.supported is None
    return records.from_json(records.to_json(best), RatedAnswer)


def _candidate(question: Question, sample: Sampled, style: Style) -> _Candidate | str:
    """Returns the answer of a sample, its quote verbatim, or why it has none."""
    pages = [page for page in question.documents if isinstance(page, Document)]
    text = first_answer(sample.text)
    if style is Style.LONG:
        if not text or evidence.holds_mark(text):
            return "no claim" if not text else "a reserved mark in the claim"
        shown = [page for page in pages if sample.document in (None, page.id)]
        found = find_evidence(text, shown)
        if found is None:
            return "no page to take the evidence from"
        return _Candidate(text, found.document, found.quote, sample.model)
    try:
        triples = evidence.parse(text)
    except SyntaxFault:
        return "malformed"
    if len(triples) > 1:
        return "several claims"
    (triple,) = triples
    if not triple.claim.strip():
        return "no claim"
    for page in pages:
        span = restore(triple.quote, page.text) if page.title == triple.title else None
        if span is not None:
            quote = page.text[slice(*span)]
            if len(quote) < evidence.MINIMUM_QUOTE_LENGTH:
                return "short quote"
            if evidence.holds_mark(quote):
                return "a reserved mark in a passage that the quote leaves out"
            return _Candidate(triple.claim, page, quote, sample.model)
    named = any(page.title == triple.title for page in pages)
    return "the quote is not in the page" if named else "no page with that title"


def _rated(question: Question, candidate: _Candidate, settings: BootstrapSettings) -> RatedAnswer:
    texts = {page.id: page.text for page in question.documents if isinstance(page, Document)}
    gold = [texts[s.document][s.start : s.end] for s in question.evidence if s.document in texts]
    claim = max((rouge_l(candidate.claim, answer) for answer in question.answers), default=None)
    quote = max((rouge_l(candidate.quote, span) for span in gold), default=None)
    scores = [score for score in (claim, quote) if score is not None]
    score = sum(scores) / len(scores) if scores else rouge_l(candidate.claim, candidate.quote)
    return RatedAnswer(
        question_id=question.id,
        question=question.question,
        documents=question.documents,
        claim=candidate.claim,
        title=candidate.document.title,
        quote=candidate.quote,
        document=candidate.document.id,
        plausible=None if claim is None else claim >= settings.plausible,
        supported=None if quote is None else quote >= settings.supported,
        ratings=({"rater": RATER, "score": score, "claim": claim, "quote": quote},),
        model=candidate.model,
    )

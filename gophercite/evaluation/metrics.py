"""What can be measured of an answer without people: its claim, and checks of its evidence."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evaluation.evidence_overlap import EvidenceOverlap, evidence_overlap
from gophercite.evidence import Evidence, Fault, SyntaxFault
from gophercite.records import Question, Span
from gophercite.text.answer_matching import contains_answer, exact_match, f1
from gophercite.text.rouge import rouge_l
from gophercite.text.sentences import sentence_spans

ClaimRule = Literal["equal", "contain"]


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What is known about one answer without human judgement.

    If an answer has several triples, their claims count together and each quote must be verbatim.

    Attributes:
      triples: the parsed answer; empty when malformed.
      faults: the faults of the bad-syntax penalty, checked against whole pages.
      well_formed: the text parses.
      verbatim: every quote occurs, exactly and not only up to case, in a document of its title.
      claim_correct: the claim equals an accepted answer after normalisation, or contains one if
        that is the rule.
      claim_f1: its best F1 against an accepted answer, in [0, 1].
      claim_rouge_l: its best ROUGE-L against one, in [0, 1].
      quote_contains_answer: a verbatim quote contains an accepted answer.
      supported: the claim is correct, and a verbatim quote proves it by the gold evidence: the
        record's best approximation of supported and plausible.
      overlap: overlap of the quotes with the gold evidence, in both directions.

    From `claim_correct` on, they are None if the question's record lacks the reference for them.
    """

    triples: tuple[Evidence, ...]
    faults: frozenset[Fault]
    well_formed: bool
    verbatim: bool
    claim_correct: bool | None
    claim_f1: float | None
    claim_rouge_l: float | None
    quote_contains_answer: bool | None
    supported: bool | None
    overlap: EvidenceOverlap | None

    @property
    def evidence_precision(self) -> float | None:
        """Share of the quotes' characters that are gold evidence."""
        return None if self.overlap is None else self.overlap.precision

    @property
    def evidence_recall(self) -> float | None:
        """Share of the gold evidence's characters that are quoted."""
        return None if self.overlap is None else self.overlap.recall


def judge(
    text: str, question: Question, maximum_omissions: int = 0, claims: ClaimRule = "equal"
) -> Judgement:
    """Judges the raw text of a sample against the question's pages, answers and gold evidence.

    Supported means: the claim is correct, and its quote is verbatim in the named document and there
    covers a gold span, or at least a sentence of the span that contains an accepted answer (gold
    spans may be whole paragraphs). Without accepted answers the claim cannot be checked, and the
    complete span must be covered.

    Args:
      text: what the model wrote, including evidence marks.
      question: the question that was asked; documents given by snippet only can't be checked and
        count as absent.
      maximum_omissions: maximum number of ` [...] ` in a quote; each run between them then counts
        as a quote (`evidence.faults`).
      claims: which claims are correct: those that equal an accepted answer, as in SQuAD's exact
        match, or all that contain one, which suits models that answer in full sentences.
    """
    pages = [source for source in question.documents if isinstance(source, Document)]
    try:
        triples = evidence.parse(text)
    except SyntaxFault:
        triples = ()
    claim = " ".join(triple.claim for triple in triples)
    quotes = [
        (run, _pages_with(triple.title, run, pages))
        for triple in triples
        for run in evidence.runs_of(triple.quote, maximum_omissions)
    ]
    verbatim = [(quote, holders) for quote, holders in quotes if holders]
    known = bool(question.answers)
    is_right = exact_match if claims == "equal" else contains_answer
    correct = bool(triples) and is_right(claim, question.answers)
    proven = any(_proves(quote, holders, question) for quote, holders in verbatim)
    return Judgement(
        triples=triples,
        faults=evidence.faults(text, pages, maximum_omissions=maximum_omissions),
        well_formed=bool(triples),
        verbatim=bool(triples) and len(verbatim) == len(quotes),
        claim_correct=correct if known else None,
        claim_f1=(f1(claim, question.answers) if triples else 0.0) if known else None,
        claim_rouge_l=max(rouge_l(claim, a) for a in question.answers) if known else None,
        quote_contains_answer=(
            any(contains_answer(quote, question.answers) for quote, _ in verbatim)
            if known
            else None
        ),
        supported=(proven and (correct or not known)) if question.evidence else None,
        overlap=evidence_overlap(quotes, question.evidence) if question.evidence else None,
    )


def _pages_with(title: str, quote: str, pages: Iterable[Document]) -> list[Document]:
    """Returns the pages with this title in which a quote occurs exactly."""
    if not quote.strip():
        return []
    return [page for page in pages if page.title == title and quote in page.text]


def _proves(quote: str, holders: Iterable[Document], question: Question) -> bool:
    for page in holders:
        needed = [
            part
            for span in question.evidence
            if span.document == page.id
            for part in _sufficient_parts(page.text, span, question.answers)
        ]
        start = page.text.find(quote) if needed else -1
        while start >= 0:
            if any(start <= begin and end <= start + len(quote) for begin, end in needed):
                return True
            start = page.text.find(quote, start + 1)
    return False


def _sufficient_parts(text: str, span: Span, answers: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the offsets of which a quote must cover one: the span, or an answering sentence."""
    sentences = [
        (span.start + start, span.start + end)
        for start, end in sentence_spans(text[span.start : span.end])
    ]
    whole = (sentences[0][0], sentences[-1][1]) if sentences else (span.start, span.end)
    return [whole, *(s for s in sentences if contains_answer(text[s[0] : s[1]], answers))]

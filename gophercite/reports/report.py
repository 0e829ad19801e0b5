"""Markdown and plain-text reports of judged answers."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.citations import CitationQuality
from gophercite.evaluation.intervals import Estimate, estimate
from gophercite.evaluation.metrics import Judgement
from gophercite.reports.tables import Table, on_one_line

# Fields of `Judgement` by their headings: those in every report …
_COLUMNS = {
    "well-formed %": "well_formed",
    "verbatim quote %": "verbatim",
    "claim correct %": "claim_correct",
    "claim F1 %": "claim_f1",
    "quote contains answer %": "quote_contains_answer",
    "supported %": "supported",
}
# … and those only in written reports.
_DETAILS = {
    "claim ROUGE-L %": "claim_rouge_l",
    "evidence precision %": "evidence_precision",
    "evidence recall %": "evidence_recall",
}
HEADINGS = _COLUMNS | _DETAILS
# The fields of `citation_fields`.
CITATION_HEADINGS = {
    "citation recall %": "citation_recall",
    "citation precision %": "citation_precision",
}


def summarise(judgements: Iterable[Judgement]) -> dict[str, Estimate]:
    """Returns the estimate of each field of `Judgement` that is known for some answers."""
    judgements = list(judgements)
    summary = {}
    for field in HEADINGS.values():
        values = [getattr(judgement, field) for judgement in judgements]
        known = [float(value) for value in values if value is not None]
        if known:
            summary[field] = estimate(known)
    return summary


def summarise_citations(
    citations: Iterable[CitationQuality | None],
) -> dict[str, Estimate]:
    """Returns the estimates of recall and precision, by the names of their fields in results.

    Args:
      citations: one for each answer; an answer without any counts as 0.
    """
    lines = [citation_fields(quality) for quality in citations]
    names = lines[0] if lines else ()
    return {name: estimate([line[name] for line in lines]) for name in names}


def citation_fields(quality: CitationQuality | None) -> dict[str, float]:
    """Returns the fields that a line of results has for its citations."""
    return {
        "citation_recall": 0.0 if quality is None else quality.recall,
        "citation_precision": 0.0 if quality is None else quality.precision,
    }


def metrics_table(systems: Mapping[str, Sequence[Judgement]]) -> Table:
    """Returns a table with a row for each system: percentages with 90 % intervals."""
    rows = []
    for name, judgements in systems.items():
        summary = summarise(judgements)
        cells = [str(summary[field]) if field in summary else "–" for field in _COLUMNS.values()]
        rows.append([name, str(len(judgements)), *cells])
    return Table(["system", "answers", *_COLUMNS], rows)


def details_table(
    systems: Mapping[str, Sequence[Judgement]],
    citations: Mapping[str, Sequence[CitationQuality | None]],
) -> Table:
    """Returns a similar table of how close claims and quotes are to the gold ones.

    Args:
      systems: judgements by name.
      citations: for some systems, in the order of their answers; an answer without any counts as 0.
    """
    measured = CITATION_HEADINGS if citations else {}
    rows = []
    for name, judgements in systems.items():
        summary = summarise(judgements)
        cells = [str(summary[field]) if field in summary else "–" for field in _DETAILS.values()]
        found = summarise_citations(citations.get(name, ()))
        cells += [str(found[field]) if field in found else "–" for field in measured.values()]
        rows.append([name, *cells])
    return Table(["system", *_DETAILS, *measured], rows)


def samples_table(samples: Iterable[JudgedSample]) -> Table:
    """Returns a table of answers: question, accepted answers, the answer itself, and its faults.

    The raw text of a malformed answer is shown in the claim column.
    """
    rows = []
    for sample in samples:
        faults = ", ".join(sorted(fault.value for fault in sample.judgement.faults)) or "none"
        asked = [sample.question.question, " / ".join(sample.question.answers) or "–"]
        said = [[t.claim, t.title, t.quote] for t in sample.judgement.triples]
        for triple in said or [[sample.text, "", ""]]:
            rows.append([*asked, *triple, faults])
            asked = ["″", "″"]
    headings = ["question", "accepted answers", "claim", "title", "quote", "faults"]
    return Table(headings, rows)


def describe(sample: JudgedSample, *, width: int = 96) -> str:
    """Returns an answer and its evidence as a paragraph for a terminal of the given `width`."""
    lines = [("Question", sample.question.question)]
    for triple in sample.judgement.triples:
        lines += [("Answer", triple.claim), ("Page", triple.title), ("Quote", triple.quote)]
    if not sample.judgement.triples:
        lines.append(("Answer", sample.text))
    lines.append(("Checked", _verdict(sample)))
    return "\n".join(
        textwrap.fill(
            on_one_line(text),
            width,
            initial_indent=f"{label + ':':10}",
            subsequent_indent=" " * 10,
        )
        for label, text in lines
    )


def _verdict(sample: JudgedSample) -> str:
    judgement = sample.judgement
    parts = sorted(fault.value for fault in judgement.faults)
    if judgement.well_formed:
        parts.append("quote is verbatim" if judgement.verbatim else "quote is not verbatim")
    if judgement.claim_correct is not None:
        expected = " / ".join(sample.question.answers)
        parts.append("claim is right" if judgement.claim_correct else f"accepted: {expected}")
    if judgement.supported is not None:
        parts.append("supported" if judgement.supported else "not supported")
    return "; ".join(parts)

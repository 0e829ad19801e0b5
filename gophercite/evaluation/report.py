"""Markdown and plain-text reports of judged answers."""

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.metrics import Judgement
from gophercite.json_fields import printable

_NORMAL_90 = 1.6449  # the standard normal's 95 % quantile: two-sided 90 %

# Fields of `Judgement` by their headings.
_COLUMNS = {
    "well-formed %": "well_formed",
    "verbatim quote %": "verbatim",
    "claim correct %": "claim_correct",
    "claim F1 %": "claim_f1",
    "quote contains answer %": "quote_contains_answer",
    "supported %": "supported",
}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean in [0, 1] over `count` answers with its 90 % interval."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        """In percent: `83.5 (77.0–88.4)`."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f}–{100 * self.high:.1f})"


def estimate(values: Sequence[float]) -> Estimate:
    """Returns the mean of `values` with its 90 % interval.

    The interval is Wilson's, which is honest near 0 and 1, where the normal one has no width. It is
    made for yes and no; of other numbers in [0, 1], whose variance is less for the same mean, it is
    on the safe side.

    Args:
      values: at least one number in [0, 1].
    """
    count = len(values)
    mean = sum(values) / count
    z = _NORMAL_90**2 / count
    centre = (mean + z / 2) / (1 + z)
    reach = math.sqrt(z * (mean * (1 - mean) + z / 4)) / (1 + z)
    return Estimate(mean, max(0.0, centre - reach), min(1.0, centre + reach), count)


def summarise(judgements: Iterable[Judgement]) -> dict[str, Estimate]:
    """Returns the estimate of each field of `Judgement` that is known for some answers."""
    judgements = list(judgements)
    summary = {}
    for field in _COLUMNS.values():
        values = [getattr(judgement, field) for judgement in judgements]
        known = [float(value) for value in values if value is not None]
        if known:
            summary[field] = estimate(known)
    return summary


def metrics_table(systems: Mapping[str, Sequence[Judgement]]) -> str:
    """Returns a Markdown table with a row for each system: percentages with 90 % intervals."""
    rows = []
    for name, judgements in systems.items():
        summary = summarise(judgements)
        cells = [str(summary[field]) if field in summary else "–" for field in _COLUMNS.values()]
        rows.append([name, str(len(judgements)), *cells])
    return _table(["system", "answers", *_COLUMNS], rows, aligned=True)


def samples_table(samples: Iterable[JudgedSample]) -> str:
    """Returns a Markdown table of answers: what was asked, accepted and said, and the faults.

    A malformed answer is shown as it is, in the column of the claim.
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
    return _table(headings, rows, aligned=False)


def describe(sample: JudgedSample, *, width: int = 96) -> str:
    """Returns an answer and its evidence as a paragraph for a terminal, `width` characters wide."""
    lines = [("Question", sample.question.question)]
    for triple in sample.judgement.triples:
        lines += [("Answer", triple.claim), ("Page", triple.title), ("Quote", triple.quote)]
    if not sample.judgement.triples:
        lines.append(("Answer", sample.text))
    lines.append(("Checked", _verdict(sample)))
    return "\n".join(
        textwrap.fill(
            _on_one_line(text),
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
        parts.append("claim is right" if judgement.claim_correct else f"right would be: {expected}")
    if judgement.supported is not None:
        parts.append("supported" if judgement.supported else "not supported")
    return "; ".join(parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, aligned: bool) -> str:
    """Returns a Markdown table, its columns `aligned` for those who read it as it is."""
    lines = [list(headings), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) if aligned else 0 for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * max(3, width) for width in widths])
    return "".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
        for line in lines
    )


def _cell(text: str) -> str:
    """Escapes a stranger's text for a cell of a Markdown table: no markup, no HTML, one line."""
    text = _on_one_line(text)
    for character in "\\`*_{}[]|#~$!":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _on_one_line(text: str) -> str:
    return printable(" ".join(text.split()))

"""How much of the quoted text is gold evidence, and how much of the gold evidence is quoted."""

import dataclasses
from collections.abc import Iterator, Sequence

from gophercite.documents import Document
from gophercite.records import Span


@dataclasses.dataclass(frozen=True)
class EvidenceOverlap:
    """Overlap of quotes with one gold span, in characters.

    Attributes:
      precision: share of the quotes' characters that are in the span; 0 without quotes.
      recall: share of the span's characters that are quoted.
    """

    precision: float
    recall: float


def evidence_overlap(
    quotes: Sequence[tuple[str, Sequence[Document]]], gold: Sequence[Span]
) -> EvidenceOverlap:
    """Measures an answer's quotes together against the gold span that they fit best.

    Spans are alternatives: each proves the answer by itself. A quote that occurs several times in a
    page counts where it overlaps the span most; one that occurs in no page overlaps nothing.

    Args:
      quotes: quotes of one answer, each with the pages of its title in which it occurs.
      gold: at least one span.

    Returns:
      The overlap with the best harmonic mean; on a tie the first.
    """
    total = sum(len(quote) for quote, _ in quotes)
    best = EvidenceOverlap(0.0, 0.0)
    best_sum = 0.0
    for span in gold:
        covered = {place for quote, pages in quotes for place in _covered(quote, pages, span)}
        common = len(covered)
        # F1 is twice this; the denominator that precision and recall share cancels out.
        sum_of_lengths = common / (total + span.end - span.start)
        if sum_of_lengths > best_sum:
            best_sum = sum_of_lengths
            best = EvidenceOverlap(common / total, common / (span.end - span.start))
    return best


def _covered(quote: str, pages: Sequence[Document], span: Span) -> range:
    """The characters of the span covered by the quote's occurrence that covers most of them."""
    text = next((page.text for page in pages if page.id == span.document), None)
    if text is None or not quote:
        return range(0)
    found = (
        range(max(start, span.start), min(start + len(quote), span.end))
        for start in _occurrences(quote, text)
    )
    return max(found, key=len, default=range(0))


def _occurrences(quote: str, text: str) -> Iterator[int]:
    start = text.find(quote)
    while start >= 0:
        yield start
        start = text.find(quote, start + 1)

"""How much of what was quoted is gold evidence, and how much of the gold evidence was quoted."""

import dataclasses
from collections.abc import Iterator, Sequence

from gophercite.documents import Document
from gophercite.records import Span


@dataclasses.dataclass(frozen=True)
class EvidenceOverlap:
    """Quotes beside one gold span, in characters.

    Attributes:
      precision: the share of the quotes' characters that are in the span; 0 without quotes.
      recall: the share of the span's characters that are quoted.
    """

    precision: float
    recall: float


def evidence_overlap(
    quotes: Sequence[tuple[str, Sequence[Document]]], gold: Sequence[Span]
) -> EvidenceOverlap:
    """Measures an answer's quotes together against the gold span that they fit best.

    Spans are alternatives: each proves the answer by itself. A quote that stands in a page several
    times is taken where it overlaps the span most; one that stands in no page overlaps nothing.

    Args:
      quotes: of one answer, each with the pages of its title in which it stands.
      gold: at least one span.

    Returns:
      The overlap with the best harmonic mean; of equally good ones the first.
    """
    total = sum(len(quote) for quote, _ in quotes)
    best = EvidenceOverlap(0.0, 0.0)
    best_sum = 0.0
    for span in gold:
        covered = {place for quote, pages in quotes for place in _covered(quote, pages, span)}
        common = len(covered)
        # F1 is twice this; what the two quotients share is left out.
        sum_of_lengths = common / (total + span.end - span.start)
        if sum_of_lengths > best_sum:
            best_sum = sum_of_lengths
            best = EvidenceOverlap(common / total, common / (span.end - span.start))
    return best


def _covered(quote: str, pages: Sequence[Document], span: Span) -> range:
    """The characters of the span in the quote's occurrence that has the most of them."""
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

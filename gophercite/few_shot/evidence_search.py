"""Finds evidence for a claim by rule: the run of sentences most similar to it (section 3.2, H)."""

import dataclasses
from collections.abc import Iterable

from gophercite import evidence
from gophercite.documents import Document
from gophercite.text.rouge import rouge_l_of_words, words
from gophercite.text.sentences import sentence_spans

MORE_SENTENCES = 2  # evidence has this many more sentences than the claim


@dataclasses.dataclass(frozen=True)
class FoundEvidence:
    """A run of sentences of a page.

    Attributes:
      document: the page.
      start, end: the quote is `document.text[start:end]`.
      score: its ROUGE-L against the claim, in 0 … 1.
    """

    document: Document
    start: int
    end: int
    score: float

    @property
    def quote(self) -> str:
        """The text of the run."""
        return self.document.text[self.start : self.end]


def find_evidence(claim: str, pages: Iterable[Document]) -> FoundEvidence | None:
    """Returns the n + 2 consecutive sentences with the best ROUGE-L, for a claim of n sentences.

    A page with fewer sentences is taken in full. On a tie the first run wins. Runs and titles with
    a reserved mark, which inline evidence can't contain, are skipped.

    Args:
      claim: the claim to prove.
      pages: in rank order; of each, the part that the model was shown, or all of it.

    Returns:
      The run; None if no page has a sentence.
    """
    claimed = words(claim)
    number = len(sentence_spans(claim)) + MORE_SENTENCES
    best: FoundEvidence | None = None
    for page in pages:
        if evidence.holds_mark(page.title):
            continue
        spans = sentence_spans(page.text)
        for first in range(max(1, len(spans) - number + 1) if spans else 0):
            start, end = spans[first][0], spans[min(first + number, len(spans)) - 1][1]
            text = page.text[start:end]
            score = rouge_l_of_words(claimed, words(text))
            if (best is None or score > best.score) and not evidence.holds_mark(text):
                best = FoundEvidence(page, start, end, score)
    return best

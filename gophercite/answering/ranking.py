"""Several answers to one question, the best first."""

import dataclasses

from gophercite.answering.extractive import LEAST_RELEVANCE, extractive_answer
from gophercite.answering.pages import FoundPages
from gophercite.records.answers import Answer, Sample
from gophercite.text.answer_matching import normalize_answer


def rank(sample: Sample) -> tuple[bool, float, float]:
    """What orders samples: whether the quote has the claim, the score, and the likelihood."""
    return not sample.quote_lacks_claim, sample.score, sample.likelihood


def ranked_samples(answer: Answer, top: int) -> list[Answer]:
    """Returns the best of a model's answers that differ in their claims.

    Claims are compared as SQuAD compares answers; of equal ones the best answer counts.

    Args:
      answer: with its samples (`keep_samples`), or declined.
      top: maximum number of answers.

    Returns:
      Answers without samples, the given one first; only that one if it is declined.
    """
    if answer.declined:
        return [answer]
    distinct: dict[tuple[str, ...], Sample] = {}
    # The sort is stable: on a tie the first sample wins, as it did when the answer was chosen.
    for sample in sorted(answer.samples, key=rank, reverse=True):
        claims = [each.claim.strip() for each in sample.citations]
        said = tuple(normalize_answer(claim) or claim for claim in claims)
        distinct.setdefault(said, sample)
    return [
        dataclasses.replace(
            answer,
            citations=sample.citations,
            text=sample.text,
            score=sample.score,
            likelihood=sample.likelihood,
            consensus=sample.consensus,
            supported_and_plausible=sample.supported_and_plausible,
            samples=(),
        )
        for sample in list(distinct.values())[:top]
    ]


def extractive_answers(
    question: str, found: FoundPages, top: int, *, least_relevance: float = LEAST_RELEVANCE
) -> list[Answer]:
    """Returns the baseline's answers, one for each page that has one, the best page first.

    Args:
      question: as for `extractive_answer`.
      found: its pages.
      top: maximum number of answers.
      least_relevance: as for `extractive_answer`.

    Returns:
      Answers, the one from `extractive_answer` first; only that one if it is declined.

    Raises:
      ValueError: when the question is blank or has only filters, or `least_relevance` is not in
        0 … 1.
    """
    best = extractive_answer(question, found, least_relevance=least_relevance)
    answers = [best]
    rest = found.results
    while len(answers) < top and not answers[-1].declined:
        cited = answers[-1].citations[0].document
        pages = [result.document.id for result in rest]
        rest = rest[pages.index(cited) + 1 :]
        left = FoundPages(rest)
        answers.append(extractive_answer(question, left, least_relevance=least_relevance))
    return [best, *(answer for answer in answers[1:] if not answer.declined)]

"""NaturalQuestionsFiltered and ELI5Filtered: the paper's filters of test questions (3.1)."""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gophercite.documents import Document
from gophercite.records import Hit, Question
from gophercite.retrieval.engine import parse_query
from gophercite.text.answer_matching import normalize_answer, says_something

# Section 3.1, footnote 4: the 5th and 95th percentile of the model's answers, in characters.
SHORTEST, LONGEST = 316, 1313

# A link as people write it: with a scheme, with "www.", or as a bare host whose ending rarely
# follows a dot by accident. "Stop.It" and "a.m./p.m." are not hosts, and ada@example.org is not a
# page.
_URL = re.compile(
    r"""
    https?://[^\s\])>]+
    | (?<![\w@.\-/]) (?:
        www\.[a-z0-9\-]+\.[^\s\])>]+
        | (?:[a-z0-9\-]+\.)+(?:com|org|net|edu|gov|mil|int|info|(?:ac|co|gov|org)\.[a-z]{2})
          (?![\w@\-]|\.\w) [^\s\])>]*
        | (?:[a-z0-9\-]+\.)+[a-z]{2}/[^\s\])>]+
        | redd\.it\b[^\s\])>]*
      )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_AFTER_URL = ".,;:!?'\"*_~…"  # ends a sentence or an emphasis, and is not part of an address

# An edit as its author marks it: at the start of a line, in brackets or emphasis, before a colon or
# a dash, or in the usual words. "The film was edited by …" is about something else. The length of
# runs of symbols is limited, because each of their symbols may begin a match: a page of asterisks
# took minutes. For the same reason, blanks are matched without backtracking.
_EDITED = re.compile(
    r"""
    ^[^\w\n]{0,40}(?:edit|update)\b
    | [(\[{*_~][\W_]{0,40}edit(?:ed|s)?(?![a-z\-])(?!\s+(?:by|from|in|together|with)\b)
    | (?:(?<!\bto\ )|(?=(?-i:E)))\bedit(?:ed)?(?:\s*+(?:\#\d*+|\d++))?(?:\s*+:|\s++[-–—])
    | \bedited\s+(?:for\s+(?:clarity|formatting|grammar|spelling|typos?)|to\s+(?:add|fix))\b
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_ELI5 = parse_query("site:reddit.com/r/eli5 site:reddit.com/r/explainlikeimfive")


@dataclasses.dataclass
class FilterReport:
    """Number of questions kept, and of questions left out, by the first reason found."""

    kept: int = 0
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def __str__(self) -> str:
        """One line for the questions kept and one for each reason."""
        reasons = (f"{count:7d} {reason}" for reason, count in self.left_out.most_common())
        return "\n".join([f"{self.kept:7d} kept", *reasons])


class TrainingOverlap:
    """The questions, answers and page titles of a training set.

    Args:
      train: all questions of the training set.

    Raises:
      ValueError: the page with the answer to a question is a search result, so its title is
        unknown.
    """

    def __init__(self, train: Iterable[Question]) -> None:
        self._questions: set[str] = set()
        self._answers: set[str] = set()
        self._titles: set[str] = set()
        for question in train:
            self._questions.add(normalize_answer(question.question))
            self._answers.update(map(normalize_answer, filter(says_something, question.answers)))
            self._titles.update(_gold_titles(question))

    def reason(self, question: Question) -> str | None:
        """Returns which part of a question is in the training set, or None.

        Questions and answers are compared after SQuAD's normalisation, pages by their titles.

        Raises:
          ValueError: as for the training set.
        """
        if normalize_answer(question.question) in self._questions:
            return "the question is in the training set"
        if any(normalize_answer(answer) in self._answers for answer in question.answers):
            return "an answer is in the training set"
        if not self._titles.isdisjoint(_gold_titles(question)):
            return "its page is in the training set"
        return None


def natural_questions_filtered(
    questions: Iterable[Question], overlap: TrainingOverlap, report: FilterReport
) -> Iterator[Question]:
    """Yields questions without training overlap, with short answers and long ones (`evidence`).

    An answer that consists only of articles and punctuation is removed from its question.

    Args:
      questions: questions of the validation set.
      overlap: the training set to compare with.
      report: counts the questions left out.
    """
    for original in questions:
        answers = tuple(filter(says_something, original.answers))
        question = dataclasses.replace(original, answers=answers)
        reason = overlap.reason(question)
        if not question.answers:
            reason = "no short answer"
        elif not question.evidence:
            reason = "no long answer"
        if _keeps(reason, report):
            yield question


def eli5_filtered(
    questions: Iterable[Question],
    report: FilterReport,
    shortest: int = SHORTEST,
    longest: int = LONGEST,
) -> Iterator[Question]:
    """Yields questions whose best answer is a fair opponent: sourced, unedited, of usual length.

    Args:
      questions: questions with the answer with the most votes first, and pages with their URLs as
        documents.
      report: counts the questions left out.
      shortest, longest: minimum and maximum length of the best answer, in characters; by default
        those of the paper.
    """
    for question in questions:
        if _keeps(_eli5_reason(question, shortest, longest), report):
            yield question


def usual_lengths(answers: Sequence[str]) -> tuple[int, int]:
    """Returns the 5th and the 95th percentile of the lengths of a model's answers, in characters.

    Raises:
      ValueError: there are no answers.
    """
    if not answers:
        raise ValueError("there are no answers to take the lengths from")
    low, high = np.percentile([len(answer) for answer in answers], [5, 95])
    return int(np.floor(low)), int(np.ceil(high))


def _keeps(reason: str | None, report: FilterReport) -> bool:
    if reason is None:
        report.kept += 1
    else:
        report.left_out[reason] += 1
    return reason is None


def _eli5_reason(question: Question, shortest: int, longest: int) -> str | None:
    best = question.answers[0] if question.answers else ""
    urls = (url.rstrip(_AFTER_URL).lower() for url in _URL.findall(best))
    if all(_ELI5.admits(url) for url in urls):
        return "the best answer has no link to a page outside r/explainlikeimfive"
    if _EDITED.search(best):
        return "the best answer was edited"
    if not shortest <= len(best) <= longest:
        return f"the length of the best answer is not {shortest} to {longest} characters"
    pages = (source for source in question.documents if isinstance(source, Document))
    if any(_ELI5.admits((page.url or "").lower()) for page in pages):
        return "a search result is from r/explainlikeimfive"
    return None


def _gold_titles(question: Question) -> set[str]:
    gold = {span.document for span in question.evidence}
    titles = set()
    for source in question.documents:
        if source.id not in gold:
            continue
        if isinstance(source, Hit):
            raise ValueError(
                f"question {question.id!r}: the title of its page {source.id!r} is "
                "in an index: name the index (--index)"
            )
        titles.add(source.title.casefold())
    return titles
